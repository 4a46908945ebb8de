//! A table as text, JSON, Markdown or CSV.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use textwrap::core::display_width;

use super::fitted::with_ellipsis;
use crate::output::NameStyle;
use crate::output::sanitize::{csv_text, json_text, terminal, truncate_with_ellipsis};

/// Between two columns of text.
const GAP: &str = "  ";
/// Maximum length of the text of a cell, in bytes. perfcollect writes no longer names; a summary of another
/// origin may have one of megabytes, which each of many rows repeats.
const MAX_TEXT_BYTES: usize = 8192;
/// Width to which columns are padded. Cells that are wider move those after them.
const MAX_PADDED_WIDTH: usize = 256;
/// Width below which columns of text are not cut.
const MIN_TEXT_WIDTH: usize = 16;

/// Format of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum TableFormat {
    /// Aligned columns.
    #[default]
    Text,
    /// An object with the rows as objects.
    Json,
    /// A table of Markdown.
    Md,
    /// Comma-separated values (RFC 4180), with a line of headings.
    Csv,
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Cell {
    /// Untrusted text.
    Text(String),
    Count(u64),
    /// A number with one decimal.
    Number(f64),
    /// No value.
    None,
}

impl Cell {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => terminal(text).into_owned(),
            Self::Count(count) => count.to_string(),
            Self::Number(number) => format!("{number:.1}"),
            Self::None => String::new(),
        }
    }

    fn csv(&self) -> String {
        match self {
            Self::Text(text) => csv_text(text).into_owned(),
            _ => self.text(),
        }
    }

    fn json(&self) -> Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Count(count) => json!(count),
            Self::Number(number) => json!(number),
            Self::None => Value::Null,
        }
    }

    fn is_text(&self) -> bool {
        matches!(self, Self::Text(_))
    }

    /// Returns whether it is a number that is shown as 0.
    fn is_zero(&self) -> bool {
        match self {
            Self::Count(count) => *count == 0,
            Self::Number(number) => number.abs() < 0.05,
            _ => false,
        }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(truncate_with_ellipsis(text, MAX_TEXT_BYTES).into_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(&*text)
    }
}

impl From<u64> for Cell {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<i32> for Cell {
    fn from(id: i32) -> Self {
        Self::Count(u64::try_from(id).unwrap_or_default())
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// Rows with named columns.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Table {
    /// What the rows are, such as `processes`.
    pub(super) kind: &'static str,
    /// Names of the columns, in `snake_case` with the unit at the end.
    pub(super) columns: Vec<&'static str>,
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    /// Creates a table from the cells of each row.
    pub(super) fn new<const N: usize>(
        kind: &'static str,
        columns: [&'static str; N],
        rows: impl Iterator<Item = [Cell; N]>,
    ) -> Self {
        Self {
            kind,
            columns: columns.to_vec(),
            rows: rows.map(Vec::from).collect(),
        }
    }

    /// Shortens text until the table fits into `width` columns, if it can: names of methods lose their
    /// modules, namespaces and parameters, then the widest columns their ends.
    pub(super) fn fit(&mut self, width: usize) {
        if self.width() <= width {
            return;
        }
        self.each_text(|_, text| {
            if let Some((_, method)) = text.split_once('!') {
                *text = NameStyle::Short.of_method(method).into_owned();
            }
        });
        let mut widths = self.widths();
        let mut over = self.width().saturating_sub(width);
        while over > 0 {
            let is_text = |(column, _): &(usize, &mut usize)| self.is_text(*column);
            let columns = widths.iter_mut().enumerate().filter(is_text);
            let Some((_, widest)) = columns.max_by_key(|(_, width)| **width) else {
                return;
            };
            if *widest <= MIN_TEXT_WIDTH {
                break;
            }
            *widest -= 1;
            over -= 1;
        }
        self.each_text(|column, text| *text = with_ellipsis(text, widths[column]));
    }

    /// Drops columns, in this order, until the table fits into `width` columns: only those of numbers that are all
    /// 0, or that are `optional`. A table without rows keeps its first columns.
    pub(super) fn drop_columns(&mut self, width: usize, optional: &[&str]) {
        if self.rows.is_empty() {
            while self.width() > width && self.columns.pop().is_some() {}
            return;
        }
        let mut dispensable: Vec<&str> = self.zeros();
        dispensable.extend(optional);
        for name in dispensable {
            if self.width() <= width {
                return;
            }
            let Some(at) = self.columns.iter().position(|column| *column == name) else {
                continue;
            };
            self.columns.remove(at);
            for row in &mut self.rows {
                row.remove(at);
            }
        }
    }

    /// Returns the columns of numbers that are all shown as 0.
    fn zeros(&self) -> Vec<&'static str> {
        let columns = self.columns.iter().enumerate();
        let is_zero = |at: usize| self.rows.iter().all(|row| row[at].is_zero());
        let zeros = columns.filter(|(at, _)| is_zero(*at));
        zeros.map(|(_, name)| *name).collect()
    }

    fn each_text(&mut self, mut change: impl FnMut(usize, &mut String)) {
        for row in &mut self.rows {
            for (column, cell) in row.iter_mut().enumerate() {
                if let Cell::Text(text) = cell {
                    change(column, text);
                }
            }
        }
    }

    fn is_text(&self, column: usize) -> bool {
        self.rows.iter().any(|row| row[column].is_text())
    }

    /// Returns the width of each column of the text.
    fn widths(&self) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .map(|name| display_width(name))
            .collect();
        for row in &self.rows {
            for (width, cell) in widths.iter_mut().zip(texts(row)) {
                *width = display_width(&cell).max(*width);
            }
        }
        widths
    }

