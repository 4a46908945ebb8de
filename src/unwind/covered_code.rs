//! Instructions that unwind information covers: almost all that are sampled.

use crate::trace::ModuleId;

/// Number of slots. Stacks of a server contain some thousand distinct instructions.
const ENTRIES: usize = 1 << 14;
/// Odd, so that distinct keys have distinct products.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
/// Bits of an SVMA in a key.
const SVMA_BITS: u32 = 40;

/// Direct-mapped cache of places in files: one word each, which a lookup compares.
pub(super) struct CoveredCode(Box<[u64]>);

impl Default for CoveredCode {
    fn default() -> Self {
        Self(vec![0; ENTRIES].into())
    }
}

impl CoveredCode {
    /// Returns a number that no other place has, but 0 for places that are not cached.
    #[inline]
    fn key((id, svma): (ModuleId, u64)) -> u64 {
        let is_small = svma >> SVMA_BITS == 0 && id.0 >> (u64::BITS - SVMA_BITS) == 0;
        match is_small {
            true => (svma | u64::from(id.0) << SVMA_BITS).wrapping_mul(MULTIPLIER),
            false => 0,
        }
    }

    #[inline]
    fn index(key: u64) -> usize {
        (key >> (u64::BITS - ENTRIES.trailing_zeros())) as usize
    }

    /// Returns whether a place was added, and not replaced since.
    #[inline]
    pub(super) fn has(&self, place: (ModuleId, u64)) -> bool {
        let key = Self::key(place);
        key != 0 && self.0.get(Self::index(key)) == Some(&key)
    }

    pub(super) fn add(&mut self, place: (ModuleId, u64)) {
        let key = Self::key(place);
        if let Some(slot) = self.0.get_mut(Self::index(key)) {
            *slot = key;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_only_what_was_added() {
        let mut code = CoveredCode::default();
        let places = [(0, 1), (1, 0), (1, 1), (0xff_ffff, (1 << SVMA_BITS) - 1)];
        let places = places.map(|(id, svma)| (ModuleId(id), svma));
        for place in places {
            assert!(!code.has(place));
            code.add(place);
            assert!(code.has(place));
        }
        // Their keys would be those of others, or that of an empty slot.
        for (id, svma) in [(0, 0), (0, 1 << SVMA_BITS), (1 << 24, 1), (0, u64::MAX)] {
            let place = (ModuleId(id), svma);
            code.add(place);
            assert!(!code.has(place), "{id} {svma:x}");
        }
        assert!(code.has(places[1]));
    }

    #[test]
    fn a_place_replaces_another_one_at_most() {
        let mut code = CoveredCode::default();
        for svma in 1..4 * ENTRIES as u64 {
            code.add((ModuleId(3), svma));
            assert!(code.has((ModuleId(3), svma)));
        }
        let kept = (1..4 * ENTRIES as u64).filter(|svma| code.has((ModuleId(3), *svma)));
        assert!(kept.count() <= ENTRIES);
    }
}
