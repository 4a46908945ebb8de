//! The result of the analysis of a function.

use super::finding::Finding;

/// Findings for consecutive instructions: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::unwind) struct Row {
    pub(in crate::unwind) start: u64,
    pub(in crate::unwind) end: u64,
    pub(in crate::unwind) finding: Finding,
}

/// The result of an analysis.
#[derive(Default)]
pub(super) struct Analyzed {
    /// Sorted by start.
    pub(super) rows: Vec<Row>,
    /// Whether all exits are as they should be.
    pub(super) checked: bool,
    /// Whether it addresses memory by the rbp of its caller: it is a part of a function that has set
    /// rbp before.
    pub(super) uses_callers_frame: bool,
    /// Number of returns and tail calls.
    pub(super) exits: usize,
    /// What it took: decoded instructions, mostly.
    pub(super) work: usize,
    /// Offsets of the frame pointer from the CFA, by instruction.
    #[cfg(test)]
    pub(super) frame_pointers: Vec<(u64, i64)>,
}

impl Analyzed {
    /// Adds the finding of the next instructions.
    pub(super) fn add(&mut self, row: Row) {
        match self.rows.last_mut() {
            Some(last) if last.end == row.start && last.finding == row.finding => {
                last.end = row.end;
            }
            _ => self.rows.push(row),
        }
    }

    /// Lowers the certainty of all findings.
    pub(super) fn doubt(&mut self) {
        self.rows.retain_mut(|row| match row.finding.doubted() {
            Some(doubted) => {
                row.finding = doubted;
                true
            }
            None => false,
        });
    }
}
