//! Symbolizes addresses with blazesym, as `symbols/examples/addresses.rs` does with this project's
//! crate.
//!
//! usage: `blazesym-addresses FILE --passes N < ADDRESSES`

use std::io::{self, BufRead, Write};
use std::time::Instant;

use anyhow::Context;
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [path, _, passes] = words.as_slice() else {
        anyhow::bail!("usage: blazesym-addresses FILE --passes N");
    };
    let passes: u32 = passes.parse()?;
    let lines: Vec<String> = io::stdin().lock().lines().collect::<Result<_, _>>()?;
    let addresses: Vec<u64> = lines
        .iter()
        .map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16))
        .collect::<Result<_, _>>()
        .context("cannot parse an address")?;
    let mut start = Instant::now();
    let symbolizer = Symbolizer::builder().build();
    let source = Source::from(Elf::new(path));
    for pass in 1..=passes {
        let found = symbolizer.symbolize(&source, Input::VirtOffset(&addresses))?;
        let lines: Vec<String> = found.iter().map(line).collect();
        eprintln!("pass {pass}: {:.6} s", start.elapsed().as_secs_f64());
        if pass == passes {
            let mut out = io::stdout().lock();
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        start = Instant::now();
    }
    Ok(())
}

fn line(found: &Symbolized<'_>) -> String {
    let Symbolized::Sym(symbol) = found else {
        return "??".to_owned();
    };
    let frame = |name: &str, code: Option<&CodeInfo<'_>>| {
        let file = code.map_or_else(
            || "??".to_owned(),
            |code| code.to_path().display().to_string(),
        );
        let line = code.and_then(|code| code.line).unwrap_or(0);
        format!("{name} at {file}:{line}")
    };
    let inlined = symbol
        .inlined
        .iter()
        .rev()
        .map(|inlined| frame(&inlined.name, inlined.code_info.as_ref()));
    let own = frame(&symbol.name, symbol.code_info.as_deref());
    inlined.chain([own]).collect::<Vec<_>>().join(" < ")
}