    /// Returns the width of the text.
    fn width(&self) -> usize {
        let widths = self.widths();
        widths.iter().sum::<usize>() + (widths.len().max(1) - 1) * GAP.len()
    }

    /// Writes the table.
    pub(super) fn write(&self, format: TableFormat, out: &mut impl Write) -> io::Result<()> {
        match format {
            TableFormat::Text => self.write_text(out),
            TableFormat::Json => self.write_json(out),
            TableFormat::Md => self.write_markdown(out),
            TableFormat::Csv => self.write_csv(out),
        }
    }

    /// Text columns are aligned to the left, numbers to the right. The last column is not padded.
    fn write_text(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = 0..self.columns.len();
        let is_text: Vec<bool> = columns.map(|column| self.is_text(column)).collect();
        let heading: Vec<String> = self.columns.iter().map(|&name| name.to_owned()).collect();
        let lines = [heading]
            .into_iter()
            .chain(self.rows.iter().map(|row| texts(row)));
        let widths = self.widths();
        for line in lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let width = widths[column].min(MAX_PADDED_WIDTH);
                let padding = width.saturating_sub(display_width(cell));
                let padding = " ".repeat(padding);
                match is_text[column] {
                    true => text += &format!("{cell}{padding}{GAP}"),
                    false => text += &format!("{padding}{cell}{GAP}"),
                }
            }
            writeln!(out, "{}", text.trim_end())?;
        }
        Ok(())
    }

    fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let row = |row: &Vec<Cell>| {
            let columns = self.columns.iter().map(|&name| name.to_owned());
            let cells = columns.zip(row.iter().map(Cell::json));
            Value::Object(cells.collect::<Map<_, _>>())
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        let table = json!({ "format_version": 1, "kind": self.kind, "rows": rows });
        let json = serde_json::to_string_pretty(&table)?;
        writeln!(out, "{}", json_text(&json))
    }

    fn write_markdown(&self, out: &mut impl Write) -> io::Result<()> {
        let line = |cells: &[String]| format!("| {} |", cells.join(" | "));
        let heading: Vec<String> = self.columns.iter().map(|&name| name.to_owned()).collect();
        writeln!(out, "{}", line(&heading))?;
        writeln!(out, "|{}", "---|".repeat(self.columns.len()))?;
        for row in &self.rows {
            let cells: Vec<String> = texts(row).iter().map(|cell| escaped(cell)).collect();
            writeln!(out, "{}", line(&cells))?;
        }
        Ok(())
    }

    fn write_csv(&self, out: &mut impl Write) -> io::Result<()> {
        let mut csv = csv::Writer::from_writer(out);
        csv.write_record(&self.columns)?;
        for row in &self.rows {
            csv.write_record(row.iter().map(Cell::csv))?;
        }
        csv.flush()
    }
}

