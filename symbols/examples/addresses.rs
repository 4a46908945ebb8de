//! Names addresses of an ELF file, with what is inlined there: `cargo run --release --example addresses -- FILE ADDRESS…`
//!
//! Addresses are hexadecimal, as the file states them. Without any they are read from the input, one a line. Each gets one
//! line: the functions, innermost first, each with file and line. The symbols of the separate debug file are used where
//! there is one. With `--passes N` all are named N times and the time of each pass is printed, the first with reading the file.

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
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let passes = match words.iter().position(|word| word == "--passes") {
        Some(at) => words.drain(at..).nth(1).ok_or("--passes N")?.parse()?,
        None => 1,
    };
    let (path, addresses) = words.split_first().ok_or("addresses FILE [ADDRESS…]")?;
    let addresses = match addresses {
        [] => io::stdin().lock().lines().collect::<Result<_, _>>()?,
        given => given.to_vec(),
    };
    let addresses: Vec<u64> = addresses
        .iter()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()?;

    let mut begin = Instant::now();
    let path = Path::new(path).canonicalize()?;
    let file = File::open(&path)?;
    let own = ElfFile::open(&file)?;
    let debug_file = find_debug_file(&path, &own);
    let debug = debug_file.as_ref().map(ElfFile::open).transpose()?;
    let both = || debug.iter().chain([&own]);
    let sections = both().find_map(ElfFile::dwarf_sections);
    let debug_info = sections.as_ref().map(|sections| sections.debug_info());
    let names = Names {
        debug_info: debug_info.transpose()?,
        tables: Lazy::new(Box::new(|| both().filter_map(table).collect())),
        ranges: Lazy::new(Box::new(|| own.function_ranges().unwrap_or_default())),
    };
    for pass in 1..=passes {
        let lines: Vec<String> = addresses.iter().map(|&at| names.line(at)).collect();
        if passes > 1 {
            eprintln!("pass {pass}: {:.6} s", begin.elapsed().as_secs_f64());
        }
        if pass == passes {
            let mut out = io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        begin = Instant::now();
    }
    Ok(())
}

/// The one that proves to belong, in the places of this machine; says which did not.
fn find_debug_file(path: &Path, own: &ElfFile<'_>) -> Option<File> {
    let (build_id, debug_link) = (own.build_id(), own.debug_link());
    let perf_cache = std::env::home_dir().map(|home| home.join(".debug"));
    let wanted = DebugFileQuery {
        path,
        build_id: build_id.as_ref(),
        debug_link: debug_link.as_ref(),
        directories: &[],
        perf_cache: perf_cache.as_deref(),
    };
    let search = wanted.find(|path| File::open(path));
    for (candidate, why) in search.rejected {
        eprintln!("{} was not used: {why}", candidate.path.display());
    }
    search.found.map(|(_, file)| file)
}

fn table(elf: &ElfFile<'_>) -> Option<SymbolTable> {
    let table = elf.symbols();
    table.inspect_err(|error| eprintln!("{error}")).ok()
}

/// Made when the first address needs it.
type Lazy<'a, T> = LazyCell<T, Box<dyn FnOnce() -> T + 'a>>;

struct Names<'a> {
    debug_info: Option<DebugInfo<'a>>,
    /// For code without debug information.
    tables: Lazy<'a, Vec<SymbolTable>>,
    /// For code without symbols.
    ranges: Lazy<'a, FunctionRanges>,
}

impl Names<'_> {
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

    /// By the symbols, else where the function starts.
    fn outermost(&self, address: u64) -> String {
        let mut found = self.tables.iter().filter_map(|table| table.lookup(address));
        match found.find(|symbol| {
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
