//! Options of the commands that print tables.

use clap::Args;

use crate::view::TableFormat;

/// How to print a table.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct TableOptions {
    /// Format of the table: text, json, md or csv
    #[arg(
        long,
        value_enum,
        default_value_t,
        ignore_case = true,
        hide_possible_values = true
    )]
    pub(super) format: TableFormat,
}
