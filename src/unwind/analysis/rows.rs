//! Findings of all analyzed functions of a file, by instruction.

use std::collections::BTreeMap;

use super::analyzed::Row;
use super::finding::Finding;

/// Approximate size of a row, in bytes.
const ROW_BYTES: usize = 72;

/// What is known about consecutive instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Exclusive end of the instructions.
    end: u64,
    pub(super) finding: Finding,
    /// Start of the function that they are part of.
    pub(super) function: u64,
}

/// Ranges of instructions, which do not overlap, by their start.
#[derive(Debug, Default)]
pub(super) struct Rows(BTreeMap<u64, Found>);

impl Rows {
    /// Returns what is known about an instruction.
    pub(super) fn at(&self, address: u64) -> Option<Found> {
        let (_, found) = self.0.range(..=address).next_back()?;
        (address < found.end).then_some(*found)
    }

    /// Returns what is known about an instruction if that is certain.
    pub(super) fn checked_at(&self, address: u64) -> Option<Found> {
        self.at(address).filter(|found| found.finding.is_checked())
    }

    /// Returns the checked rows among the next ones before and after an instruction.
    pub(super) fn checked_near(&self, address: u64, count: usize) -> Vec<Row> {
        let before = self.0.range(..=address).rev().take(count);
        let after = self.0.range(address.saturating_add(1)..).take(count);
        let near = before.chain(after);
        let checked = near.filter(|(_, found)| found.finding.is_checked());
        let row = |(start, found): (&u64, &Found)| Row {
            start: *start,
            end: found.end,
            finding: found.finding,
        };
        checked.map(row).collect()
    }

    /// Adds a row of a function. Of two findings for an instruction, the first checked one stays.
    pub(super) fn insert(&mut self, row: Row, function: u64) {
        let Row {
            start,
            mut end,
            finding,
        } = row;
        let is_checked = finding.is_checked();
        let older = self.at(start);
        if older.is_some_and(|older| older.finding.is_checked() || !is_checked) {
            return;
        }
        if !is_checked {
            let next = self.0.range(start..).next();
            end = next.map_or(end, |(next, _)| end.min(*next));
        } else {
            self.clear(start, end);
        }
        let found = Found {
            end,
            finding,
            function,
        };
        self.0.insert(start, found);
    }

    /// Removes what is known about a range.
    fn clear(&mut self, start: u64, end: u64) {
        let before = self.0.range_mut(..start).next_back();
        let before = before.filter(|(_, found)| found.end > start);
        let mut rest = before.map(|(_, found)| {
            let rest = *found;
            found.end = start;
            rest
        });
        let inside: Vec<u64> = self.0.range(start..end).map(|(at, _)| *at).collect();
        for at in inside {
            rest = self.0.remove(&at).or(rest);
        }
        if let Some(rest) = rest.filter(|rest| rest.end > end) {
            self.0.insert(end, rest);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the memory that they occupy, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.0.len() * ROW_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::analysis::Certainty;
    use crate::unwind::rule::UnwindRule;

    fn row(start: u64, end: u64, certainty: Certainty) -> Row {
        Row {
            start,
            end,
            finding: Finding::Caller(UnwindRule::RETURN, certainty),
        }
    }

    fn functions(rows: &Rows) -> Vec<u64> {
        let at = |address| rows.at(address).map_or(0, |found| found.function);
        (10..20).map(at).collect()
    }

    #[test]
    fn checked_findings_replace_the_others() {
        let mut rows = Rows::default();
        rows.insert(row(10, 18, Certainty::Likely), 1);
        rows.insert(row(12, 14, Certainty::Checked), 2);
        assert_eq!(functions(&rows), [1, 1, 2, 2, 1, 1, 1, 1, 0, 0]);
        // A likely finding fills only what is unknown.
        rows.insert(row(13, 20, Certainty::Likely), 3);
        rows.insert(row(18, 20, Certainty::Likely), 4);
        assert_eq!(functions(&rows), [1, 1, 2, 2, 1, 1, 1, 1, 4, 4]);
        // The first checked one stays.
        rows.insert(row(12, 20, Certainty::Checked), 5);
        assert_eq!(functions(&rows), [1, 1, 2, 2, 1, 1, 1, 1, 4, 4]);
        rows.insert(row(15, 19, Certainty::Checked), 6);
        assert_eq!(functions(&rows), [1, 1, 2, 2, 1, 6, 6, 6, 6, 4]);
        let checked = rows.checked_near(14, 8);
        let checked: Vec<_> = checked.iter().map(|row| row.start..row.end).collect();
        assert_eq!(checked, [12..14, 15..19]);
    }

    #[test]
    fn unknown_likely_rows_end_before_known_ones() {
        let mut rows = Rows::default();
        rows.insert(row(14, 16, Certainty::Checked), 1);
        rows.insert(row(10, 20, Certainty::Likely), 2);
        assert_eq!(functions(&rows), [2, 2, 2, 2, 1, 1, 0, 0, 0, 0]);
    }
}
