//! Addresses to names: a sorted table built once, then only read.

use thiserror::Error;

/// Most symbols one table takes; Chromium with full symbols has 1.5 million.
pub const MAX_SYMBOLS: usize = 1 << 22;
/// Most bytes of names one table takes; the same Chromium has 120 MB of them.
pub const MAX_NAME_BYTES: usize = 256 << 20;

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
pub struct Entry<'a> {
    /// First address.
    pub start: u64,
    /// How far it reaches.
    pub extent: Extent,
    /// The name as its source wrote it, not demangled.
    pub name: &'a [u8],
    /// Among symbols of one start the lowest rank wins.
    pub rank: u8,
    /// A number of the caller's own, handed back by lookups.
    pub tag: u32,
}

/// A symbol found in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// First address, also where another symbol hides the beginning: offsets count from here.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The name as its source wrote it.
    pub name: &'a [u8],
    /// The number given to [`Entry::tag`].
    pub tag: u32,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    end: u64,
    name_start: u32,
    name_len: u32,
    tag: u32,
}

/// Names by address. Of the symbols that cover an address, [`SymbolTable::lookup`] gives
///
/// 1. one with a size before one without: a label in the middle of a function does not take its name;
/// 2. the greatest start, so the inner of two nested symbols, the later of two that overlap;
/// 3. the lowest rank; 4. the one added first.
///
/// ```text
/// symbols   |---- outer ----------------|        |-- f (no size) ..........| limit
///                 |--- inner ---|                         |-- g --|
/// lookup    outer  inner         outer   (none)   f        g       (none)
/// ```
/// A symbol that wins nowhere is not kept.
#[derive(Debug, Default)]
pub struct SymbolTable {
    // Parallel: span i is [span_starts[i], spans[i].0) and belongs to rows[spans[i].1].
    span_starts: Vec<u64>,
    spans: Vec<(u64, u32)>,
    rows: Vec<Row>,
    names: Vec<u8>,
}

