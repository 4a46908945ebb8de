//! Symbolizes addresses of a running process: `cargo run --example process -- PID ADDRESS…`

use perfcollect_symbols::symbolizer::Symbolizer;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let usage = "usage: process PID ADDRESS…";
    let (pid, addresses) = arguments.split_first().ok_or(usage)?;
    let symbolizer = Symbolizer::default();
    let process = symbolizer.process(pid.parse()?)?;
    for address in addresses {
        match process.frames(u64::from_str_radix(address.trim_start_matches("0x"), 16)?) {
            Err(why) => println!("{address} {why}"),
            Ok(frames) => frames.iter().for_each(|frame| {
                let (file, line) = (frame.file.unwrap_or("?"), frame.line.unwrap_or(0));
                println!(
                    "{address} {} at {file}:{line} ({})",
                    frame.name(),
                    frame.evidence
                );
            }),
        }
    }
    Ok(())
}
