//! Symbolizes addresses of an ELF file.
//!
//! Usage: `cargo run --release --example addresses -- FILE [ADDRESS…] [--passes N]`
//!
//! Addresses are hexadecimal SVMAs. Without arguments they are read from standard input, one per
//! line. Each address results in one line: the functions, innermost first, each with file and
//! line. The separate debug file is used if it is found.
//!
//! `--passes N` symbolizes all addresses N times and prints the time of each pass. The first pass
//! includes reading the file.

use std::cell::LazyCell;
use std::error::Error;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::path::Path;
use std::time::Instant;

use perfcollect_symbols::debug_file::DebugFileQuery;
use perfcollect_symbols::demangle::demangle;
use perfcollect_symbols::dwarf::{DebugInfo, Detail};
use perfcollect_symbols::elf::{ElfFile, FunctionRanges};
use perfcollect_symbols::table::SymbolTable;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let passes = match arguments.iter().position(|word| word == "--passes") {
        Some(index) => arguments
            .drain(index..)
            .nth(1)
            .ok_or("usage: --passes N")?
            .parse()?,
        None => 1,
    };
    let usage = "usage: addresses FILE [ADDRESS…] [--passes N]";
    let (path, addresses) = arguments.split_first().ok_or(usage)?;
    let addresses = match addresses {
        [] => io::stdin().lock().lines().collect::<Result<_, _>>()?,
        addresses => addresses.to_vec(),
    };
    let addresses: Vec<u64> = addresses
        .iter()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()?;

    let mut start = Instant::now();
    let path = Path::new(path).canonicalize()?;
    let file = File::open(&path)?;
    let own = ElfFile::open(&file)?;
    let debug_file = find_debug_file(&path, &own);
    let debug = debug_file.as_ref().map(ElfFile::open).transpose()?;
    let both = || debug.iter().chain([&own]);
    let sections = both().find_map(ElfFile::dwarf_sections);
    let debug_info = sections.as_ref().map(|sections| sections.debug_info());
    let symbolizer = Symbolizer {
        debug_info: debug_info.transpose()?,
        tables: Lazy::new(Box::new(|| both().filter_map(table).collect())),
        ranges: Lazy::new(Box::new(|| own.function_ranges().unwrap_or_default())),
    };
    for pass in 1..=passes {
        let lines: Vec<String> = (addresses.iter())
            .map(|&address| symbolizer.line(address))
            .collect();
        if passes > 1 {
            eprintln!("pass {pass}: {:.6} s", start.elapsed().as_secs_f64());
        }
        if pass == passes {
            let mut out = io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        start = Instant::now();
    }
    Ok(())
}

/// Finds the verified debug file on this host, and prints the candidates that are rejected.
fn find_debug_file(path: &Path, own: &ElfFile<'_>) -> Option<File> {
    let (build_id, debug_link) = (own.build_id(), own.debug_link());
    let perf_cache = std::env::home_dir().map(|home| home.join(".debug"));
    let query = DebugFileQuery {
        path,
        build_id: build_id.as_ref(),
        debug_link: debug_link.as_ref(),
        directories: &[],
        perf_cache: perf_cache.as_deref(),
    };
    let search = query.find(|path| File::open(path));
    for (candidate, rejection) in search.rejected {
        eprintln!("cannot use {}: {rejection}", candidate.path.display());
    }
    search.found.map(|(_, file)| file)
}

fn table(elf: &ElfFile<'_>) -> Option<SymbolTable> {
    let table = elf.symbols();
    table.inspect_err(|error| eprintln!("{error}")).ok()
}

/// A value that is read when the first address needs it.
type Lazy<'a, T> = LazyCell<T, Box<dyn FnOnce() -> T + 'a>>;

struct Symbolizer<'a> {
    debug_info: Option<DebugInfo<'a>>,
    /// Symbols for code without debug information.
    tables: Lazy<'a, Vec<SymbolTable>>,
    /// Function ranges for code without symbols.
    ranges: Lazy<'a, FunctionRanges>,
}

impl Symbolizer<'_> {
    /// Returns the functions at an address, with file and line, innermost first.
    fn line(&self, address: u64) -> String {
        let frames = match &self.debug_info {
            Some(debug_info) => debug_info.frames(address, Detail::Lines),
            None => Ok(Vec::new()),
        };
        let frames = frames.unwrap_or_else(|error| {
            eprintln!("{address:#x}: {error}");
            Vec::new()
        });
        if frames.is_empty() {
            return self.outermost(address);
        }
        let frames = frames.iter().map(|frame| {
            let name = frame.name.map_or("??".into(), demangle);
            let file = frame.file.unwrap_or("??");
            format!("{name} at {file}:{}", frame.line.unwrap_or(0))
        });
        frames.collect::<Vec<_>>().join(" < ")
    }

    /// Returns the symbol at an address, or else the start of the function.
    fn outermost(&self, address: u64) -> String {
        let mut symbols = self.tables.iter().filter_map(|table| table.lookup(address));
        match symbols.find(|symbol| {
            symbol.is_sized || !self.ranges.is_in_later_function(symbol.start, address)
        }) {
            Some(symbol) => demangle(symbol.name).into_owned(),
            None => match self.ranges.lookup(address) {
                Some(range) => format!("[{:#x}]", range.start),
                None => "??".to_owned(),
            },
        }
    }
}
