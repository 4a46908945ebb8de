//! The symbols of a file and of its debug file, as readelf (binutils) lists them.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use perfcollect_symbols::demangle::demangle;

use crate::peers::filter;
use crate::sampled::{build_id, shown};

#[derive(Debug)]
pub(crate) struct Symbol {
    pub(crate) start: u64,
    pub(crate) size: u64,
    /// `FUNC`, `NOTYPE`, `IFUNC`
    pub(crate) kind: String,
    /// Mangled, without version.
    pub(crate) name: String,
}

impl Symbol {
    fn covers(&self, address: u64) -> bool {
        (self.start..self.start + self.size).contains(&address)
    }

    /// By name as shown.
    pub(crate) fn is_called(&self, name: &str) -> bool {
        shown(&demangle(self.name.as_bytes())) == name
    }
}

/// Read on first use.
pub(crate) struct SymbolTable {
    file: PathBuf,
    /// By start, each with the highest end of all symbols up to it.
    symbols: OnceCell<Vec<(u64, Symbol)>>,
}

impl SymbolTable {
    pub(crate) fn new(file: &Path) -> Self {
        Self {
            file: file.to_owned(),
            symbols: OnceCell::new(),
        }
    }

    fn read(&self) -> Vec<(u64, Symbol)> {
        let debug = build_id(&self.file).map(|id| {
            let path = id.relative_path().with_extension("debug");
            Path::new("/usr/lib/debug/.build-id").join(path)
        });
        let debug = debug.filter(|debug| debug.exists());
        let mut symbols = Vec::new();
        for file in [&self.file].into_iter().chain(&debug) {
            let listed = filter(Command::new("readelf").arg("-sW").arg(file), "");
            symbols.extend(listed.lines().filter_map(symbol));
        }
        symbols.sort_by_key(|symbol| symbol.start);
        let mut highest = 0;
        let with_highest = symbols.into_iter().map(|symbol| {
            highest = highest.max(symbol.start + symbol.size);
            (highest, symbol)
        });
        with_highest.collect()
    }

    /// Returns all symbols.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Symbol> {
        let symbols = self.symbols.get_or_init(|| self.read());
        symbols.iter().map(|(_, symbol)| symbol)
    }

    /// Returns all symbols that cover an address; of those without a size, the last that starts at
    /// or before it.
    pub(crate) fn around(&self, address: u64) -> impl Iterator<Item = &Symbol> {
        let symbols = self.symbols.get_or_init(|| self.read());
        let before = &symbols[..symbols.partition_point(|(_, symbol)| symbol.start <= address)];
        let last = before.last().map_or(0, |(_, symbol)| symbol.start);
        let near = before
            .iter()
            .rev()
            .take_while(move |(highest, symbol)| *highest > address || symbol.start == last);
        let near = near.map(|(_, symbol)| symbol);
        near.filter(move |symbol| {
            symbol.covers(address) || (symbol.size == 0 && symbol.start == last)
        })
    }

    /// Returns whether two names, as shown, have the same start around an address.
    pub(crate) fn are_aliases(&self, address: u64, ours: &str, theirs: &str) -> bool {
        let starts = |name| {
            self.around(address)
                .filter(move |symbol| symbol.is_called(name))
                .map(|symbol| symbol.start)
        };
        starts(ours).any(|our| starts(theirs).any(|their| our == their))
    }
}

/// Parses a row of `   Num:    Value          Size Type    Bind   Vis      Ndx Name`.
fn symbol(line: &str) -> Option<Symbol> {
    let words: Vec<_> = line.split_whitespace().collect();
    let &[_, start, size, kind, _, _, section, name, ..] = &words[..] else {
        return None;
    };
    let size = match size.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => size.parse().ok()?,
    };
    let is_code = ["FUNC", "NOTYPE", "IFUNC"].contains(&kind) && section != "UND";
    is_code.then_some(Symbol {
        start: u64::from_str_radix(start, 16).ok()?,
        size,
        kind: kind.to_owned(),
        name: name.split('@').next()?.to_owned(),
    })
}
