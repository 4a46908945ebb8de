//! Exceptions of a process.

use serde::{Deserialize, Serialize};

use super::{Context, MethodPair, largest, type_name};
use crate::history::Exceptions;

/// Exceptions that a process threw. Their messages are not kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExceptionSummary {
    /// Number of exceptions.
    pub count: u64,
    /// Number per second.
    pub per_second: f64,
    /// The most frequent types and methods.
    pub rows: Vec<ExceptionRow>,
}

/// Exceptions of one type that one method threw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ExceptionRow {
    /// Type; empty if it is unknown.
    pub type_name: String,
    /// The methods that threw it.
    pub methods: MethodPair,
    /// Number of exceptions.
    pub count: u64,
}

pub(super) fn summary(
    context: &Context<'_>,
    exceptions: &Exceptions,
    types: &[String],
) -> Option<ExceptionSummary> {
    let rows = exceptions.rows.rows().map(|(&(kind, methods), &count)| {
        let key = (type_name(types, kind), context.methods(methods));
        (key, count)
    });
    let rows = largest(rows, |sum, count| *sum += count, |count| *count);
    let row = |((type_name, methods), count)| ExceptionRow {
        type_name,
        methods,
        count,
    };
    (exceptions.count > 0).then(|| ExceptionSummary {
        count: exceptions.count,
        per_second: context.per_second(exceptions.count),
        rows: rows.into_iter().map(row).collect(),
    })
}
