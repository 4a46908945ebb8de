//! `perfcollect diff BEFORE AFTER`: prints what takes another share of the CPU time.

use std::path::PathBuf;

use clap::Args;

use super::arguments::EXAMPLES_FIRST;
use super::opened::{self, OpenError};
use super::selection_options::SelectionOptions;
use super::table_options::TableOptions;
use crate::view::{Difference, ViewError};

/// Rows of each table by default.
const TOP: usize = 20;

/// Compare two traces: which code takes more or less of the CPU time than before.
///
/// Shares of the CPU time are compared, beside the rest: twice the load is no difference, nor what slower code leaves to
/// the rest. A difference is printed if it is 10 % of the code's time or more, 1 % of all CPU time, and beyond chance:
/// 4 standard errors (likely) or 6 (sure), measured between parts of each capture. Capture 10 s or more of the same work.
#[derive(Args, Debug)]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect diff before.trace.zip after.trace.zip\n  \
    perfcollect diff before after -process app.dll\n  \
    perfcollect diff before after -format json")]
pub(super) struct DiffOptions {
    /// Earlier trace, perf.data, or NAME of a capture
    #[arg(value_name = "BEFORE")]
    before: PathBuf,
    /// Later one
    #[arg(value_name = "AFTER")]
    after: PathBuf,
    #[command(flatten)]
    table: TableOptions,
    /// Maximum number of rows of each table
    #[arg(long, value_name = "N", default_value_t = TOP)]
    top: usize,
    #[command(flatten)]
    selection: SelectionOptions,
}

pub(super) fn run(options: &DiffOptions) -> Result<(), OpenError> {
    let selection = options.selection.selection();
    let [before, after] = opened::open_both([&options.before, &options.after], &selection)?;
    let mut text = Vec::new();
    let difference = Difference::new(before, after)?;
    let printed = difference.print(options.table.format(), options.top, &mut text);
    let printed = printed.and_then(|()| super::print(&text));
    Ok(printed.map_err(ViewError::Print)?)
}
