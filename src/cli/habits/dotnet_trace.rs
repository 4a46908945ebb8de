//! `dotnet-trace report`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Parser;

use super::{Line, Translated};

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
