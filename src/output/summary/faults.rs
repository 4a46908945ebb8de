//! Page faults: which code touches memory for the first time.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::code_place::CodePlace;
use super::{TOP, kept};
use crate::output::own_code::OwnCode;
use crate::trace::{ProcessId, StackId, Trace};

/// Page faults, if the capture sampled them (`-faults`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultSummary {
    /// Number of page faults: the sum of what the samples stand for.
    pub faults: u64,
    /// Number of samples.
    pub samples: u64,
    /// Size of a page, in bytes.
    pub page_bytes: u64,
    /// The processes with most of them: at most 50.
    pub processes: Vec<ProcessFaults>,
    /// The functions with most of them: at most 50, those of the user first.
    pub methods: Vec<MethodFaults>,
    /// Number of all functions with page faults.
    pub method_count: u64,
}

/// Page faults of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessFaults {
    /// Process id.
    pub pid: i32,
    /// Name. Untrusted.
    pub name: String,
    /// Number of page faults.
    pub faults: u64,
}

/// Page faults of a function: the innermost one of the user on the stack, or else of the stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodFaults {
    /// Process id.
    pub pid: i32,
    /// Module. Untrusted.
    pub module: String,
    /// Name. Untrusted; empty if the stack is not known.
    pub method: String,
    /// Whether it is the user's.
    pub own: bool,
    /// Number of page faults.
    pub faults: u64,
}

impl FaultSummary {
    /// Returns that of a trace, or `None` if it has no page faults.
    pub(super) fn of(
        trace: &Trace,
        own_code: &OwnCode,
        last_programs: &[ProcessId],
    ) -> Option<Self> {
        if trace.faults.is_empty() {
            return None;
        }
        let mut stacks: FxHashMap<StackId, CodePlace> = FxHashMap::default();
        let mut by_process: FxHashMap<ProcessId, u64> = FxHashMap::default();
        let mut by_place: FxHashMap<(ProcessId, CodePlace), u64> = FxHashMap::default();
        let mut all: u64 = 0;
        for sample in trace.faults.iter() {
            let place = *stacks
                .entry(sample.stack)
                .or_insert_with(|| CodePlace::of(trace, own_code, sample.stack));
            let process = trace.threads[sample.thread.index()].process;
            let process = last_programs[process.index()];
            let counts = [
                by_process.entry(process).or_default(),
                by_place.entry((process, place)).or_default(),
                &mut all,
            ];
            for count in counts {
                *count = count.saturating_add(sample.weight.0);
            }
        }
        let row_of = |process: ProcessId| &trace.processes[process.index()];
        // A method has a function for each tier.
        let mut by_method: FxHashMap<_, u64> = FxHashMap::default();
        for ((process, place), faults) in by_place {
            let names = place.names(trace);
            let all = by_method.entry((process, place.own, names)).or_default();
            *all = all.saturating_add(faults);
        }
        let mut processes: Vec<_> = by_process.into_iter().collect();
        processes.sort_by_key(|&(process, faults)| (Reverse(faults), process));
        processes.truncate(TOP);
        let processes = processes
            .into_iter()
            .map(|(process, faults)| ProcessFaults {
                pid: row_of(process).pid.0,
                name: kept(&row_of(process).name),
                faults,
            });
        let method_count = by_method.len() as u64;
        let methods = by_method.into_iter();
        let methods = methods.map(|((process, own, [module, method]), faults)| MethodFaults {
            pid: row_of(process).pid.0,
            module,
            method,
            own,
            faults,
        });
        let mut methods: Vec<_> = methods.collect();
        methods.sort_by(|a, b| {
            let key = |row: &MethodFaults| (!row.own, Reverse(row.faults), row.pid);
            let by_name = || (&a.module, &a.method).cmp(&(&b.module, &b.method));
            key(a).cmp(&key(b)).then_with(by_name)
        });
        methods.truncate(TOP);
        Some(Self {
            faults: all,
            samples: trace.faults.len() as u64,
            page_bytes: rustix::param::page_size() as u64,
            processes: processes.collect(),
            methods,
            method_count,
        })
    }

    /// Returns about how many bytes a number of page faults made present, in units of 1e6 bytes.
    ///
    /// Each fault counts as one page: a huge page, and pages of a file that the kernel maps together, are
    /// more.
    #[must_use]
    pub fn megabytes(&self, faults: u64) -> f64 {
        faults as f64 * self.page_bytes as f64 / 1e6
    }

    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(super) fn truncate(&mut self) {
        self.processes.truncate(TOP);
        self.methods.truncate(TOP);
        for process in &mut self.processes {
            process.name = kept(&process.name);
        }
        for row in &mut self.methods {
            for text in [&mut row.module, &mut row.method] {
                *text = kept(text);
            }
        }
    }
}
