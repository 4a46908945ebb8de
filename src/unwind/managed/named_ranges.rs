//! Named code of a process. Each method is named once, collectible code repeatedly.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::rule_cache::Epoch;
use crate::dotnet::MethodName;
use crate::trace::ProcessId;

/// Maximum number of ranges per process. At the limit, all are dropped and named again.
const MAX_CODE: usize = 1 << 16;

/// JIT code that was sampled for the first time, or that replaced other code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredCode {
    /// Process that contains the code.
    pub process: ProcessId,
    /// Start address.
    pub start: u64,
    /// Exclusive end address.
    pub end: u64,
    /// Name of the code. `None` if a named method was freed and the new code has no name.
    pub name: Option<MethodName>,
    /// Whether the code replaced other named code.
    pub replaces: bool,
}

/// Discovered code of a process, by start address.
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

/// A discovered range of code.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    /// MethodDesc, which distinguishes the method from others at the same address. 0 for a stub.
    pub(super) method_desc: u64,
}

impl Piece {
    /// Returns the range of a stub, for which the runtime has no MethodDesc.
    pub(super) fn of_stub(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            method_desc: 0,
        }
    }
}

impl NamedRanges {
    /// Returns whether the name of a range is still valid.
    pub(super) fn is_current(&self, piece: Piece, now: Epoch) -> bool {
        self.0.get(&piece.start).is_some_and(|range| {
            range.method_desc == piece.method_desc
                && range.end == piece.end
                && range.epoch.holds(now)
        })
    }

    /// Adds a named range. Returns `None` if its name is unchanged or still missing.
    pub(super) fn insert(
        &mut self,
        process: ProcessId,
        piece: Piece,
        name: Option<MethodName>,
        epoch: Epoch,
    ) -> Option<DiscoveredCode> {
        if self.0.len() >= MAX_CODE {
            self.0.clear();
        }
        let name_hash = name.as_ref().map(|name| FxBuildHasher.hash_one(name));
        let mut replaces = false;
        while let Some((&start, range)) = self
            .0
            .range_mut(..piece.end)
            .next_back()
            .filter(|(_, range)| range.end > piece.start)
        {
            if start == piece.start
                && range.method_desc == piece.method_desc
                && range.name == name_hash
            {
                range.epoch = epoch;
                range.end = piece.end;
                return None;
            }
            replaces |= range.name.is_some();
            self.0.remove(&start);
        }
        let range = NamedRange {
            end: piece.end,
            method_desc: piece.method_desc,
            name: name_hash,
            epoch,
        };
        self.0.insert(piece.start, range);
        (name.is_some() || replaces).then_some(DiscoveredCode {
            process,
            start: piece.start,
            end: piece.end,
            name,
            replaces,
        })
    }
}
