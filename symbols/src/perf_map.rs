//! Perf maps, `/tmp/perf-PID.map`: symbols that a runtime writes for its JIT code.
//!
//! Format: [jit-interface.txt][spec]. Each line is one function, `START SIZE NAME`.
//!
//! - Start and size are hexadecimal, with `0x` (.NET 8 and later) or without (.NET 3.1, V8).
//! - A name is a byte string: it may contain blanks, may be empty and need not be UTF-8.
//!   Names of more than 64 KiB are truncated and end with `...`.
//! - .NET 8 ends some lines with NUL instead of LF.
//!
//! ```
//! use perfcollect_symbols::perf_map::PerfMap;
//!
//! let map = PerfMap::read(&b"7f0010 20 void [app] Program::Main()[Optimized]\n"[..])?;
//! let symbol = map.lookup(0x7f_0018).ok_or("no symbol")?;
//! assert_eq!(symbol.name, b"void [app] Program::Main()[Optimized]");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [spec]: https://github.com/torvalds/linux/blob/master/tools/perf/Documentation/jit-interface.txt

use std::io::{self, BufRead};

use thiserror::Error;

use crate::latest_wins::LatestWins;
use crate::lines::{Lines, hex, word};
use crate::table::{Symbol, SymbolTable, TableError};

/// Limit of a perf map, in bytes. 100 000 .NET methods take 15 MB.
pub const MAX_BYTES: u64 = 512 << 20;

/// Why a perf map cannot be used.
#[derive(Debug, Error)]
pub enum PerfMapError {
    /// Reading failed.
    #[error("cannot read perf map: {0}")]
    Read(#[from] io::Error),
    /// The symbols exceed the limits of a table.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// The symbols of a perf map.
///
/// Runtimes reuse code memory, and the format has no unload lines. So a line replaces all older
/// lines that it overlaps.
#[derive(Debug, Default)]
pub struct PerfMap {
    table: SymbolTable,
    /// Number of lines that are malformed or have an empty range.
    pub skipped: u64,
    /// Whether the file exceeds a limit. Its newest lines are missing then.
    pub truncated: bool,
}

impl PerfMap {
    /// Reads a perf map. An unterminated last line is used: the process may still write.
    ///
    /// A map that exceeds a limit sets [`PerfMap::truncated`].
    ///
    /// # Errors
    /// Reading fails.
    pub fn read(input: impl BufRead) -> Result<Self, PerfMapError> {
        Self::read_into(LatestWins::default(), input)
    }

    /// Reads only the symbols of these addresses. Other addresses must not be looked up.
    ///
    /// A capture has some hundred addresses in JIT code, the map of a large service some hundred
    /// thousand lines.
    ///
    /// # Errors
    /// As [`PerfMap::read`].
    pub fn read_for(input: impl BufRead, addresses: &[u64]) -> Result<Self, PerfMapError> {
        Self::read_into(LatestWins::for_addresses(addresses), input)
    }

    fn read_into(mut functions: LatestWins, input: impl BufRead) -> Result<Self, PerfMapError> {
        let mut lines = Lines::new(input, MAX_BYTES);
        let mut skipped = 0;
        let mut full = false;
        while let Some(line) = lines.next()? {
            match parse_line(line) {
                Some((start, end, name)) => full = !functions.insert(start, end, name),
                None => skipped += 1,
            }
            if full {
                break;
            }
        }
        Ok(Self {
            table: functions.into_table()?,
            skipped,
            truncated: full || lines.is_truncated(),
        })
    }

    /// Returns the function at an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<Symbol<'_>> {
        self.table.lookup(address)
    }

    /// Returns all functions.
    #[must_use]
    pub fn table(&self) -> &SymbolTable {
        &self.table
    }
}

fn parse_line(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let hex_value = |word: &[u8]| {
        hex(word
            .strip_prefix(b"0x")
            .or(word.strip_prefix(b"0X"))
            .unwrap_or(word))
    };
    let (start, rest) = word(line)?;
    let (size, name) = word(rest).unwrap_or((rest, b""));
    let start = hex_value(start)?;
    let end = start.checked_add(hex_value(size)?)?;
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
    fn reads_both_number_formats_nul_delimiters_and_blanks_in_names() {
        let input: &[u8] = b"00007FE414462090 27b int32 [app] Program::Main(string[])[Optimized]\n\
0x7fc155e42320 44 void [app] P::A()[QuickJitted]\x000x7fc155e42400 10 \xff\xfe name\n0x7fc155e42500 8 tail";
        let map = PerfMap::read(input).unwrap();
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
    fn later_lines_replace_older_ones_that_they_overlap() {
        let input: &[u8] =
            b"1000 100 old\n1100 100 kept\n10f0 10 new\n1200 10 a\n1210 10 b\n1208 10 ab\n";
        let map = PerfMap::read(input).unwrap();
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
    fn counts_malformed_lines() {
        let input: &[u8] = b"\n\0x y z\n1000\n1000 10\n1000 10 \n1000 0 empty\nffffffffffffffff 1 wraps\n1000 1 ok\n";
        let map = PerfMap::read(input).unwrap();
        assert_eq!((map.table().len(), map.skipped), (1, 4));
    }

    #[test]
    fn accepts_empty_names_and_truncates_long_ones() {
        let long = "x".repeat(70_000);
        let input = format!("1000 10\n2000 10 \n3000 10 {long}\n4000 10 last\n");
        let map = PerfMap::read(input.as_bytes()).unwrap();
        assert_eq!((map.table().len(), map.skipped), (4, 0));
        assert_eq!(name_at(&map, 0x1008).unwrap(), "");
        assert_eq!(name_at(&map, 0x2008).unwrap(), "");
        let truncated = name_at(&map, 0x3008).unwrap();
        assert_eq!(truncated.len(), MAX_LINE_BYTES - "3000 10 ".len() + 3);
        assert!(truncated.ends_with("xx..."));
    }

    proptest! {
        #[test]
        fn latest_of_overlapping_lines_wins(
            lines in prop::collection::vec((0..200u64, 1..30u64), 0..40),
            addresses in prop::collection::vec(0..240u64, 0..10),
        ) {
            let input: String = lines.iter().enumerate().map(|(i, (start, size))| format!("{start:x} {size:x} s{i}\n")).collect();
            let map = PerfMap::read(input.as_bytes()).unwrap();
            let overlaps = |a: &(u64, u64), b: &(u64, u64)| a.0 < b.0 + b.1 && b.0 < a.0 + a.1;
            let mut kept: Vec<(usize, (u64, u64))> = Vec::new();
            for (index, line) in lines.iter().enumerate() {
                kept.retain(|(_, old)| !overlaps(old, line));
                kept.push((index, *line));
            }
            for address in 0..240 {
                let expected = kept.iter().find(|(_, (start, size))| (*start..start + size).contains(&address));
                prop_assert_eq!(name_at(&map, address), expected.map(|(index, _)| format!("s{index}")));
            }
            let filtered = PerfMap::read_for(input.as_bytes(), &addresses).unwrap();
            for address in addresses {
                prop_assert_eq!(name_at(&filtered, address), name_at(&map, address));
            }
        }

        #[test]
        fn never_panics(input in prop::collection::vec(prop_oneof![Just(b'\n'), Just(b' '), Just(b'f'), any::<u8>()], 0..200)) {
            PerfMap::read(input.as_slice()).unwrap();
        }
    }
}
