//! `dotnet-trace report`, `dotnet-trace convert` and `dotnet-stack report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use super::{Line, Translated};
use crate::output::exports::Export;
use crate::output::file;

/// Formats of `convert` that are exports.
const EXPORTS: [&str; 2] = ["speedscope", "chromium"];
/// Rows of `report topN`.
const ROWS: usize = 5;

/// Options of `dotnet-trace report FILE topN`.
#[derive(Debug, Parser)]
#[command(
    name = "perfcollect report FILE topN",
    no_binary_name = true,
    disable_version_flag = true
)]
struct Report {
    /// Trace
    file: PathBuf,
    /// topN
    kind: String,
    /// Number of rows
    #[arg(short, long, default_value_t = ROWS)]
    number: usize,
    /// By the time of a method with what it calls
    #[arg(long)]
    inclusive: bool,
    /// Full names, as always
    #[arg(short, long)]
    verbose: bool,
}

/// Options of `dotnet-trace convert FILE --format F`.
#[derive(Debug, Parser)]
#[command(
    name = "perfcollect convert FILE --format F",
    no_binary_name = true,
    disable_version_flag = true
)]
struct Convert {
    /// Trace
    file: PathBuf,
    /// Speedscope or Chromium
    #[arg(long)]
    format: String,
    /// Name of the file, whose suffix is replaced
    #[arg(short, long)]
    output: Option<PathBuf>,
}

/// Translates the words after `dotnet-trace convert`. Returns `None` if they are not of one of its formats, or of
/// perfcollect's options.
pub(super) fn convert(words: &[OsString]) -> Option<Translated> {
    let is_of_others = |word: &OsString| {
        let text = word.to_string_lossy().to_ascii_lowercase();
        let format = text.strip_prefix("--format=").unwrap_or(&text);
        EXPORTS.contains(&format)
    };
    let is_theirs = words.iter().any(is_of_others);
    let wanted = Convert::try_parse_from(words).ok().filter(|_| is_theirs)?;
    let suffix = format!("{}.json", wanted.format.to_ascii_lowercase());
    let output = wanted.output.as_ref().unwrap_or(&wanted.file);
    let mut line = Line::new("convert");
    line.word(&wanted.file);
    let output = match Export::of(output) {
        Some(_) => output.clone(),
        None => output
            .with_file_name(file::capture_name(output))
            .with_extension(suffix),
    };
    line.option("-o", output);
    Some(line.done())
}

/// Translates the words after `dotnet-trace report`. Returns `None` if they are not of its `topN`.
pub(super) fn report(words: &[OsString]) -> Option<Translated> {
    words
        .iter()
        .any(|word| word.eq_ignore_ascii_case("topN"))
        .then(|| {
            let wanted = Report::try_parse_from(words)?;
            let mut line = Line::new("report");
            line.word(wanted.file);
            let kind = if wanted.inclusive { "own" } else { "cpu" };
            line.option("-kind", kind);
            line.option("-top", wanted.number.to_string());
            line.done()
        })
}

/// Translates the words after `dotnet-stack report`. Returns `None` if they do not choose a process.
pub(super) fn stacks(words: &[OsString]) -> Option<Translated> {
    let [option, value] = words else {
        return None;
    };
    let option = match option.to_str()? {
        "-p" | "--process-id" => {
            value.to_str()?.parse::<u32>().ok()?;
            "-pid"
        }
        "-n" | "--name" => "-n",
        _ => return None,
    };
    let mut line = Line::new("stacks");
    line.option(option, value);
    Some(line.done())
}