impl SymbolTable {
    /// The symbol at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let after = self.span_starts.partition_point(|&start| start <= address);
        let &(end, row) = self.spans.get(after.checked_sub(1)?)?;
        (address < end).then(|| self.symbol(self.rows.get(row as usize)))?
    }

    /// Number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there is no symbol at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All symbols by start.
    pub fn iter(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.rows.iter().filter_map(|row| self.symbol(Some(row)))
    }

    fn symbol(&self, row: Option<&Row>) -> Option<Symbol<'_>> {
        let row = row?;
        let name = self.names.get(row.name_start as usize..)?;
        Some(Symbol {
            start: row.start,
            end: row.end,
            name: name.get(..row.name_len as usize)?,
            tag: row.tag,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Candidate {
    row: Row,
    sized: bool,
    rank: u8,
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

    /// Adds a symbol. An end behind the last address is cut to it.
    ///
    /// # Errors
    /// The table is full: [`MAX_SYMBOLS`], [`MAX_NAME_BYTES`].
    pub fn add(&mut self, entry: Entry<'_>) -> Result<(), TableError> {
        if self.candidates.len() >= MAX_SYMBOLS {
            return Err(TableError::TooManySymbols);
        }
        let name_end = self.names.len().saturating_add(entry.name.len());
        if name_end > MAX_NAME_BYTES {
            return Err(TableError::TooManyNameBytes);
        }
        let too_big = |_| TableError::TooManyNameBytes;
        let (sized, end) = match entry.extent {
            Extent::Size(size) => (true, entry.start.saturating_add(size)),
            Extent::Until(limit) => (false, limit),
        };
        let row = Row {
            start: entry.start,
            end,
            name_start: u32::try_from(self.names.len()).map_err(too_big)?,
            name_len: u32::try_from(entry.name.len()).map_err(too_big)?,
            tag: entry.tag,
        };
        self.names.extend_from_slice(entry.name);
        self.candidates.push(Candidate { row, sized, rank: entry.rank });
        Ok(())
    }

    /// Sorts, cuts the overlaps, drops what no lookup can reach.
    #[must_use]
    pub fn finish(mut self) -> SymbolTable {
        // Best last among equal starts, so that the best ends up on top of its stack below.
        self.candidates.reverse();
        self.candidates.sort_by(|a, b| a.row.start.cmp(&b.row.start).then(b.rank.cmp(&a.rank)));
        end_sizelessat_next_start(&mut self.candidates);
        let mut sweep = Sweep { candidates: &self.candidates, spans: Vec::new() };
        sweep.run();
        build(&self.candidates, &sweep.spans, &self.names)
    }
}

fn end_sizelessat_next_start(candidates: &mut [Candidate]) {
    let mut next = u64::MAX;
    let mut this = u64::MAX;
    for candidate in candidates.iter_mut().rev() {
        if candidate.row.start != this {
            next = this;
            this = candidate.row.start;
        }
        if !candidate.sized {
            candidate.row.end = candidate.row.end.min(next);
        }
    }
}

struct Span {
    start: u64,
    end: u64,
    candidate: usize,
}

/// Goes over the starts from low to high. Candidates come in the order of rule 2 to 4, so of those with a
/// size that began before an address the winner is the last one not yet ended: the top of a stack.
struct Sweep<'a> {
    candidates: &'a [Candidate],
    spans: Vec<Span>,
}

impl Sweep<'_> {
    fn run(&mut self) {
        let (mut sized, mut sizeless) = (Vec::new(), Vec::new());
        let mut at = 0;
        for (index, candidate) in self.candidates.iter().enumerate() {
            at = self.emit(at, candidate.row.start, &mut sized, &mut sizeless);
            if candidate.sized { &mut sized } else { &mut sizeless }.push(index);
        }
        self.emit(at, u64::MAX, &mut sized, &mut sizeless);
    }

    /// Emits the winners of `from..to`, in which no symbol starts; returns `to`.
    fn emit(&mut self, from: u64, to: u64, sized: &mut Vec<usize>, sizeless: &mut Vec<usize>) -> u64 {
        let mut at = from;
        while at < to {
            let top = self.live_top(sized, at).or_else(|| self.live_top(sizeless, at));
            let Some((candidate, end)) = top else { break };
            let end = end.min(to);
            match self.spans.last_mut() {
                Some(last) if last.candidate == candidate && last.end == at => last.end = end,
                _ => self.spans.push(Span { start: at, end, candidate }),
            }
            at = end;
        }
        to
    }

    fn live_top(&self, stack: &mut Vec<usize>, at: u64) -> Option<(usize, u64)> {
        while let Some(&index) = stack.last() {
            match self.candidates.get(index) {
                Some(candidate) if candidate.row.end > at => return Some((index, candidate.row.end)),
                _ => stack.pop(),
            };
        }
        None
    }
}

/// Copies the rows and names in use, in order of start.
fn build(candidates: &[Candidate], spans: &[Span], names: &[u8]) -> SymbolTable {
    const UNUSED: u32 = u32::MAX;
    let mut row_of = vec![UNUSED; candidates.len()];
    for span in spans {
        if let Some(row) = row_of.get_mut(span.candidate) {
            *row = 0;
        }
    }
    let mut table = SymbolTable::default();
    for (candidate, row_of) in candidates.iter().zip(&mut row_of) {
        let mut row = candidate.row;
        let name = names.get(row.name_start as usize..).and_then(|from| from.get(..row.name_len as usize));
        if let (Some(name), true) = (name, *row_of != UNUSED) {
            *row_of = table.rows.len() as u32; // MAX_SYMBOLS fits
            row.name_start = table.names.len() as u32; // MAX_NAME_BYTES fits
            table.names.extend_from_slice(name);
            table.rows.push(row);
        }
    }
    for span in spans {
        if let Some(&row) = row_of.get(span.candidate) {
            table.span_starts.push(span.start);
            table.spans.push((span.end, row));
        }
    }
    table.shrink_to_fit();
    table
}

impl SymbolTable {
    fn shrink_to_fit(&mut self) {
        self.span_starts.shrink_to_fit();
        self.spans.shrink_to_fit();
        self.rows.shrink_to_fit();
        self.names.shrink_to_fit();
    }
}

