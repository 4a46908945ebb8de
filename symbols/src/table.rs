//! Addresses to names: a sorted table built once, then only read.

mod builder;

pub use builder::{
    Extent, MAX_NAME_BYTES, MAX_SYMBOLS, SymbolEntry, SymbolTableBuilder, TableError,
};

/// A symbol found in a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// First address, also where another symbol hides the beginning: offsets count from here.
    pub start: u64,
    /// First address behind it.
    pub end: u64,
    /// The name as its source wrote it.
    pub name: &'a [u8],
    /// Whether its source gave a size; else it ends where the next symbol starts, or before.
    pub is_sized: bool,
    /// The number given to [`SymbolEntry::tag`].
    pub tag: u32,
}

#[derive(Debug, Clone, Copy)]
struct SymbolRow {
    start: u64,
    end: u64,
    name_start: u32,
    name_len: u32,
    is_sized: bool,
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
    rows: Vec<SymbolRow>,
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

    fn symbol(&self, row: Option<&SymbolRow>) -> Option<Symbol<'_>> {
        let row = row?;
        let name = self.names.get(row.name_start as usize..)?;
        Some(Symbol {
            start: row.start,
            end: row.end,
            name: name.get(..row.name_len as usize)?,
            is_sized: row.is_sized,
            tag: row.tag,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use proptest::prelude::*;

    fn table(entries: &[(u64, Extent, u32)]) -> SymbolTable {
        let mut builder = SymbolTableBuilder::new();
        for (tag, &(start, extent, rank)) in entries.iter().enumerate() {
            let name = format!("s{tag}");
            builder
                .add(SymbolEntry {
                    start,
                    extent,
                    name: name.as_bytes(),
                    rank,
                    tag: tag as u32,
                })
                .unwrap();
        }
        builder.finish()
    }

    fn tag_at(table: &SymbolTable, address: u64) -> Option<u32> {
        table.lookup(address).map(|symbol| symbol.tag)
    }

    /// The rules of [`SymbolTable`], word by word.
    fn naive(entries: &[(u64, Extent, u32)], address: u64) -> Option<usize> {
        let next_start = |start| {
            entries
                .iter()
                .map(|e| e.0)
                .filter(|&s| s > start)
                .min()
                .unwrap_or(u64::MAX)
        };
        let covering = entries
            .iter()
            .enumerate()
            .filter(|(_, (start, extent, _))| {
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
        assert_eq!(
            seen,
            [
                None,
                Some(0),
                Some(0),
                Some(1),
                Some(1),
                Some(0),
                Some(0),
                None
            ]
        );
        assert_eq!(
            table.lookup(25).unwrap(),
            Symbol {
                start: 10,
                end: 30,
                name: b"s0",
                is_sized: true,
                tag: 0
            }
        );
    }

    #[test]
    fn a_symbol_without_size_ends_at_the_next_start_or_its_limit() {
        let table = table(&[
            (10, Extent::Until(100), 0),
            (20, Extent::Size(4), 0),
            (30, Extent::Until(40), 0),
        ]);
        assert_eq!(
            [19, 20, 24, 39, 40].map(|a| tag_at(&table, a)),
            [Some(0), Some(1), None, Some(2), None]
        );
        assert_eq!(table.lookup(10).unwrap().end, 20);
    }

    #[test]
    fn a_label_without_size_does_not_take_its_functions_name() {
        let table = table(&[(10, Extent::Size(20), 1), (15, Extent::Until(100), 0)]);
        assert_eq!([16, 30].map(|a| tag_at(&table, a)), [Some(0), Some(1)]);
    }

    #[test]
    fn of_aliases_the_lowest_rank_wins_and_the_others_go() {
        let table = table(&[
            (10, Extent::Size(5), 2),
            (10, Extent::Size(5), 1),
            (10, Extent::Size(5), 1),
        ]);
        assert_eq!((tag_at(&table, 12), table.len()), (Some(1), 1));
    }

    #[test]
    fn an_end_past_the_last_address_is_cut() {
        let table = table(&[(u64::MAX - 1, Extent::Size(u64::MAX), 0)]);
        assert_eq!(tag_at(&table, u64::MAX - 1), Some(0));
        assert_eq!(tag_at(&table, u64::MAX), None);
    }

    fn extent() -> impl Strategy<Value = Extent> {
        prop_oneof![
            (0..40u64).prop_map(Extent::Size),
            (0..130u64).prop_map(Extent::Until)
        ]
    }

    proptest! {
        #[test]
        fn lookup_equals_a_naive_scan(entries in prop::collection::vec((0..100u64, extent(), 0..3u32), 0..40)) {
            let table = table(&entries);
            for address in 0..150 {
                prop_assert_eq!(tag_at(&table, address), naive(&entries, address).map(|i| i as u32), "at {}", address);
            }
            prop_assert!(table.iter().map(|s| s.start).is_sorted());
        }
    }
}
