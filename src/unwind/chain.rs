//! Joining a walked stack with the kernel's frame-pointer chain of the same sample.

/// Where in `chain` the outermost walked frame is; both begin at the leaf.
///
/// The chain lacks the callers of functions that keep no frame pointer, so it may be shorter. A frame that is there more
/// than once (recursion) is told by the frames below it; where they do not tell either, there is no join.
pub(super) fn join<T: PartialEq>(walked: &[T], chain: &[T]) -> Option<usize> {
    let (outermost, below) = walked.split_last()?;
    let agreement = |at: usize| {
        let pairs = chain[..at].iter().rev().zip(below.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let places = (0..chain.len()).filter(|&at| chain[at] == *outermost);
    let mut by_agreement: Vec<_> = places.map(|at| (agreement(at), at)).collect();
    by_agreement.sort_unstable();
    match by_agreement[..] {
        [.., (second, _), (most, _)] if second == most => None,
        [.., (_, at)] => Some(at),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_is_joined_at_the_last_common_frame() {
        assert_eq!(join(&[1, 2, 3], &[1, 2, 3, 4, 5]), Some(2));
        // The caller of the leaf is missing in the chain.
        assert_eq!(join(&[1, 2, 3], &[1, 3, 4]), Some(1));
        assert_eq!(join(&[1], &[1, 2]), Some(0));
        assert_eq!(join(&[1, 2, 3], &[1, 2, 4]), None);
        assert_eq!(join::<u8>(&[], &[1]), None);
        assert_eq!(join(&[1], &[]), None);
    }

    #[test]
    fn recursion_is_joined_where_it_is_certain() {
        // Both are complete down to the leaf.
        assert_eq!(join(&[1, 7, 7], &[1, 7, 7, 7, 8]), Some(2));
        assert_eq!(join(&[1, 2, 7, 7], &[1, 2, 7, 7, 7, 7]), Some(3));
        // The first callers are missing in the chain, so nothing tells how deep it begins.
        assert_eq!(join(&[1, 2, 7, 7, 7], &[1, 7, 7, 7, 7, 8]), None);
    }
}
