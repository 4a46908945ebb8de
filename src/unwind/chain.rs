//! Joins an unwound stack with the kernel's frame-pointer callchain of the same sample.

/// Returns the index in `chain` of the outermost walked frame. Both start at the leaf.
///
/// The chain lacks the callers of functions that keep no frame pointer, so it may be shorter.
/// Recursion repeats a frame. The inner frames then decide which occurrence matches. Returns `None`
/// if two occurrences match equally well.
pub(super) fn join<T: PartialEq>(walked: &[T], chain: &[T]) -> Option<usize> {
    let (outermost, inner) = walked.split_last()?;
    let matching_frames = |index: usize| {
        let pairs = chain[..index].iter().rev().zip(inner.iter().rev());
        pairs.take_while(|(a, b)| a == b).count()
    };
    let occurrences = (0..chain.len()).filter(|&index| chain[index] == *outermost);
    let mut by_match: Vec<_> = occurrences
        .map(|index| (matching_frames(index), index))
        .collect();
    by_match.sort_unstable();
    match by_match[..] {
        [.., (second, _), (best, _)] if second == best => None,
        [.., (_, index)] => Some(index),
        [] => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn joins_at_outermost_common_frame() {
        assert_eq!(join(&[1, 2, 3], &[1, 2, 3, 4, 5]), Some(2));
        // The chain lacks the caller of the leaf.
        assert_eq!(join(&[1, 2, 3], &[1, 3, 4]), Some(1));
        assert_eq!(join(&[1], &[1, 2]), Some(0));
        assert_eq!(join(&[1, 2, 3], &[1, 2, 4]), None);
        assert_eq!(join::<u8>(&[], &[1]), None);
        assert_eq!(join(&[1], &[]), None);
    }

    #[test]
    fn joins_recursion_only_if_unambiguous() {
        // Both contain every frame down to the leaf.
        assert_eq!(join(&[1, 7, 7], &[1, 7, 7, 7, 8]), Some(2));
        assert_eq!(join(&[1, 2, 7, 7], &[1, 2, 7, 7, 7, 7]), Some(3));
        // The chain lacks the innermost callers, so the depth of the recursion is ambiguous.
        assert_eq!(join(&[1, 2, 7, 7, 7], &[1, 7, 7, 7, 7, 8]), None);
    }
}
