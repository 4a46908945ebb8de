//! The processes of a trace.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::{TOP, kept, ms};
use crate::trace::{Process, Trace};

/// One process instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Process id.
    pub pid: i32,
    /// Process name.
    pub name: String,
    /// Arguments, joined by spaces; empty if unknown.
    pub command_line: String,
    /// Number of samples.
    pub samples: u64,
    /// CPU time of the samples, in milliseconds.
    pub cpu_ms: f64,
}

pub(super) fn rows(trace: &Trace, totals: Vec<(u64, u64)>) -> Vec<ProcessSummary> {
    let mut rows: Vec<(&Process, u64, u64)> = trace
        .processes
        .iter()
        .zip(totals)
        .map(|(process, (samples, ns))| (process, samples, ns))
        .collect();
    rows.sort_by_key(|(process, _, ns)| (Reverse(*ns), process.pid));
    rows.truncate(TOP);
    let summary = |(process, samples, ns): (&Process, u64, u64)| ProcessSummary {
        pid: process.pid.0,
        name: kept(&process.name),
        command_line: kept(&process.command_line),
        samples,
        cpu_ms: ms(ns),
    };
    rows.into_iter().map(summary).collect()
}
