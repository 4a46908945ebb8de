//! The processes of a trace.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{TOP, kept, ms};
use crate::trace::{Process, Trace};

/// Host of .NET programs.
const DOTNET: &str = "dotnet";

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
    /// The samples by kind of work.
    #[serde(default)]
    pub work: Work,
}

impl ProcessSummary {
    /// Returns the name of the program: for a .NET program that `dotnet` runs, that of its assembly.
    #[must_use]
    pub fn program(&self) -> &str {
        let mut files = self.command_line.split(' ').map(|word| {
            let file = word.rsplit('/').next();
            file.unwrap_or(word)
        });
        let hosted = match files.next() {
            Some(DOTNET) => files.find_map(|file| file.strip_suffix(".dll")),
            _ => None,
        };
        hosted.unwrap_or(&self.name)
    }
}

pub(super) fn rows(trace: &Trace, totals: Vec<(u64, u64)>, work: &[Work]) -> Vec<ProcessSummary> {
    let rows = trace.processes.iter().zip(totals).zip(work);
    let mut rows: Vec<_> = rows
        .map(|((process, (samples, ns)), work)| (process, samples, ns, *work))
        .collect();
    rows.sort_by_key(|(process, _, ns, _)| (Reverse(*ns), process.pid));
    rows.truncate(TOP);
    let summary = |(process, samples, ns, work): (&Process, u64, u64, Work)| ProcessSummary {
        pid: process.pid.0,
        name: kept(&process.name),
        command_line: kept(&process.command_line),
        samples,
        cpu_ms: ms(ns),
        work,
    };
    rows.into_iter().map(summary).collect()
}
