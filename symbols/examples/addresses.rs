//! Symbolizes addresses of a file.
//!
//! Usage: `cargo run --release --example addresses -- FILE [ADDRESS…] [--passes N]`
//!
//! Addresses are hexadecimal SVMAs. Without arguments they are read from standard input, one per
//! line. Each address results in one line: the functions, innermost first, each with file and
//! line. The separate debug file is used if it is found.
//!
//! `--passes N` symbolizes all addresses N times and prints the time of each pass. The first pass
//! includes reading the file.

use std::error::Error;
use std::io::{self, BufRead, Write};
use std::time::Instant;

use perfcollect_symbols::symbolizer::{
    FileSource, FileSymbolizer, Options, Symbolizer, Unresolved,
};

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
    let symbolizer = Symbolizer::new(Options {
        perf_cache: std::env::home_dir().map(|home| home.join(".debug")),
        ..Options::default()
    });
    let file = symbolizer.file(FileSource::open(path)?);
    for pass in 1..=passes {
        let lines: Vec<String> = (addresses.iter())
            .map(|&address| line(&file, address))
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
    for problem in file.take_problems() {
        eprintln!("{problem}");
    }
    Ok(())
}

/// Returns the functions at an address, with file and line, innermost first.
fn line(file: &FileSymbolizer, address: u64) -> String {
    let frames = match file.frames(address) {
        Ok(frames) => frames,
        Err(Unresolved::NoSymbol { start: Some(start) }) => return format!("[{start:#x}]"),
        Err(_) => return "??".to_owned(),
    };
    let frames = frames.iter().map(|frame| {
        let path = frame.file.unwrap_or("??");
        format!("{} at {path}:{}", frame.name(), frame.line.unwrap_or(0))
    });
    frames.collect::<Vec<_>>().join(" < ")
}
