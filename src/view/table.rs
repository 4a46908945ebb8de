//! A table as text, JSON, Markdown or CSV.

use std::io::{self, Write};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

use crate::output::sanitize::{csv_text, json_text, terminal};

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
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
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
        let is_text = |column: usize| self.rows.iter().any(|row| row[column].is_text());
        let is_text: Vec<bool> = (0..self.columns.len()).map(is_text).collect();
        let cells: Vec<Vec<String>> = self.rows.iter().map(|row| texts(row)).collect();
        let heading = self.columns.iter().map(|&name| name.to_owned()).collect();
        let lines: Vec<&Vec<String>> = [&heading].into_iter().chain(&cells).collect();
        let width = |column: usize| {
            let widths = lines
                .iter()
                .map(|line| textwrap::core::display_width(&line[column]));
            widths.max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        for line in lines {
            let mut text = String::new();
            for (column, cell) in line.iter().enumerate() {
                let padding = widths[column].saturating_sub(textwrap::core::display_width(cell));
                let padding = " ".repeat(padding);
                match is_text[column] {
                    true => text += &format!("{cell}{padding}  "),
                    false => text += &format!("{padding}{cell}  "),
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
