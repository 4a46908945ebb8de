//! Construction of a table: sorts symbols, resolves overlaps and ends unsized symbols.

use std::cmp::Reverse;

use thiserror::Error;

use super::{SymbolRow, SymbolTable};

/// Limit of symbols per table. Chromium with full symbols has 1.5 million.
pub const MAX_SYMBOLS: usize = 1 << 22;
/// Limit of names per table, in bytes. Chromium with full symbols has 120 MB.
pub const MAX_NAME_BYTES: usize = 256 << 20;

const _: () = assert!(MAX_SYMBOLS < u32::MAX as usize);
const _: () = assert!(MAX_NAME_BYTES < u32::MAX as usize);

/// The limit that a symbol exceeds.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// The table has [`MAX_SYMBOLS`] symbols.
    #[error("more than {MAX_SYMBOLS} symbols")]
    TooManySymbols,
    /// The names exceed [`MAX_NAME_BYTES`] in total.
    #[error("symbol names of more than {MAX_NAME_BYTES} bytes in total")]
    TooManyNameBytes,
}

/// The extent of a symbol from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The size in bytes. A symbol of size zero covers no address.
    Size(u64),
    /// No size: up to the next start of any symbol, at most to this address (exclusive).
    Until(u64),
}

/// A symbol to add to a table.
#[derive(Debug, Clone, Copy)]
pub struct SymbolEntry<'a> {
    /// First address.
    pub start: u64,
    /// The extent from `start`.
    pub extent: Extent,
    /// The name as its source contains it, not demangled.
    pub name: &'a [u8],
    /// The preference among symbols of one start: the lowest rank wins.
    pub rank: u32,
    /// A value for the caller, which lookups return.
    pub tag: u32,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: SymbolRow,
    rank: u32,
    /// Number of symbols that were added before.
    order: u32,
}

/// Builder of a [`SymbolTable`]. Symbols may be added in any order.
#[derive(Debug, Default)]
pub struct SymbolTableBuilder {
    candidates: Vec<Candidate>,
    names: Vec<u8>,
}

impl SymbolTableBuilder {
    /// Creates an empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns whether the builder has no symbols.
    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Adds a symbol. An end after the last address is limited to it.
    ///
    /// # Errors
    /// The symbol exceeds [`MAX_SYMBOLS`] or [`MAX_NAME_BYTES`].
    pub fn add(&mut self, entry: SymbolEntry<'_>) -> Result<(), TableError> {
        let name_start = self.names.len();
        self.add_named_at(name_start, entry)?;
        self.names.extend_from_slice(entry.name);
        Ok(())
    }

    /// Adds a symbol whose name is at an offset of the names for [`SymbolTableBuilder::set_names`].
    ///
    /// # Errors
    /// The symbol exceeds [`MAX_SYMBOLS`] or [`MAX_NAME_BYTES`].
    pub(crate) fn add_named_at(
        &mut self,
        name_start: usize,
        entry: SymbolEntry<'_>,
    ) -> Result<(), TableError> {
        if self.candidates.len() >= MAX_SYMBOLS {
            return Err(TableError::TooManySymbols);
        }
        if name_start.saturating_add(entry.name.len()) > MAX_NAME_BYTES {
            return Err(TableError::TooManyNameBytes);
        }
        let too_big = |_| TableError::TooManyNameBytes;
        let (is_sized, end) = match entry.extent {
            Extent::Size(size) => (true, entry.start.saturating_add(size)),
            Extent::Until(limit) => (false, limit),
        };
        let row = SymbolRow {
            start: entry.start,
            end,
            name_start: u32::try_from(name_start).map_err(too_big)?,
            name_len: u32::try_from(entry.name.len()).map_err(too_big)?,
            is_sized,
            tag: entry.tag,
        };
        self.candidates.push(Candidate {
            row,
            rank: entry.rank,
            order: self.candidates.len() as u32, // MAX_SYMBOLS fits
        });
        Ok(())
    }

    /// Sets the names of the symbols that were added by offset.
    ///
    /// The names of a large table are moved instead of copied.
    pub(crate) fn set_names(&mut self, names: Vec<u8>) {
        self.names = names;
    }

