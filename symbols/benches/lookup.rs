//! Time to load libc's and the kernel's names, and per lookup: `cargo bench -p perfcollect-symbols --bench lookup`.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::fs::File;
use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::kallsyms::KernelSymbols;

const LOADS: u32 = 10;
const LOOKUPS: u64 = 4_000_000;

fn main() {
    let libc = Path::new("/usr/lib/x86_64-linux-gnu/libc.so.6");
    match File::open(libc) {
        Ok(file) => {
            let (table, load) = fastest(|| ElfFile::open(&file).unwrap().symbols().unwrap());
            let starts: Vec<u64> = table.iter().map(|symbol| symbol.start).collect();
            report("libc", &starts, load, |address| {
                table.lookup(address).is_some()
            });
        }
        Err(error) => println!("skipped: {}: {error}", libc.display()),
    }
    let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
    match KernelSymbols::read(text.as_slice()) {
        Ok(_) => {
            let (symbols, load) = fastest(|| KernelSymbols::read(text.as_slice()).unwrap());
            let starts: Vec<u64> = symbols.iter().map(|found| found.symbol.start).collect();
            report("kallsyms", &starts, load, |address| {
                symbols.lookup(address).is_some()
            });
        }
        Err(error) => println!("skipped: {error}"),
    }
}

fn fastest<T>(mut load: impl FnMut() -> T) -> (T, Duration) {
    let mut timed = || {
        let begin = Instant::now();
        (load(), begin.elapsed())
    };
    let first = timed();
    (1..LOADS).map(|_| timed()).fold(
        first,
        |best, next| if next.1 < best.1 { next } else { best },
    )
}

fn report(name: &str, starts: &[u64], load: Duration, lookup: impl Fn(u64) -> bool) {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let begin = Instant::now();
    let mut found = 0;
    for _ in 0..LOOKUPS {
        // xorshift64: lookups in no order, as addresses of samples are.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let start = starts[(state % starts.len() as u64) as usize];
        found += u64::from(lookup(black_box(start + 1)));
    }
    let each_ns = begin.elapsed().as_nanos() / u128::from(LOOKUPS);
    println!(
        "{name}: {} symbols loaded in {load:.1?}, {each_ns} ns per lookup, {found} of {LOOKUPS} found",
        starts.len()
    );
}
