//! `perfcollect view`: the content of a trace as plain text.

pub mod archive;
mod block_io;
mod blocked;
mod call_tree;
mod code_rows;
mod connections;
mod counters;
mod cpu_tables;
mod diff;
pub mod events;
mod faults;
pub(crate) mod fitted;
mod method;
pub mod more;
mod notices;
mod omissions;
mod opened;
mod quality;
mod refusals;
pub mod report;
mod report_kind;
mod requests;
mod roles;
mod runtime_tables;
pub mod screen;
mod stacks;
mod table;
mod tables;
mod tree;
mod wait_tables;
mod wakeups;

use std::io::{self, Write};

pub use archive::ViewError;
pub use blocked::print_blocked;
pub use diff::Difference;
pub use opened::{OpenTrace, select};
pub use report_kind::ReportKind;
pub use requests::print_requests;
pub use stacks::{StackText, print_stacks};
pub use table::TableFormat;
pub use tables::print_table;
pub use tree::view_tree;

use crate::output::sanitize::terminal;
use crate::trace_archive::TraceArchiveError;
use call_tree::CallTree;
use screen::Screen;

/// Rows of each table of a report.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// Maximum number.
    pub top: usize,
    /// Whether each function without a name has a row, instead of one for those of a module, and
    /// callers of nearly all samples have rows, too.
    pub full: bool,
    /// Whether the maximum is what fits on the screen: a line has the number of the others.
    pub fits: bool,
}

/// Prints a trace: its findings, its summary, tables, and how to open the flame graph.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view(trace: &OpenTrace, rows: Rows, out: &mut impl Write) -> Result<(), ViewError> {
    let tree = match trace.summary.lacks_samples() {
        true => None,
        false => Some(match trace.call_tree(report::HOT_PART) {
            // The tables do not need the stacks.
            Err(ViewError::Archive(error @ TraceArchiveError::TooLarge { .. })) => Err(error),
            tree => Ok(tree?),
        }),
    };
    let path = tree
        .as_ref()
        .map(|tree| tree.as_ref().map(CallTree::hottest_path));
    print(trace, path, rows, out).map_err(ViewError::Print)
}

/// Prints the answer that a trace gives, in the lines of a screen. `saved` says where it is; it may be
/// empty.
///
/// # Errors
/// Returns an error if `out` cannot be written to.
pub fn view_screen(
    trace: &OpenTrace,
    saved: &str,
    screen: Screen,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    screen::print(&trace.summary, Some(&trace.more), saved, screen, out).map_err(ViewError::Print)
}

/// Prints the callers and callees of the methods whose names contain `pattern`, in any case: at most
/// `top` rows of each.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn view_method(
    trace: &OpenTrace,
    pattern: &str,
    top: usize,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let mut method = method::MethodView::new(pattern);
    trace.each_stack(|line| method.push_line(line))?;
    method.print(top, out).map_err(ViewError::Print)?;
    match quality::how_to_name(&trace.summary, &trace.more) {
        Some(line) => writeln!(out, "\n{line}").map_err(ViewError::Print),
        None => Ok(()),
    }
}

fn print(
    trace: &OpenTrace,
    path: Option<Result<Vec<(&str, u64)>, &TraceArchiveError>>,
    rows: Rows,
    out: &mut impl Write,
) -> io::Result<()> {
    let summary = &trace.summary;
    let Rows { top, full, .. } = rows;
    report::findings(summary, Some(&trace.more), out)?;
    report::summary(summary, out)?;
    let Some(path) = path else {
        return Ok(());
    };
    report::processes(summary, top, out)?;
    report::shares(summary, top, out)?;
    report::methods(summary, top, full, out)?;
    match path {
        Ok(path) => report::hot_path(&path, summary.samples, out)?,
        Err(error) => writeln!(out, "\nNo hottest path: {error}")?,
    }
    report::missing_symbols(summary, Some(&trace.more), out)?;
    let command = trace.more.flame_graph();
    writeln!(out, "\nFlame graph for any browser: {}", terminal(&command))
}

/// Formats a number with the singular or plural of its unit.
fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
