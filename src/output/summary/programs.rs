//! The programs of a trace: processes with the same name.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::processes::program_of;
use super::{TOP, kept, ms};
use crate::trace::Trace;

/// All processes of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramSummary {
    /// Name of the program: for a .NET program that `dotnet` runs, that of its assembly.
    pub name: String,
    /// Number of processes with samples.
    pub processes: u64,
    /// Process id of the one with most CPU time.
    pub pid: i32,
    /// Number of samples.
    pub samples: u64,
    /// CPU time of the samples, in milliseconds.
    pub cpu_ms: f64,
}

#[derive(Clone, Copy, Default)]
struct Totals {
    processes: u64,
    samples: u64,
    ns: u64,
    /// Nanoseconds and process id of the process with most CPU time.
    most: (u64, i32),
}

/// Returns the programs with most CPU time. `totals`: samples and nanoseconds of each process.
pub(super) fn rows(trace: &Trace, totals: &[Option<(u64, u64)>]) -> Vec<ProgramSummary> {
    let mut programs: HashMap<&str, Totals> = HashMap::new();
    for (process, totals) in trace.processes.iter().zip(totals) {
        let Some((samples, ns)) = *totals else {
            continue;
        };
        let name = program_of(&process.name, &process.command_line);
        let program = programs.entry(name).or_default();
        program.processes += 1;
        program.samples += samples;
        program.ns = program.ns.saturating_add(ns);
        program.most = program.most.max((ns, process.pid.0));
    }
    let mut programs: Vec<(&str, Totals)> = programs.into_iter().collect();
    programs.sort_by_key(|&(name, totals)| (Reverse(totals.ns), name));
    programs.truncate(TOP);
    let row = |(name, totals): (&str, Totals)| ProgramSummary {
        name: kept(name),
        processes: totals.processes,
        pid: totals.most.1,
        samples: totals.samples,
        cpu_ms: ms(totals.ns),
    };
    programs.into_iter().map(row).collect()
}