const _: () = assert!(MAX_SYMBOLS < u32::MAX as usize && MAX_NAME_BYTES < u32::MAX as usize);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn table(entries: &[(u64, Extent, u8)]) -> SymbolTable {
        let mut builder = SymbolTableBuilder::new();
        for (tag, &(start, extent, rank)) in entries.iter().enumerate() {
            let name = format!("s{tag}");
            builder.add(Entry { start, extent, name: name.as_bytes(), rank, tag: tag as u32 }).unwrap();
        }
        builder.finish()
    }

    fn tag_at(table: &SymbolTable, address: u64) -> Option<u32> {
        table.lookup(address).map(|symbol| symbol.tag)
    }

    /// The rules of [`SymbolTable`], word by word.
    fn naive(entries: &[(u64, Extent, u8)], address: u64) -> Option<usize> {
        let next_start = |start| entries.iter().map(|e| e.0).filter(|&s| s > start).min().unwrap_or(u64::MAX);
        let covering = entries.iter().enumerate().filter(|(_, (start, extent, _))| {
            let end = match *extent {
                Extent::Size(size) => start.saturating_add(size),
                Extent::Until(limit) => limit.min(next_start(*start)),
            };
            (*start..end).contains(&address)
        });
        covering
            .min_by_key(|(index, (start, extent, rank))| {
                let sizeless = matches!(extent, Extent::Until(_));
                (sizeless, std::cmp::Reverse(*start), *rank, *index)
            })
            .map(|(index, _)| index)
    }

    #[test]
    fn the_inner_symbol_wins_and_the_outer_resumes() {
        let table = table(&[(10, Extent::Size(20), 0), (15, Extent::Size(5), 0)]);
        let seen = [9, 10, 14, 15, 19, 20, 29, 30].map(|address| tag_at(&table, address));
        assert_eq!(seen, [None, Some(0), Some(0), Some(1), Some(1), Some(0), Some(0), None]);
        assert_eq!(table.lookup(25).unwrap(), Symbol { start: 10, end: 30, name: b"s0", tag: 0 });
    }

    #[test]
    fn a_symbol_without_size_ends_at_the_next_start_or_its_limit() {
        let table = table(&[(10, Extent::Until(100), 0), (20, Extent::Size(4), 0), (30, Extent::Until(40), 0)]);
        assert_eq!([19, 20, 24, 39, 40].map(|a| tag_at(&table, a)), [Some(0), Some(1), None, Some(2), None]);
        assert_eq!(table.lookup(10).unwrap().end, 20);
    }

    #[test]
    fn a_label_without_size_does_not_take_its_functions_name() {
        let table = table(&[(10, Extent::Size(20), 1), (15, Extent::Until(100), 0)]);
        assert_eq!([16, 30].map(|a| tag_at(&table, a)), [Some(0), Some(1)]);
    }

    #[test]
    fn of_aliases_the_lowest_rank_wins_and_the_others_go() {
        let table = table(&[(10, Extent::Size(5), 2), (10, Extent::Size(5), 1), (10, Extent::Size(5), 1)]);
        assert_eq!((tag_at(&table, 12), table.len()), (Some(1), 1));
    }

    #[test]
    fn an_end_past_the_last_address_is_cut() {
        let table = table(&[(u64::MAX - 1, Extent::Size(u64::MAX), 0)]);
        assert_eq!(tag_at(&table, u64::MAX - 1), Some(0));
        assert_eq!(tag_at(&table, u64::MAX), None);
    }

    fn extent() -> impl Strategy<Value = Extent> {
        prop_oneof![(0..40u64).prop_map(Extent::Size), (0..130u64).prop_map(Extent::Until)]
    }

    proptest! {
        #[test]
        fn lookup_equals_a_naive_scan(entries in prop::collection::vec((0..100u64, extent(), 0..3u8), 0..40)) {
            let table = table(&entries);
            for address in 0..150 {
                prop_assert_eq!(tag_at(&table, address), naive(&entries, address).map(|i| i as u32), "at {}", address);
            }
            prop_assert!(table.iter().map(|s| s.start).is_sorted());
        }
    }
}
