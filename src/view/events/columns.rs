//! Columns of a table in a terminal.

use std::io::{self, Write};

/// A column: two lines of heading, and a width.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    heading: [&'static str; 2],
    width: usize,
    is_text: bool,
}

impl Column {
    /// Creates a column of numbers, aligned to the right.
    pub(super) const fn number(first: &'static str, second: &'static str, width: usize) -> Self {
        Self {
            heading: [first, second],
            width,
            is_text: false,
        }
    }

    /// Creates a column of strings, aligned to the left.
    pub(super) const fn text(first: &'static str, second: &'static str, width: usize) -> Self {
        Self {
            is_text: true,
            ..Self::number(first, second, width)
        }
    }
}

/// Prints the headings of a table.
pub(super) fn headings(columns: &[Column], out: &mut impl Write) -> io::Result<()> {
    for line in [0, 1] {
        let cells = columns.iter().map(|column| column.heading[line]);
        print(columns, cells, out)?;
    }
    Ok(())
}

/// Prints a row of a table.
pub(super) fn print_row(
    columns: &[Column],
    cells: &[String],
    out: &mut impl Write,
) -> io::Result<()> {
    print(columns, cells.iter().map(String::as_str), out)
}

fn print<'a>(
    columns: &[Column],
    cells: impl Iterator<Item = &'a str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = String::new();
    for (column, cell) in columns.iter().zip(cells) {
        let width = column.width;
        line += &match column.is_text {
            true => format!("{cell:<width$} "),
            false => format!("{cell:>width$} "),
        };
    }
    writeln!(out, "{}", line.trim_end())
}

/// Formats a number with `count` decimals, or as a dash if it is not finite.
pub(super) fn decimals(number: f64, count: usize) -> String {
    match number.is_finite() {
        true => format!("{number:.count$}"),
        false => "-".to_owned(),
    }
}
