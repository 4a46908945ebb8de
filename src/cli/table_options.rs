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
    format: TableFormat,
    /// Same as -format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

impl TableOptions {
    pub(super) fn format(self) -> TableFormat {
        match self.json {
            true => TableFormat::Json,
            false => self.format,
        }
    }
}
