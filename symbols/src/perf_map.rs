//! `/tmp/perf-PID.map`: names that a runtime writes for the code it generates.
//!
//! One function a line, `START SIZE NAME`, both numbers hexadecimal, with `0x` (.NET 8 and later) or without
//! (.NET 3.1, V8, the kernel's own description in tools/perf/Documentation/jit-interface.txt). A name is bytes:
//! it may hold blanks, be empty, and need not be UTF-8; of a long one the first 64 KiB are kept, with `...` behind them. .NET 8 ends some lines with NUL in place of LF.

use std::io::{self, BufRead};

use thiserror::Error;

use crate::latest_wins::LatestWins;
use crate::lines::{Lines, hex, word};
use crate::table::{Symbol, SymbolTable, TableError};

/// Most bytes read; 100 000 .NET methods take 15 MB.
pub const MAX_BYTES: u64 = 512 << 20;

/// Why a perf map gave no names.
#[derive(Debug, Error)]
pub enum PerfMapError {
    /// Reading failed.
    #[error("perf map: reading: {0}")]
    Read(#[from] io::Error),
    /// The table refused a symbol.
    #[error("perf map: {0}")]
    Table(#[from] TableError),
}

/// The names of a perf map. There are no unload lines and code memory is used again, so a line replaces
/// every older one that it overlaps.
#[derive(Debug, Default)]
pub struct PerfMap {
    table: SymbolTable,
    /// Lines that were not understood, or that cover nothing.
    pub skipped: u64,
    /// Whether the file had more than a limit lets in, so that its newest lines are missing.
    pub truncated: bool,
}

impl PerfMap {
    /// Reads a map. An open last line counts: the writer may be alive.
    ///
    /// # Errors
    /// Reading failed. A map over the limits is no error: [`PerfMap::truncated`].
    pub fn read(input: impl BufRead) -> Result<Self, PerfMapError> {
        Self::read_into(LatestWins::default(), input)
    }

    /// Reads only what names these addresses; other addresses must not be looked up. A capture has some hundred
    /// addresses in code made at run time, a large service's map some hundred thousand lines.
    ///
    /// # Errors
    /// As [`PerfMap::read`].
    pub fn read_for(input: impl BufRead, addresses: &[u64]) -> Result<Self, PerfMapError> {
        Self::read_into(LatestWins::for_addresses(addresses), input)
    }

    fn read_into(mut newest: LatestWins, input: impl BufRead) -> Result<Self, PerfMapError> {
        let mut lines = Lines::new(input, MAX_BYTES);
        let mut skipped = 0;
        let mut full = false;
        while let Some(line) = lines.next()? {
            match parse_line(line) {
                Some((start, end, name)) => full = !newest.insert(start, end, name),
                None => skipped += 1,
            }
            if full {
                break;
            }
        }
        Ok(Self {
            table: newest.into_table()?,
            skipped,
            truncated: full || lines.is_truncated(),
        })
    }

    /// The function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.table.lookup(address)
    }

    /// All functions.
    #[must_use]
    pub fn table(&self) -> &SymbolTable {
        &self.table
    }
}

fn parse_line(text: &[u8]) -> Option<(u64, u64, &[u8])> {
    let number = |word: &[u8]| {
        hex(word
            .strip_prefix(b"0x")
            .or(word.strip_prefix(b"0X"))
            .unwrap_or(word))
    };
    let (start, rest) = word(text)?;
    let (size, name) = word(rest).unwrap_or((rest, b""));
    let start = number(start)?;
    let end = start.checked_add(number(size)?)?;
    (start < end).then_some((start, end, name))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use crate::lines::MAX_LINE_BYTES;
    use proptest::prelude::*;

    fn name_at(map: &PerfMap, address: u64) -> Option<String> {
        map.lookup(address)
            .map(|symbol| String::from_utf8_lossy(symbol.name).into_owned())
    }

    #[test]
    fn both_number_styles_nul_ends_and_blanks_in_names() {
        let text: &[u8] = b"00007FE414462090 27b int32 [app] Program::Main(string[])[Optimized]\n\
0x7fc155e42320 44 void [app] P::A()[QuickJitted]\x000x7fc155e42400 10 \xff\xfe name\n0x7fc155e42500 8 tail";
        let map = PerfMap::read(text).unwrap();
        assert_eq!(
            name_at(&map, 0x7fe4_1446_230a).unwrap(),
            "int32 [app] Program::Main(string[])[Optimized]"
        );
        assert_eq!(
            name_at(&map, 0x7fc1_55e4_2363).unwrap(),
            "void [app] P::A()[QuickJitted]"
        );
        assert_eq!(map.lookup(0x7fc1_55e4_2400).unwrap().name, b"\xff\xfe name");
        assert_eq!(name_at(&map, 0x7fc1_55e4_2507).unwrap(), "tail");
        assert_eq!(
            (map.table().len(), map.skipped, map.truncated),
            (4, 0, false)
        );
    }

    #[test]
    fn a_later_line_removes_the_older_ones_it_overlaps() {
        let text: &[u8] =
            b"1000 100 old\n1100 100 kept\n10f0 10 new\n1200 10 a\n1210 10 b\n1208 10 ab\n";
        let map = PerfMap::read(text).unwrap();
        let names =
            [0x1000, 0x10f0, 0x1100, 0x1200, 0x1208, 0x1217, 0x1218].map(|a| name_at(&map, a));
        let expected = [
            None,
            Some("new"),
            Some("kept"),
            None,
            Some("ab"),
            Some("ab"),
            None,
        ];
        assert_eq!(names, expected.map(|name| name.map(str::to_owned)));
    }

    #[test]
    fn bad_lines_are_counted() {
        let text: &[u8] = b"\n\0x y z\n1000\n1000 10\n1000 10 \n1000 0 empty\nffffffffffffffff 1 wraps\n1000 1 ok\n";
        let map = PerfMap::read(text).unwrap();
        assert_eq!((map.table().len(), map.skipped), (1, 4));
    }

    #[test]
    fn names_may_be_empty_and_long_ones_have_a_mark() {
        let long = "x".repeat(70_000);
        let text = format!("1000 10\n2000 10 \n3000 10 {long}\n4000 10 last\n");
        let map = PerfMap::read(text.as_bytes()).unwrap();
        assert_eq!((map.table().len(), map.skipped), (4, 0));
        assert_eq!(name_at(&map, 0x1008).unwrap(), "");
        assert_eq!(name_at(&map, 0x2008).unwrap(), "");
        let cut = name_at(&map, 0x3008).unwrap();
        assert_eq!(cut.len(), MAX_LINE_BYTES - "3000 10 ".len() + 3);
        assert!(cut.ends_with("xx..."));
    }

    proptest! {
        #[test]
        fn newest_wins(
            lines in prop::collection::vec((0..200u64, 1..30u64), 0..40),
            wanted in prop::collection::vec(0..240u64, 0..10),
        ) {
            let text: String = lines.iter().enumerate().map(|(i, (at, size))| format!("{at:x} {size:x} s{i}\n")).collect();
            let map = PerfMap::read(text.as_bytes()).unwrap();
            let overlaps = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
            let mut kept: Vec<(usize, (u64, u64))> = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                kept.retain(|(_, old)| !overlaps(old, line));
                kept.push((index, *line));
            }
            for address in 0..240 {
                let expected = kept.iter().find(|(_, (at, size))| (*at..at + size).contains(&address));
                prop_assert_eq!(name_at(&map, address), expected.map(|(index, _)| format!("s{index}")));
            }
            let some = PerfMap::read_for(text.as_bytes(), &wanted).unwrap();
            for address in wanted {
                prop_assert_eq!(name_at(&some, address), name_at(&map, address));
            }
        }

        #[test]
        fn never_panics(text in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'f'), any::<u8>()], 0..200)) {
            PerfMap::read(text.as_slice()).unwrap();
        }
    }
}
