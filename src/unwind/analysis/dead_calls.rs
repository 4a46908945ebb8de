//! Calls of a function that do not return, as other paths contradict what follows.

use std::collections::HashSet;

use super::blocks::Contradicted;

/// Limit of the calls of a function.
const MAX_CALLS: usize = 32;

/// Addresses after calls that do not return.
#[derive(Default)]
pub(super) struct DeadCalls {
    certain: HashSet<u64>,
    /// The last calls before contradictions. An earlier call may be the one.
    assumed: HashSet<u64>,
}

impl DeadCalls {
    /// Adds a call. Returns false if there are too many.
    pub(super) fn add(&mut self, contradicted: Contradicted) -> bool {
        if self.certain.len() + self.assumed.len() >= MAX_CALLS {
            return false;
        }
        if contradicted.is_certain {
            // It may explain these.
            self.assumed.clear();
            self.certain.insert(contradicted.call);
        } else {
            self.assumed.insert(contradicted.call);
        }
        true
    }

    /// Returns whether a call before an address does not return.
    pub(super) fn has(&self, address: u64) -> bool {
        self.certain.contains(&address) || self.assumed.contains(&address)
    }

    /// Returns the addresses after the calls that were assumed.
    pub(super) fn assumed(&self) -> impl Iterator<Item = u64> {
        self.assumed.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certain_call_replaces_what_was_assumed() {
        let mut dead = DeadCalls::default();
        let add =
            |dead: &mut DeadCalls, call, is_certain| dead.add(Contradicted { call, is_certain });
        assert!(add(&mut dead, 1, true) && add(&mut dead, 2, false));
        assert_eq!([1, 2, 3].map(|call| dead.has(call)), [true, true, false]);
        assert!(add(&mut dead, 3, true));
        assert_eq!([1, 2, 3].map(|call| dead.has(call)), [true, false, true]);
        assert_eq!(dead.assumed().count(), 0);
        let added = (10..100).filter(|call| add(&mut dead, *call, false));
        assert_eq!(added.count(), MAX_CALLS - 2);
    }
}
