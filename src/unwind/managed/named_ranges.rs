//! Which code of a process has been named, so that each method is named once; that which may be freed again and again.

use std::collections::BTreeMap;
use std::hash::BuildHasher;

use rustc_hash::FxBuildHasher;

use super::rule_cache::Epoch;
use crate::dotnet::MethodName;
use crate::trace::ProcessId;

/// Most pieces of code that are remembered of a process; beyond, all are named anew when they are met.
const MAX_CODE: usize = 1 << 16;

/// Code made at run time that was met for the first time, or is no longer what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiscoveredCode {
    /// Whose it is.
    pub process: ProcessId,
    /// Its first address.
    pub start: u64,
    /// Behind its last address.
    pub end: u64,
    /// What it is. `None`: the method that was there is gone, and what is there now has no name.
    pub name: Option<MethodName>,
    /// There was other code before.
    pub replaces: bool,
}

/// The code of a process that was met, by start.
#[derive(Debug, Default)]
pub(super) struct NamedRanges(BTreeMap<u64, NamedRange>);

#[derive(Debug)]
struct NamedRange {
    end: u64,
    /// The runtime's record of it.
    record: u64,
    /// A sum of its name, if it has one.
    name: Option<u64>,
    /// Until when that is believed.
    period: Epoch,
}

/// A piece of code that is met.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    pub(super) start: u64,
    pub(super) end: u64,
    /// What tells it from other code at the same place.
    pub(super) record: u64,
}

impl Piece {
    /// Stubs, of which the runtime has no record.
    pub(super) fn of_stub(start: u64, end: u64) -> Self {
        Self {
            start,
            end,
            record: 0,
        }
    }
}

impl NamedRanges {
    /// Whether a piece need not be named now.
    pub(super) fn is_current(&self, piece: Piece, now: Epoch) -> bool {
        self.0.get(&piece.start).is_some_and(|known| {
            known.record == piece.record && known.end == piece.end && known.period.holds(now)
        })
    }

    /// Takes in what a piece is called; tells what there is to tell.
    pub(super) fn insert(
        &mut self,
        process: ProcessId,
        piece: Piece,
        name: Option<MethodName>,
        period: Epoch,
    ) -> Option<DiscoveredCode> {
        if self.0.len() >= MAX_CODE {
            self.0.clear();
        }
        let sum = name.as_ref().map(|name| FxBuildHasher.hash_one(name));
        let mut replaces = false;
        while let Some((&start, known)) = self
            .0
            .range_mut(..piece.end)
            .next_back()
            .filter(|(_, known)| known.end > piece.start)
        {
            if start == piece.start && known.record == piece.record && known.name == sum {
                known.period = period;
                known.end = piece.end;
                return None;
            }
            replaces |= known.name.is_some();
            self.0.remove(&start);
        }
        let known = NamedRange {
            end: piece.end,
            record: piece.record,
            name: sum,
            period,
        };
        self.0.insert(piece.start, known);
        (name.is_some() || replaces).then_some(DiscoveredCode {
            process,
            start: piece.start,
            end: piece.end,
            name,
            replaces,
        })
    }
}