    /// Builds the table: sorts, resolves overlaps and drops symbols that no lookup returns.
    #[must_use]
    pub fn finish(mut self) -> SymbolTable {
        // The preferred symbol of equal starts is last, so that `Sweep` has it on top of its stack.
        self.candidates.sort_unstable_by_key(|candidate| {
            let Candidate { row, rank, order } = candidate;
            (row.start, Reverse(*rank), Reverse(*order))
        });
        end_open_endedat_next_start(&mut self.candidates);
        let mut sweep = Sweep {
            candidates: &self.candidates,
            span_starts: Vec::new(),
            spans: Vec::new(),
        };
        sweep.run();
        let (span_starts, mut spans) = (sweep.span_starts, sweep.spans);
        let rows = rows_in_use(self.candidates, &mut spans);
        SymbolTable {
            span_starts,
            spans,
            rows,
            names: self.names,
        }
    }
}

fn end_open_endedat_next_start(candidates: &mut [Candidate]) {
    let mut next = u64::MAX;
    let mut current = u64::MAX;
    for candidate in candidates.iter_mut().rev() {
        if candidate.row.start != current {
            next = current;
            current = candidate.row.start;
        }
        if !candidate.row.is_sized {
            candidate.row.end = candidate.row.end.min(next);
        }
    }
}

/// A sweep over the starts in ascending order.
///
/// Candidates are in the order of rules 2 to 4 of [`SymbolTable`]. Of the sized ones that start
/// before an address, the last one that has not ended wins: it is on top of a stack.
struct Sweep<'a> {
    candidates: &'a [Candidate],
    /// The spans of the table, but with indices of candidates instead of rows.
    span_starts: Vec<u64>,
    spans: Vec<(u64, u32)>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let (mut sized, mut open_ended) = (Vec::new(), Vec::new());
        let mut address = 0;
        for (index, candidate) in self.candidates.iter().enumerate() {
            address = self.emit(address, candidate.row.start, &mut sized, &mut open_ended);
            let stack = if candidate.row.is_sized {
                &mut sized
            } else {
                &mut open_ended
            };
            stack.push(index);
        }
        self.emit(address, u64::MAX, &mut sized, &mut open_ended);
    }

    /// Emits the winners of `from..to`, in which no symbol starts. Returns `to`.
    fn emit(
        &mut self,
        from: u64,
        to: u64,
        sized: &mut Vec<usize>,
        open_ended: &mut Vec<usize>,
    ) -> u64 {
        let mut address = from;
        while address < to {
            let top = self
                .pop_ended(sized, address)
                .or_else(|| self.pop_ended(open_ended, address));
            let Some((candidate, end)) = top else { break };
            let end = end.min(to);
            let candidate = candidate as u32; // MAX_SYMBOLS fits
            match self.spans.last_mut() {
                Some(last) if *last == (address, candidate) => last.0 = end,
                _ => {
                    self.span_starts.push(address);
                    self.spans.push((end, candidate));
                }
            }
            address = end;
        }
        to
    }

    /// Pops candidates that end at or before an address. Returns index and end of the new top.
    fn pop_ended(&self, stack: &mut Vec<usize>, address: u64) -> Option<(usize, u64)> {
        while let Some(&index) = stack.last() {
            match self.candidates.get(index) {
                Some(candidate) if candidate.row.end > address => {
                    return Some((index, candidate.row.end));
                }
                _ => stack.pop(),
            };
        }
        None
    }
}

/// Returns the rows that spans refer to, sorted by start, and changes the spans to their indices.
///
/// The rows reuse the memory of the candidates, so that a large table is allocated once.
fn rows_in_use(candidates: Vec<Candidate>, spans: &mut [(u64, u32)]) -> Vec<SymbolRow> {
    const UNUSED: u32 = u32::MAX;
    let mut row_indices = vec![UNUSED; candidates.len()];
    for (_, candidate) in spans.iter() {
        if let Some(row) = row_indices.get_mut(*candidate as usize) {
            *row = 0;
        }
    }
    let used = row_indices.iter_mut().filter(|row| **row != UNUSED);
    for (index, row) in (0..).zip(used) {
        *row = index;
    }
    for (_, index) in spans {
        *index = row_indices.get(*index as usize).copied().unwrap_or(UNUSED);
    }
    let used = candidates.into_iter().zip(row_indices);
    let used = used.filter(|(_, row)| *row != UNUSED);
    let mut rows: Vec<_> = used.map(|(candidate, _)| candidate.row).collect();
    rows.shrink_to_fit();
    rows
}
