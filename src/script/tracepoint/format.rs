//! The format of a tracepoint: its fields, and how to print them.

use super::expression::{Expression, Parser};
use crate::perf_data::{TracepointField, tracepoint_id};

/// How to print a tracepoint.
pub(super) struct Format {
    pub(super) id: u64,
    pub(super) fields: Vec<TracepointField>,
    /// The format string and its arguments. `None`: unknown, so that all fields are printed.
    pub(super) printed: Option<(String, Vec<Expression>)>,
}

impl Format {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut prints = text
            .lines()
            .filter_map(|line| line.strip_prefix("print fmt:"));
        Some(Self {
            id: tracepoint_id(text)?,
            fields: TracepointField::all(text),
            printed: prints
                .next_back()
                .and_then(|print| Parser::new(print.trim()).print_format()),
        })
    }

    pub(super) fn field(&self, name: &str) -> Option<&TracepointField> {
        self.fields.iter().find(|field| field.name == name)
    }
}
