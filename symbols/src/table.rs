//! Sorted, immutable tables of symbols, looked up by address.
//!
//! ```
//! use perfcollect_symbols::table::{Extent, SymbolEntry, SymbolTableBuilder};
//!
//! let mut builder = SymbolTableBuilder::new();
//! let extent = Extent::Size(0x20);
//! builder.add(SymbolEntry { start: 0x1000, extent, name: b"main", rank: 0, tag: 0 })?;
//! let table = builder.finish();
//! assert_eq!(table.lookup(0x101f).map(|symbol| symbol.name), Some(&b"main"[..]));
//! assert_eq!(table.lookup(0x1020), None);
//! # Ok::<(), perfcollect_symbols::table::TableError>(())
//! ```

mod builder;

pub use builder::{
    Extent, MAX_NAME_BYTES, MAX_SYMBOLS, SymbolEntry, SymbolTableBuilder, TableError,
};

/// A symbol of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// First address, also if another symbol covers it. Offsets are relative to this address.
    pub start: u64,
    /// Exclusive end.
    pub end: u64,
    /// The name as its source contains it, not demangled.
    pub name: &'a [u8],
    /// Whether the source has a size. Else the symbol ends at the next symbol or before.
    pub is_sized: bool,
    /// The value of [`SymbolEntry::tag`].
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

/// Symbols by address. Of several symbols at an address, [`SymbolTable::lookup`] prefers
///
/// 1. a sized symbol to an unsized one: a label inside a function does not hide the function;
/// 2. the greatest start: the inner of two nested symbols, the later of two that overlap;
/// 3. the lowest rank;
/// 4. the symbol that was added first.
///
/// ```text
/// symbols   |---- outer ----------------|        |-- f (no size) ..........| limit
///                 |--- inner ---|                         |-- g --|
/// lookup    outer  inner         outer   (none)   f        g       (none)
/// ```
/// The table drops a symbol that is preferred at no address.
#[derive(Debug, Default)]
pub struct SymbolTable {
    // Parallel vectors: span i is [span_starts[i], spans[i].0) and refers to rows[spans[i].1].
    span_starts: Vec<u64>,
    spans: Vec<(u64, u32)>,
    rows: Vec<SymbolRow>,
    names: Vec<u8>,
}

impl SymbolTable {
    /// Returns the symbol at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        let after = self.span_starts.partition_point(|&start| start <= address);
        let &(end, row) = self.spans.get(after.checked_sub(1)?)?;
        (address < end).then(|| self.symbol(self.rows.get(row as usize)))?
    }

    /// Returns the number of symbols.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns whether there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Returns all symbols, sorted by start.
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

    /// The rules of [`SymbolTable`], implemented as a scan.
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
    fn inner_symbol_hides_the_outer_one_up_to_its_end() {
        let table = table(&[(10, Extent::Size(20), 0), (15, Extent::Size(5), 0)]);
        let tags = [9, 10, 14, 15, 19, 20, 29, 30].map(|address| tag_at(&table, address));
        assert_eq!(
            tags,
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
    fn unsized_symbol_ends_at_the_next_start_or_its_limit() {
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
    fn unsized_label_does_not_hide_its_function() {
        let table = table(&[(10, Extent::Size(20), 1), (15, Extent::Until(100), 0)]);
        assert_eq!([16, 30].map(|a| tag_at(&table, a)), [Some(0), Some(1)]);
    }

    #[test]
    fn lowest_rank_of_aliases_wins_and_the_others_are_dropped() {
        let table = table(&[
            (10, Extent::Size(5), 2),
            (10, Extent::Size(5), 1),
            (10, Extent::Size(5), 1),
        ]);
        assert_eq!((tag_at(&table, 12), table.len()), (Some(1), 1));
    }

    #[test]
    fn end_after_the_last_address_is_limited() {
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
