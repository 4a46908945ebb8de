//! Time of loading and lookups: `cargo bench -p perfcollect-symbols --bench lookup`.
//!
//! Measures symbols, function ranges and DWARF (package libc6-dbg) of libc, and kernel symbols.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfcollect_symbols::debug_file::DebugFileQuery;
use perfcollect_symbols::dwarf::Detail;
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::kallsyms::KernelSymbols;

const LOADS: u32 = 10;
const LOOKUPS: u64 = 4_000_000;
/// Number of addresses for the first lookups, which read DWARF on demand.
const COLD_ADDRESSES: usize = 300;

fn main() {
    let libc = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
    match File::open(libc) {
        Ok(file) => {
            let file = Arc::new(file);
            symbols(&file);
            function_ranges(&file);
            dwarf(libc, &file);
        }
        Err(error) => println!("skipped: {}: {error}", libc.display()),
    }
    kernel();
}

fn symbols(file: &Arc<File>) {
    let (table, load) = fastest(|| ElfFile::open(file.clone()).unwrap().symbols().unwrap());
    let starts: Vec<u64> = table.iter().map(|symbol| symbol.start).collect();
    report("libc", &starts, load, |address| {
        table.lookup(address).is_some()
    });
}

fn function_ranges(file: &Arc<File>) {
    let (ranges, load) = fastest(|| {
        ElfFile::open(file.clone())
            .unwrap()
            .function_ranges()
            .unwrap()
    });
    let starts: Vec<u64> = ranges.iter().map(|range| range.start).collect();
    report(".eh_frame of libc", &starts, load, |address| {
        ranges.lookup(address).is_some()
    });
}

fn dwarf(path: &Path, file: &Arc<File>) {
    let stripped = ElfFile::open(file.clone()).unwrap();
    let build_id = stripped.build_id();
    let query = DebugFileQuery {
        path,
        build_id: build_id.as_ref(),
        debug_link: None,
        directories: &[],
        perf_cache: None,
    };
    let Some((_, elf)) = query.find(|path| File::open(path)).found else {
        return println!("skipped: no debug file for {}", path.display());
    };
    let starts: Vec<u64> = (elf.symbols().unwrap().iter())
        .map(|symbol| symbol.start)
        .collect();
    for detail in [Detail::Functions, Detail::Lines] {
        let (_, cold) = fastest(|| {
            let sections = elf.dwarf_sections().unwrap();
            let debug_info = sections.into_debug_info().unwrap();
            let spread = starts.iter().step_by(starts.len() / COLD_ADDRESSES + 1);
            spread
                .map(|&start| debug_info.frames(start + 1, detail).unwrap().len())
                .sum::<usize>()
        });
        println!("DWARF of libc, {detail:?}: the first {COLD_ADDRESSES} addresses {cold:.1?}");
    }
    let sections = || elf.dwarf_sections().unwrap();
    let (debug_info, load) = fastest(|| sections().into_debug_info().unwrap());
    report("DWARF of libc", &starts, load, |address| {
        let frames = debug_info.frames(address, Detail::Lines);
        !frames.unwrap().is_empty()
    });
}

fn kernel() {
    let list = std::fs::read("/proc/kallsyms").unwrap_or_default();
    match KernelSymbols::read(list.as_slice()) {
        Ok(_) => {
            let (symbols, load) = fastest(|| KernelSymbols::read(list.as_slice()).unwrap());
            let starts: Vec<u64> = (symbols.iter())
                .map(|function| function.symbol.start)
                .collect();
            report("kallsyms", &starts, load, |address| {
                symbols.lookup(address).is_some()
            });
        }
        Err(error) => println!("skipped: {error}"),
    }
}

fn fastest<T>(mut load: impl FnMut() -> T) -> (T, Duration) {
    let mut timed = || {
        let start = Instant::now();
        (load(), start.elapsed())
    };
    let first = timed();
    (1..LOADS).map(|_| timed()).fold(
        first,
        |best, next| if next.1 < best.1 { next } else { best },
    )
}

/// Prints the mean time of a lookup. The lookups are so many that reading on demand is negligible.
fn report(name: &str, starts: &[u64], load: Duration, lookup: impl Fn(u64) -> bool) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let start_time = Instant::now();
    let mut found = 0;
    for _ in 0..LOOKUPS {
        // xorshift64: like the addresses of samples, the lookups are in random order.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let start = starts[(state % starts.len() as u64) as usize];
        found += u64::from(lookup(black_box(start + 1)));
    }
    let each_ns = start_time.elapsed().as_nanos() / u128::from(LOOKUPS);
    println!(
        "{name}: {} symbols loaded in {load:.1?}, {each_ns} ns per lookup, {found} of {LOOKUPS} found",
        starts.len()
    );
}
