//! Named code of a process. Each method is named once, collectible code repeatedly.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use crate::dotnet::MethodName;
use crate::unwind::{Epoch, MetCode, MetKind};

/// Maximum number of ranges per process. At the limit, all are dropped and named again.
const MAX_CODE: usize = 1 << 16;

/// Effect of a new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NameChange {
    /// The name is the same as before, or still missing.
    Unchanged,
    /// The code had no name before.
    Added,
    /// The code replaces other code. The addresses are those of both.
    Replaced {
        /// First address.
        start: u64,
        /// The exclusive end address.
        end: u64,
    },
}

/// Named code of a process, by start address.
#[derive(Debug, Default)]
pub(super) struct NamedRanges(BTreeMap<u64, NamedRange>);

#[derive(Debug)]
struct NamedRange {
    end: u64,
    /// MethodDesc of the method, or 0 for a stub.
    method_desc: u64,
    /// Hash of the name, if there is one.
    name: Option<u64>,
    /// Validity of the name.
    epoch: Epoch,
}

/// Returns what distinguishes a method from others at the same address: its MethodDesc.
fn method_desc(code: &MetCode) -> u64 {
    match code.kind {
        MetKind::Method(method_desc) => method_desc,
        MetKind::Stub(_) | MetKind::Foreign => 0,
    }
}

impl NamedRanges {
    /// Returns whether the name of a range is still valid.
    pub(super) fn is_current(&self, code: &MetCode, now: Epoch) -> bool {
        self.0.get(&code.start).is_some_and(|range| {
            range.method_desc == method_desc(code)
                && range.end == code.end
                && range.epoch.holds(now)
        })
    }

    /// Sets the name of a range, and removes the code that was there before.
    pub(super) fn insert(
        &mut self,
        code: &MetCode,
        name: Option<&MethodName>,
        epoch: Epoch,
    ) -> NameChange {
        if self.0.len() >= MAX_CODE {
            self.0.clear();
        }
        let method_desc = method_desc(code);
        let name_hash = name.map(|name| FxBuildHasher.hash_one(name));
        let mut replaces = false;
        let (mut all_start, mut all_end) = (code.start, code.end);
        while let Some((&start, range)) = self
            .0
            .range_mut(..code.end)
            .next_back()
            .filter(|(_, range)| range.end > code.start)
        {
            if start == code.start && range.method_desc == method_desc && range.name == name_hash {
                range.epoch = epoch;
                range.end = code.end;
                return NameChange::Unchanged;
            }
            // Code without a name that had another MethodDesc was freed before it was named.
            replaces |= range.name.is_some() || range.method_desc != method_desc;
            all_start = all_start.min(start);
            all_end = all_end.max(range.end);
            self.0.remove(&start);
        }
        let range = NamedRange {
            end: code.end,
            method_desc,
            name: name_hash,
            epoch,
        };
        self.0.insert(code.start, range);
        match (replaces, name) {
            (true, _) => NameChange::Replaced {
                start: all_start,
                end: all_end,
            },
            (false, Some(_)) => NameChange::Added,
            (false, None) => NameChange::Unchanged,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Nanos;

    fn code(start: u64, end: u64, method_desc: u64) -> MetCode {
        MetCode {
            ip: start,
            interrupted: true,
            start,
            end,
            kind: MetKind::Method(method_desc),
            collectible: true,
        }
    }

    fn name(method: &str) -> MethodName {
        MethodName {
            module: String::new(),
            method: method.into(),
            tier: None,
        }
    }

    #[test]
    fn tells_new_names_from_names_of_replaced_code() {
        let (now, later) = (Epoch::of(Nanos(0)), Epoch::of(Nanos(1_000_000_000)));
        let mut ranges = NamedRanges::default();
        let first = code(0x1000, 0x1100, 8);
        assert!(!ranges.is_current(&first, now));
        assert_eq!(ranges.insert(&first, None, now), NameChange::Unchanged);
        let one = name("one");
        assert_eq!(ranges.insert(&first, Some(&one), now), NameChange::Added);
        assert!(ranges.is_current(&first, now) && !ranges.is_current(&first, later));
        let again = ranges.insert(&first, Some(&one), Epoch::ALWAYS);
        assert_eq!(again, NameChange::Unchanged);
        assert!(ranges.is_current(&first, later));
        // Another method overlaps the first one, and then has no readable name.
        let second = code(0x10f0, 0x1200, 16);
        let two = name("two");
        let replaced = |start, end| NameChange::Replaced { start, end };
        assert_eq!(
            ranges.insert(&second, Some(&two), now),
            replaced(0x1000, 0x1200)
        );
        assert!(!ranges.is_current(&first, now));
        let change = ranges.insert(&second, None, now);
        assert_eq!(change, replaced(0x10f0, 0x1200));
        assert_eq!(ranges.insert(&second, None, now), NameChange::Unchanged);
    }
}
