//! The processes of a trace.

use std::cmp::Reverse;

use serde::{Deserialize, Serialize};

use super::work::Work;
use super::{TOP, kept, ms};
use crate::trace::{Process, Trace};

/// Host of .NET programs.
const DOTNET: &str = "dotnet";

/// One process, as the last program that it executed.
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
        program_of(&self.name, &self.command_line)
    }
}

/// Returns the name of the program of a process.
pub(crate) fn program_of<'a>(name: &'a str, command_line: &'a str) -> &'a str {
    let (_, hosted) = programs(command_line);
    hosted.unwrap_or(name)
}

/// Returns the file of the program, and the assembly that it runs, if it is `dotnet`.
fn programs(command_line: &str) -> (&str, Option<&str>) {
    let mut files = command_line.split(' ').map(|word| {
        let file = word.rsplit('/').next();
        file.unwrap_or(word)
    });
    let program = files.next().unwrap_or_default();
    let hosted = match program {
        DOTNET => files.find_map(|file| file.strip_suffix(".dll")),
        _ => None,
    };
    (program, hosted)
}

/// Returns whether `selector` is the name of a process or its program, in any case.
///
/// The program of `dotnet` is the assembly that it runs, with or without `.dll`. Arguments do not
/// count.
pub(crate) fn is_program(name: &str, command_line: &str, selector: &str) -> bool {
    let (program, hosted) = programs(command_line);
    let is_same = |name: &str| name.eq_ignore_ascii_case(selector);
    let selector_in_lower = selector.to_ascii_lowercase();
    let assembly = selector_in_lower.trim_end_matches(".dll");
    let is_hosted = |hosted: &str| hosted.eq_ignore_ascii_case(assembly);
    is_same(name) || is_same(program) || hosted.is_some_and(is_hosted)
}

/// Returns the processes with most CPU time. `totals`: samples and nanoseconds of each process.
pub(super) fn rows(
    trace: &Trace,
    totals: Vec<Option<(u64, u64)>>,
    work: &[Work],
) -> Vec<ProcessSummary> {
    let rows = trace.processes.iter().zip(totals).zip(work);
    let mut rows: Vec<_> = rows
        .filter_map(|((process, totals), work)| {
            let (samples, ns) = totals?;
            Some((process, samples, ns, *work))
        })
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
