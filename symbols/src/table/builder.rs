//! Symbols in any order to a table: sorts, cuts the overlaps, ends what has no size.

use std::cmp::Reverse;

use thiserror::Error;

use super::{SymbolRow, SymbolTable};

/// Most symbols one table takes; Chromium with full symbols has 1.5 million.
pub const MAX_SYMBOLS: usize = 1 << 22;
/// Most bytes of names one table takes; the same Chromium has 120 MB of them.
pub const MAX_NAME_BYTES: usize = 256 << 20;

const _: () = assert!(MAX_SYMBOLS < u32::MAX as usize);
const _: () = assert!(MAX_NAME_BYTES < u32::MAX as usize);

/// Why a table could not take another symbol.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TableError {
    /// The symbol would have been number `MAX_SYMBOLS + 1`.
    #[error("symbol table: more than {MAX_SYMBOLS} symbols")]
    TooManySymbols,
    /// The names together would pass `MAX_NAME_BYTES`.
    #[error("symbol table: names of more than {MAX_NAME_BYTES} bytes in all")]
    TooManyNameBytes,
}

/// How far a symbol reaches from its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// That many bytes. Zero covers nothing.
    Size(u64),
    /// The source gave no size: to the next start of any symbol, at most to this address (exclusive).
    Until(u64),
}

/// A symbol on its way into a table.
#[derive(Debug, Clone, Copy)]
pub struct SymbolEntry<'a> {
    /// First address.
    pub start: u64,
    /// How far it reaches.
    pub extent: Extent,
    /// The name as its source wrote it, not demangled.
    pub name: &'a [u8],
    /// Among symbols of one start the lowest rank wins.
    pub rank: u32,
    /// A number of the caller's own, handed back by lookups.
    pub tag: u32,
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: SymbolRow,
    rank: u32,
    /// How many were added before it.
    order: u32,
}

/// Collects symbols in any order. The rules for overlaps and missing sizes are those of [`SymbolTable`].
#[derive(Debug, Default)]
pub struct SymbolTableBuilder {
    candidates: Vec<Candidate>,
    names: Vec<u8>,
}

impl SymbolTableBuilder {
    /// An empty builder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing was added.
    pub(crate) fn is_empty(&self) -> bool {
        self.candidates.is_empty()
    }

    /// Adds a symbol. An end behind the last address is cut to it.
    ///
    /// # Errors
    /// The table is full: [`MAX_SYMBOLS`], [`MAX_NAME_BYTES`].
    pub fn add(&mut self, entry: SymbolEntry<'_>) -> Result<(), TableError> {
        let name_start = self.names.len();
        self.add_named_at(name_start, entry)?;
        self.names.extend_from_slice(entry.name);
        Ok(())
    }

    /// Adds a symbol whose name is at this place of the names that are given with [`SymbolTableBuilder::set_names`], later.
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

    /// Takes the names of the symbols added so far, where they were added by the place of their name: a large table's names are not copied.
    pub(crate) fn set_names(&mut self, names: Vec<u8>) {
        self.names = names;
    }

    /// Sorts, cuts the overlaps, drops what no lookup can reach.
    #[must_use]
    pub fn finish(mut self) -> SymbolTable {
        // Best last among equal starts, so that the best ends up on top of its stack below.
        self.candidates
            .sort_unstable_by_key(|one| (one.row.start, Reverse(one.rank), Reverse(one.order)));
        end_sizeless_at_next_start(&mut self.candidates);
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

fn end_sizeless_at_next_start(candidates: &mut [Candidate]) {
    let mut next = u64::MAX;
    let mut this = u64::MAX;
    for candidate in candidates.iter_mut().rev() {
        if candidate.row.start != this {
            next = this;
            this = candidate.row.start;
        }
        if !candidate.row.is_sized {
            candidate.row.end = candidate.row.end.min(next);
        }
    }
}

/// Goes over the starts from low to high. Candidates come in the order of rule 2 to 4, so of those with a
/// size that began before an address the winner is the last one not yet ended: the top of a stack.
struct Sweep<'a> {
    candidates: &'a [Candidate],
    /// As the table's own, but for candidates in place of rows.
    span_starts: Vec<u64>,
    spans: Vec<(u64, u32)>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let (mut sized, mut sizeless) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (index, candidate) in self.candidates.iter().enumerate() {
            at = self.emit(at, candidate.row.start, &mut sized, &mut sizeless);
            let stack = if candidate.row.is_sized {
                &mut sized
            } else {
                &mut sizeless
            };
            stack.push(index);
        }
        self.emit(at, u64::MAX, &mut sized, &mut sizeless);
    }

    /// Emits the winners of `from..to`, in which no symbol starts; returns `to`.
    fn emit(
        &mut self,
        from: u64,
        to: u64,
        sized: &mut Vec<usize>,
        sizeless: &mut Vec<usize>,
    ) -> u64 {
        let mut at = from;
        while at < to {
            let top = self
                .live_top(sized, at)
                .or_else(|| self.live_top(sizeless, at));
            let Some((candidate, end)) = top else { break };
            let end = end.min(to);
            let candidate = candidate as u32; // MAX_SYMBOLS fits
            match self.spans.last_mut() {
                Some(last) if *last == (at, candidate) => last.0 = end,
                _ => {
                    self.span_starts.push(at);
                    self.spans.push((end, candidate));
                }
            }
            at = end;
        }
        to
    }

    fn live_top(&self, stack: &mut Vec<usize>, at: u64) -> Option<(usize, u64)> {
        while let Some(&index) = stack.last() {
            match self.candidates.get(index) {
                Some(candidate) if candidate.row.end > at => {
                    return Some((index, candidate.row.end));
                }
                _ => stack.pop(),
            };
        }
        None
    }
}

/// The rows that spans lead to, in order of start. A large table is built once in its memory: the rows take that of the candidates.
fn rows_in_use(candidates: Vec<Candidate>, spans: &mut [(u64, u32)]) -> Vec<SymbolRow> {
    const UNUSED: u32 = u32::MAX;
    let mut row_of = vec![UNUSED; candidates.len()];
    for (_, candidate) in spans.iter() {
        if let Some(row) = row_of.get_mut(*candidate as usize) {
            *row = 0;
        }
    }
    let used = row_of.iter_mut().filter(|row| **row != UNUSED);
    for (number, row) in (0..).zip(used) {
        *row = number;
    }
    for (_, place) in spans {
        *place = row_of.get(*place as usize).copied().unwrap_or(UNUSED);
    }
    let used = candidates.into_iter().zip(row_of);
    let used = used.filter(|(_, row)| *row != UNUSED);
    let mut rows: Vec<_> = used.map(|(candidate, _)| candidate.row).collect();
    rows.shrink_to_fit();
    rows
}