fn texts(row: &[Cell]) -> Vec<String> {
    row.iter().map(Cell::text).collect()
}

/// Escapes text for a cell of a table of Markdown.
fn escaped(cell: &str) -> String {
    let special = |c| {
        matches!(
            c,
            '|' | '\\' | '`' | '*' | '_' | '<' | '>' | '[' | ']' | '&' | '#'
        )
    };
    let mut out = String::new();
    for c in cell.chars() {
        if special(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(format: TableFormat) -> String {
        let rows = [
            [Cell::from(7_i32), "a|b".into(), 12.25.into()],
            [Cell::from(8_i32), "=1+1\u{9b}".into(), (-1.0).into()],
            [Cell::from(123_i32), "x,\"y\u{1b}".into(), Cell::None],
        ];
        let table = Table::new("processes", ["pid", "name", "cpu_ms"], rows.into_iter());
        let mut out = Vec::new();
        table.write(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_shortened_until_it_fits() {
        let long = "System.Private.CoreLib!System.Threading.Monitor.Wait(object,int)";
        let rows = [
            [Cell::from(7_i32), long.into(), "x".repeat(99).into()],
            [Cell::from(8_i32), Cell::None, "y".into()],
        ];
        for (width, method) in [(200, long), (80, "Monitor.Wait"), (10, "Monitor.Wait")] {
            let rows = rows.clone().into_iter();
            let mut table = Table::new("waits", ["pid", "method", "command_line"], rows);
            table.fit(width);
            assert_eq!(table.rows[0][1], method.into());
            let least = 3 + 2 + 12 + 2 + MIN_TEXT_WIDTH;
            assert!(table.width() <= width.max(least), "{width}");
        }
    }

    #[test]
    fn columns_are_dropped_until_it_fits() {
        let row = [1_u64, 0, 2, 3].map(Cell::Count);
        let columns = ["requests", "errors", "total_ms", "max_us"];
        let table = Table::new("io", columns, [row].into_iter());
        for (width, kept) in [
            (34, &columns[..]),
            (33, &["requests", "total_ms", "max_us"]),
            (20, &["requests", "max_us"]),
            (5, &["requests", "max_us"]),
        ] {
            let mut table = table.clone();
            table.drop_columns(width, &["total_ms"]);
            assert_eq!(table.columns, kept);
            assert_eq!(table.rows[0].len(), kept.len());
        }
    }

    #[test]
    fn a_long_text_does_not_lengthen_each_row() {
        let long = "x".repeat(1 << 20);
        let rows = [long.as_str(), "y", "y", "y"].map(|name| [name.into(), Cell::Count(1)]);
        let table = Table::new("processes", ["name", "count"], rows.into_iter());
        for format in [TableFormat::Text, TableFormat::Json, TableFormat::Csv] {
            let mut out = Vec::new();
            table.write(format, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains(&"x".repeat(MAX_TEXT_BYTES - 3)));
            let most = MAX_TEXT_BYTES + 5 * (MAX_PADDED_WIDTH + 80);
            assert!(text.len() <= most, "{format:?}: {}", text.len());
        }
    }

    #[test]
    fn each_format_escapes_its_special_characters() {
        let text = written(TableFormat::Text);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..2],
            ["pid  name        cpu_ms", "  7  a|b           12.2"]
        );
        assert!(!text.contains('\u{1b}'));
        let csv = written(TableFormat::Csv);
        assert!(
            csv.starts_with("pid,name,cpu_ms\n7,a|b,12.2\n8,'=1+1\\u{9b},-1.0\n123,\"x,\"\"y"),
            "{csv}"
        );
        let markdown = written(TableFormat::Md);
        assert!(
            markdown.starts_with("| pid | name | cpu_ms |\n|---|---|---|\n| 7 | a\\|b | 12.2 |\n")
        );
        let json = written(TableFormat::Json);
        assert!(json.contains("=1+1\\u009b"), "{json}");
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json["rows"][0],
            json!({"pid": 7, "name": "a|b", "cpu_ms": 12.25})
        );
        assert_eq!(json["rows"][2]["name"], json!("x,\"y\u{1b}"));
        assert_eq!(json["rows"][2]["cpu_ms"], Value::Null);
    }
}
