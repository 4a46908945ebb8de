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

/// Rows of which the first ones are printed and the others are counted.
#[derive(Debug)]
pub(super) struct FirstRows {
    top: usize,
    rows: usize,
}

impl FirstRows {
    /// Starts to count. The first `top` rows are printed.
    pub(super) fn new(top: usize) -> Self {
        Self { top, rows: 0 }
    }

    /// Counts a row. Returns whether it is printed.
    pub(super) fn take(&mut self) -> bool {
        self.rows += 1;
        self.rows <= self.top
    }

    /// Prints the number of the others.
    pub(super) fn end(self, out: &mut impl Write) -> io::Result<()> {
        match self.rows.saturating_sub(self.top) {
            0 => Ok(()),
            more => writeln!(out, "... and {more} more: -top N, or -full"),
        }
    }
}

/// A table with one row for each of many things: collections, compilations.
pub(super) struct LongTable<'a> {
    columns: &'a [Column],
    rows: FirstRows,
}

impl<'a> LongTable<'a> {
    /// Prints the headings.
    pub(super) fn new(columns: &'a [Column], top: usize, out: &mut impl Write) -> io::Result<Self> {
        headings(columns, out)?;
        let rows = FirstRows::new(top);
        Ok(Self { columns, rows })
    }

    /// Prints the next row, if it is one of the first.
    pub(super) fn row(&mut self, cells: &[String], out: &mut impl Write) -> io::Result<()> {
        match self.rows.take() {
            true => print_row(self.columns, cells, out),
            false => Ok(()),
        }
    }

    /// Prints the number of the other rows.
    pub(super) fn end(self, out: &mut impl Write) -> io::Result<()> {
        self.rows.end(out)
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
