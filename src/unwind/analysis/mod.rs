//! Unwind rules for code without unwind information, from its instructions.
//!
//! A function's prologue moves the stack pointer by known amounts and saves registers at known
//! places; whatever path leads to an instruction, the distance to the return address is the same.
//! An analysis follows all paths from the start of a function, and checks at its returns that it
//! found everything where it must be. Functions are analyzed when they are first sampled, once for
//! all processes. If the file or its debug file has a `.debug_frame`, that is used instead.

mod analyst;
mod analyzed;
mod blocks;
mod call_frames;
mod control_flow;
mod dead_calls;
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
mod rows;
mod starts;
mod state;
mod sweep;
mod transfer;

use std::collections::HashSet;

use perfcollect_symbols::elf::{ElfFile, FunctionRanges};

use function::Function;
use module::Module;
use rows::Rows;

pub(super) use analyst::{Analyst, Waiting};
pub(super) use analyzed::Row;
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

/// Unwind rules of one file, found on demand.
pub struct Analysis {
    module: Module,
    rows: Rows,
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
            rows: Rows::default(),
            analyzed: HashSet::new(),
            #[cfg(test)]
            frame_pointers: std::collections::HashMap::new(),
        })
    }

    /// Returns what is known about a frame at an instruction, or within one: a call.
    pub fn at(&mut self, address: u64) -> Option<Finding> {
        if let Some(found) = self.rows.checked_at(address) {
            return Some(found.finding);
        }
        let start = self.module.starts.before(address);
        if let Some(start) = start {
            self.analyze(start, false);
        }
        let first = start.unwrap_or(0);
        if self.rows.checked_at(address).is_none() {
            let entrances = self.module.entrances(first..address.saturating_add(1));
            let sources: Vec<u64> = entrances.take(MAX_TRIED).collect();
            for source in sources {
                if let Some(start) = self.module.starts.before(source) {
                    self.analyze(start, false);
                }
            }
        }
        if self.rows.checked_at(address).is_none() {
            let candidates = &self.module.sweep.candidates;
            let after = candidates.partition_point(|start| *start <= address);
            let candidates = candidates.get(..after).unwrap_or_default().iter().rev();
            let candidates = candidates.take_while(|start| **start > first);
            let candidates: Vec<u64> = candidates.copied().take(MAX_TRIED).collect();
            for start in candidates {
                self.analyze(start, true);
                if self.rows.checked_at(address).is_some() {
                    break;
                }
            }
        }
        let found = self.rows.at(address).map(|found| found.finding);
        found.or_else(|| {
            let rule = gap::rule(&self.module, address)?;
            Some(Finding::Caller(rule, Certainty::Likely))
        })
    }

    /// Returns the start of the function that contains an address, if all of its paths were checked.
    fn function_at(&mut self, address: u64) -> Option<u64> {
        if self.rows.checked_at(address).is_none() {
            self.analyze(self.module.starts.before(address)?, false);
        }
        Some(self.rows.checked_at(address)?.function)
    }

    /// Returns the last known start of a function up to an address.
    fn start_before(&self, address: u64) -> Option<u64> {
        self.module.starts.before(address)
    }

    /// Returns the checked findings of the code near an address, which belong to the same functions
    /// mostly.
    fn checked_near(&self, address: u64) -> Vec<Row> {
        self.rows.checked_near(address, MAX_NEAR)
    }

    /// Returns the memory that it occupies, in bytes.
    fn bytes(&self) -> usize {
        self.module.bytes() + self.rows.bytes()
    }

    /// Analyzes a function once. A `candidate` counts only if what it does fits a function.
    fn analyze(&mut self, start: u64, candidate: bool) {
        if self.rows.len() > MAX_ROWS {
            self.rows = Rows::default();
            self.analyzed.clear();
        }
        if self.budget == 0 || !self.analyzed.insert(start) {
            return;
        }
        let mut analyzed = Function::analyze(&self.module, start);
        self.budget = self.budget.saturating_sub(analyzed.work);
        if candidate && (!analyzed.checked || analyzed.uses_callers_frame) {
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
            self.rows.insert(row, start);
        }
    }
}
