//! Huffman codes as RFC 1951 wants them: canonical, of limited length.

use std::cmp::Reverse;

/// The code of a symbol, as its bits go out: the first in the lowest.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Code {
    pub(super) bits: u32,
    pub(super) len: u8,
}

/// The length of each symbol's code, at most `longest`; 0 for those that do not occur. At least two symbols have one, as some
/// readers want.
pub(super) fn lengths(counts: &[u32], longest: u8) -> Vec<u8> {
    let mut used: Vec<(u32, usize)> = counts
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
        .map(|(symbol, &count)| (count, symbol))
        .collect();
    let unused = counts.iter().enumerate().filter(|(_, count)| **count == 0);
    let needed = 2_usize.saturating_sub(used.len());
    used.extend(unused.map(|(symbol, _)| (1, symbol)).take(needed));
    used.sort_unstable();
    let mut of_length = limited(&depths(&used), longest);
    let mut lengths = vec![0; counts.len()];
    // The most frequent symbols get the shortest codes.
    let mut length = 0;
    used.sort_unstable_by_key(|&(count, symbol)| (Reverse(count), symbol));
    for (_, symbol) in used {
        while of_length[length] == 0 {
            length += 1;
        }
        of_length[length] -= 1;
        lengths[symbol] = length as u8;
    }
    lengths
}

/// How deep in Huffman's tree each of the counts is, which come in their order.
fn depths(used: &[(u32, usize)]) -> Vec<usize> {
    // Leaves, then inner nodes as they are made: both from light to heavy, so the two lightest are at the front.
    let leaves = used.len();
    let mut weights: Vec<u64> = used.iter().map(|&(count, _)| count.into()).collect();
    let mut parents = vec![0; 2 * leaves - 1];
    let (mut leaf, mut inner) = (0, leaves);
    for parent in leaves..2 * leaves - 1 {
        let mut lightest = || {
            let is_leaf = leaf < leaves && (inner == parent || weights[leaf] <= weights[inner]);
            let next = if is_leaf { &mut leaf } else { &mut inner };
            parents[*next] = parent;
            *next += 1;
            weights[*next - 1]
        };
        let sum = lightest() + lightest();
        weights.push(sum);
    }
    let mut depths = vec![0; parents.len()];
    for node in (0..parents.len() - 1).rev() {
        depths[node] = depths[parents[node]] + 1;
    }
    depths.truncate(leaves);
    depths
}

/// How many codes there are of each length, none longer than `longest`.
fn limited(depths: &[usize], longest: u8) -> Vec<u32> {
    let longest = usize::from(longest);
    let mut of_length = vec![0_u32; longest + 1];
    for &depth in depths {
        of_length[depth.min(longest)] += 1;
    }
    // Codes that were cut are too many for the bits there are. Each step takes two leaves from the bottom, makes one a sibling of a leaf
    // above and the other the parent of nobody: one too many less.
    let room = |(length, &count): (usize, &u32)| u64::from(count) << (longest - length);
    let taken: u64 = of_length.iter().enumerate().map(room).sum();
    for _ in 1 << longest..taken {
        of_length[longest] -= 1;
        if let Some(above) = (1..longest).rev().find(|&length| of_length[length] > 0) {
            of_length[above] -= 1;
            of_length[above + 1] += 2;
        }
    }
    of_length
}

/// The codes of these lengths.
pub(super) fn codes(lengths: &[u8]) -> Vec<Code> {
    let mut next = [0_u32; 16];
    for length in 1..16 {
        let shorter = lengths
            .iter()
            .filter(|&&len| usize::from(len) == length - 1);
        let count = if length == 1 {
            0
        } else {
            shorter.count() as u32
        };
        next[length] = (next[length - 1] + count) << 1;
    }
    let code = |&len: &u8| {
        if len == 0 {
            return Code::default();
        }
        let next = &mut next[usize::from(len)];
        *next += 1;
        Code {
            bits: (*next - 1).reverse_bits() >> (32 - u32::from(len)),
            len,
        }
    };
    lengths.iter().map(code).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// All bits are used, none twice.
        #[test]
        fn codes_are_complete(
            counts in proptest::collection::vec(prop_oneof![Just(0), 0..9_u32, any::<u32>()], 2..300),
            longest in 9..16_u8,
        ) {
            let lengths = lengths(&counts, longest);
            let used = lengths.iter().filter(|&&len| len > 0);
            let room: u32 = used.clone().map(|&len| 1 << (longest - len)).sum();
            prop_assert_eq!(room, 1 << longest);
            prop_assert!(counts.iter().zip(&lengths).all(|(&count, &len)| count == 0 || len > 0));
            let codes = codes(&lengths);
            let mut first: Vec<_> = codes
                .iter()
                .filter(|code| code.len > 0)
                .map(|code| (code.bits.reverse_bits(), code.len))
                .collect();
            first.sort_unstable();
            for pair in first.windows(2) {
                prop_assert!(pair[0].0.checked_add(1 << (32 - pair[0].1)) == Some(pair[1].0));
            }
        }
    }

    #[test]
    fn frequent_symbols_have_short_codes() {
        assert_eq!(lengths(&[1, 1, 2, 4, 0], 15), [3, 3, 2, 1, 0]);
        assert_eq!(lengths(&[0, 0, 5], 15), [1, 0, 1]);
        // As deep as it gets: Fibonacci's numbers.
        let mut counts = vec![1, 1];
        (2..40).for_each(|at| counts.push(counts[at - 1] + counts[at - 2]));
        assert_eq!(lengths(&counts, 15).iter().max(), Some(&15));
    }
}
