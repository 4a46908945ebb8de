//! Unwind rules for code without unwind information, from its instructions.
//!
//! A function's prologue moves the stack pointer by known amounts and saves registers at known
//! places; whatever path leads to an instruction, the distance to the return address is the same.
//! An analysis follows all paths from the start of a function, and checks at its returns that it
//! found everything where it must be. Functions are analyzed when they are first sampled, once for
//! all processes. If the file or its debug file has a `.debug_frame`, that is used instead.

mod analyst;
mod call_frames;
#[cfg(test)]
mod differential_tests;
mod entry;
mod finding;
mod function;
mod function_starts;
mod gap;
mod jump_tables;
mod module;
mod no_return;
mod starts;
mod state;
mod sweep;
mod transfer;

use std::collections::{BTreeMap, HashSet};

use perfcollect_symbols::elf::{ElfFile, FunctionRanges};

use function::Function;
pub(super) use function::Row;
use module::Module;

pub(super) use analyst::{Analyst, Waiting};
pub(super) use call_frames::finding as finding_of_row;
pub(super) use finding::StackSwitch;
pub use finding::{Certainty, Finding};
pub use function_starts::FunctionStarts;
pub(super) use sweep::is_near;
pub(super) use transfer::is_immediate;

/// Limit of functions that are tried for one instruction.
const MAX_TRIED: usize = 64;
/// Limit of the rows of a file. libcoreclr.so has 150 000 if all functions are analyzed.
const MAX_ROWS: usize = 1 << 18;
/// Maximum number of rows before and after an instruction that are known with it.
const MAX_NEAR: usize = 64;
/// Approximate size of a row, in bytes.
const ROW_BYTES: usize = 64;

/// Unwind rules of one file, found on demand.
pub struct Analysis {
    module: Module,
    /// Exclusive end and finding of consecutive instructions, by their start.
    rows: BTreeMap<u64, (u64, Finding)>,
    /// Starts of analyzed functions.
    analyzed: HashSet<u64>,
    /// Work that may still be done: instructions to decode, mostly.
    budget: usize,
    #[cfg(test)]
    frame_pointers: std::collections::HashMap<u64, i64>,
}

impl Analysis {
    /// Reads the code of an x86-64 file. Returns `None` if it is unreadable or for another machine.
    ///
    /// `ranges` are functions with unwind information, whose starts help to find others.
    #[must_use]
    pub fn new(elf: &ElfFile, ranges: Option<&FunctionRanges>) -> Option<Self> {
        let module = Module::read(elf, ranges)?;
        Some(Self {
            budget: module.work_limit(),
            module,
            rows: BTreeMap::new(),
            analyzed: HashSet::new(),
            #[cfg(test)]
            frame_pointers: std::collections::HashMap::new(),
        })
    }

    /// Returns what is known about a frame at an instruction, or within one: a call.
    pub fn at(&mut self, address: u64) -> Option<Finding> {
        if self.is_checked_at(address) {
            return self.found(address);
        }
        let start = self.module.starts.before(address);
        if let Some(start) = start {
            self.analyze(start, false);
        }
        let first = start.unwrap_or(0);
        if !self.is_checked_at(address) {
            let entrances = self.module.entrances(first..address.saturating_add(1));
            let sources: Vec<u64> = entrances.take(MAX_TRIED).collect();
            for source in sources {
                if let Some(start) = self.module.starts.before(source) {
                    self.analyze(start, false);
                }
            }
        }
        if !self.is_checked_at(address) {
            let candidates = &self.module.sweep.candidates;
            let after = candidates.partition_point(|start| *start <= address);
            let candidates = candidates.get(..after).unwrap_or_default().iter().rev();
            let candidates = candidates.take_while(|start| **start > first);
            let candidates: Vec<u64> = candidates.copied().take(MAX_TRIED).collect();
            for start in candidates {
                self.analyze(start, true);
                if self.is_checked_at(address) {
                    break;
                }
            }
        }
        self.found(address).or_else(|| {
            let rule = gap::rule(&self.module, address)?;
            Some(Finding::Caller(rule, Certainty::Likely))
        })
    }

    /// Returns the checked findings of the code near an address, which belong to the same functions
    /// mostly.
    fn checked_near(&self, address: u64) -> Vec<Row> {
        let row = |(start, (end, finding)): (&u64, &(u64, Finding))| Row {
            start: *start,
            end: *end,
            finding: *finding,
        };
        let before = self.rows.range(..=address).rev().take(MAX_NEAR).map(row);
        let after = self
            .rows
            .range(address.saturating_add(1)..)
            .take(MAX_NEAR)
            .map(row);
        let near = before.chain(after);
        near.filter(|row| is_checked(&row.finding)).collect()
    }

    /// Returns the memory that it occupies, in bytes.
    fn bytes(&self) -> usize {
        self.module.bytes() + self.rows.len() * ROW_BYTES
    }

    fn found(&self, address: u64) -> Option<Finding> {
        let (_, (end, finding)) = self.rows.range(..=address).next_back()?;
        (address < *end).then_some(*finding)
    }

    fn is_checked_at(&self, address: u64) -> bool {
        self.found(address).as_ref().is_some_and(is_checked)
    }

    /// Analyzes a function once. A `candidate` counts only if what it does fits a function.
    fn analyze(&mut self, start: u64, candidate: bool) {
        if self.rows.len() > MAX_ROWS {
            self.rows.clear();
            self.analyzed.clear();
        }
        if self.budget == 0 || !self.analyzed.insert(start) {
            return;
        }
        let mut analyzed = Function::analyze(&self.module, start);
        self.budget = self.budget.saturating_sub(analyzed.work);
        if candidate && !analyzed.checked {
            return;
        }
        // What never returns may be no function, unless something loads its address.
        let is_loaded = || self.module.sweep.loaded.binary_search(&start).is_ok();
        if candidate && analyzed.exits == 0 && !is_loaded() {
            analyzed.doubt();
        }
        #[cfg(test)]
        self.frame_pointers.extend(analyzed.frame_pointers);
        for row in analyzed.rows {
            self.insert(row.start, row.end, row.finding);
        }
    }

    /// Adds a row. Of two findings for an instruction, the first checked one stays.
    fn insert(&mut self, start: u64, mut end: u64, finding: Finding) {
        let older = self.found(start);
        if older.is_some_and(|older| is_checked(&older) || !is_checked(&finding)) {
            return;
        }
        if !is_checked(&finding) {
            let next = self.rows.range(start..).next();
            end = next.map_or(end, |(next, _)| end.min(*next));
            self.rows.insert(start, (end, finding));
            return;
        }
        let before = self.rows.range_mut(..start).next_back();
        let before = before.filter(|(_, (before_end, _))| *before_end > start);
        let mut rest = before
            .map(|(_, (before_end, finding))| (std::mem::replace(before_end, start), *finding));
        let inside: Vec<u64> = self.rows.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            rest = self.rows.remove(&at).or(rest);
        }
        if let Some(rest) = rest.filter(|(rest_end, _)| *rest_end > end) {
            self.rows.insert(end, rest);
        }
        self.rows.insert(start, (end, finding));
    }
}

fn is_checked(finding: &Finding) -> bool {
    !matches!(finding, Finding::Caller(_, Certainty::Likely))
}
