//! `perfcollect view`: the content of a trace as plain text.

pub mod archive;
pub mod events;
mod hot_path;
mod notices;
pub mod report;

use std::io::{self, Write};
use std::path::Path;

pub use archive::ViewError;

use crate::output::sanitize::terminal;

/// Prints the trace at `path`: its summary, `top` rows of each table, and how to open the flame
/// graph.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view(path: &Path, top: usize, out: &mut impl Write) -> Result<(), ViewError> {
    let capture = archive::read(path)?;
    print(&capture, path, top, out).map_err(ViewError::Print)
}

fn print(
    capture: &archive::ReportData,
    path: &Path,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let summary = &capture.summary;
    report::summary(summary, out)?;
    if summary.has_only_events() {
        return Ok(());
    }
    report::processes(summary, top, out)?;
    report::methods(summary, top, out)?;
    report::hot_path(&capture.hot_path, summary.samples, out)?;
    report::missing_symbols(summary, Some(path), out)?;
    let path = path.to_string_lossy().replace('\'', r"'\''");
    let (path, entry) = (terminal(&path), terminal(&capture.flame_graph));
    writeln!(
        out,
        "\nFlame graph: unzip -p '{path}' '{entry}' > flamegraph.svg, then open it in a browser"
    )
}

/// Formats a number with the singular or plural of its unit.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
