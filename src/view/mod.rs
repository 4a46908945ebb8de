//! `perfcollect view`: the content of a trace as plain text.

pub mod archive;
mod code_rows;
pub mod events;
mod hot_path;
mod method;
mod notices;
mod quality;
pub mod report;
mod roles;
mod runtime_tables;
pub mod screen;
mod table;
mod tables;

use std::io::{self, Write};
use std::path::Path;

pub use archive::ViewError;
pub use table::TableFormat;
pub use tables::{ReportKind, print_table};

use crate::output::sanitize::terminal;
use crate::trace_archive::TraceArchive;
use screen::Screen;

/// Rows of each table of a report.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Maximum number.
    pub top: usize,
    /// Whether each function without a name has a row, instead of one for those of a module.
    pub full: bool,
}

/// Prints the trace at `path`: its findings, its summary, tables, and how to open the flame graph.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view(path: &Path, rows: Rows, out: &mut impl Write) -> Result<(), ViewError> {
    let capture = archive::read(path)?;
    print(&capture, path, rows, out).map_err(ViewError::Print)
}

/// Prints the answer that the trace at `path` gives, in the lines of a screen.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view_screen(path: &Path, screen: Screen, out: &mut impl Write) -> Result<(), ViewError> {
    let summary = TraceArchive::open(path)?.summary()?;
    screen::print(&summary, Some(path), "", screen, out).map_err(ViewError::Print)
}

/// Prints the callers and callees of the methods whose names contain `pattern`, in any case: at most
/// `top` rows of each.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view_method(
    path: &Path,
    pattern: &str,
    top: usize,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let archive = TraceArchive::open(path)?;
    let mut method = method::MethodView::new(pattern);
    let samples = archive.summary()?.samples;
    archive::each_stack(&archive, samples, |line| method.push_line(line))?;
    method.print(top, out).map_err(ViewError::Print)
}

fn print(
    capture: &archive::ReportData,
    path: &Path,
    rows: Rows,
    out: &mut impl Write,
) -> io::Result<()> {
    let summary = &capture.summary;
    let Rows { top, full } = rows;
    report::findings(summary, Some(path), out)?;
    report::summary(summary, out)?;
    if summary.has_only_events() {
        return Ok(());
    }
    report::processes(summary, top, out)?;
    report::shares(summary, top, out)?;
    report::methods(summary, top, full, out)?;
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
