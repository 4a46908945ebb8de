//! The summary of a trace: the content of `summary.json` and the source of the reports.

use std::borrow::Cow;

use perfcollect_symbols::build_id::BuildId;
use serde::{Deserialize, Serialize};

use super::label::{self, Interner};
use super::sanitize;
use super::time_zero::TimeZero;
use crate::trace::{
    CaptureInfo, FunctionKind, Module, NameCount, Process, Quality, StackId, Trace,
};

/// Version of the format. Readers reject a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// Maximum number of rows per sort order of a list.
const TOP: usize = 50;

/// Maximum number of ELF files.
pub(crate) const MAX_MODULES: usize = 200;

/// Summary of a trace. Names of the target are not escaped: escape them for display.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// Description of the capture.
    pub info: CaptureInfo,
    /// PerfView's time zero, in nanoseconds on the clock of the trace; `None` in older traces.
    #[serde(default)]
    pub time_zero_ns: Option<i64>,
    /// Whether more than 10 % was lost. The trace may then misrepresent the target.
    #[serde(default)]
    pub incomplete: bool,
    /// Number of samples in the trace.
    pub samples: u64,
    /// CPU time of the samples, in milliseconds.
    pub cpu_ms: f64,
    /// Counts of recorded and lost data.
    pub quality: Quality,
    /// ELF files with code in a stack: at most 200, those with most frames.
    #[serde(default)]
    pub modules: Vec<ModuleSummary>,
    /// Number of processes with samples.
    pub process_count: u64,
    /// The processes with most CPU time.
    pub processes: Vec<ProcessSummary>,
    /// Number of methods in stacks.
    pub method_count: u64,
    /// The 50 methods with most total samples, and 50 others with most self samples.
    ///
    /// Sorted by self samples.
    pub methods: Vec<MethodSummary>,
}

/// One ELF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSummary {
    /// Path in the mount namespace of a process that mapped the file.
    pub path: String,
    /// Build id in hexadecimal, which identifies the debug file on servers.
    pub build_id: Option<BuildId>,
    /// Whether the file, or a debug file on this host, has a symbol table.
    pub has_symbols: bool,
    /// Symbolized and unresolved frames, counted once per sample.
    pub frames: NameCount,
}

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

/// One method with all its tiers, one function without a name, or one address outside functions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// Name. Without one, the offset of the function in its module, or the offset of the address if
    /// the start of the function is unknown.
    pub name: String,
    /// Whether `name` is an offset.
    #[serde(default)]
    pub is_offset: bool,
    /// Module, or the kind of code if it has no module.
    pub module: String,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether the method was inlined in all its frames.
    #[serde(default)]
    pub inlined: bool,
    /// Samples with the method as leaf.
    pub self_samples: u64,
    /// Samples with the method in the stack, each counted once.
    pub total_samples: u64,
}

impl Summary {
    /// Returns whether the trace has events and no samples.
    #[must_use]
    pub fn has_only_events(&self) -> bool {
        self.samples == 0 && !self.quality.events.is_empty()
    }

    /// Creates the summary of a trace.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let samples = SampleCounts::for_trace(trace);
        let methods = methods(trace, &samples.by_stack);
        Self {
            format_version: FORMAT_VERSION,
            info: trace.info.clone(),
            time_zero_ns: Some(TimeZero::new(trace).unshifted()),
            incomplete: trace.quality.losses.is_incomplete(),
            samples: trace.samples.len() as u64,
            cpu_ms: ms(samples.by_process.iter().map(|(_, ns)| ns).sum()),
            quality: trace.quality.clone(),
            modules: modules(trace),
            process_count: trace.processes.len() as u64,
            processes: processes(trace, samples.by_process),
            method_count: methods.len() as u64,
            methods: top_methods(methods),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn kept(text: &str) -> String {
    sanitize::truncate_distinct(text).into_owned()
}

fn modules(trace: &Trace) -> Vec<ModuleSummary> {
    let summary = |module: &Module| ModuleSummary {
        path: kept(&module.path),
        build_id: module.build_id.clone(),
        has_symbols: module.has_symbols,
        frames: module.frames,
    };
    let modules = trace.modules.iter().take(MAX_MODULES);
    modules.map(summary).collect()
}

/// Sample counts per process and per stack, from one pass over the samples.
struct SampleCounts {
    /// Number of samples, and their nanoseconds of CPU time.
    by_process: Vec<(u64, u64)>,
    by_stack: Vec<u64>,
}

impl SampleCounts {
    fn for_trace(trace: &Trace) -> Self {
        let mut by_process = vec![(0, 0); trace.processes.len()];
        let mut by_stack = vec![0; trace.stacks.len()];
        for sample in trace.samples.iter() {
            let process = trace.threads[sample.thread.index()].process;
            let (samples, ns) = &mut by_process[process.index()];
            *samples += 1;
            *ns = u64::saturating_add(*ns, sample.weight.0);
            if let Some(samples) = by_stack.get_mut(sample.stack.index()) {
                *samples += 1;
            }
        }
        Self {
            by_process,
            by_stack,
        }
    }
}

fn processes(trace: &Trace, totals: Vec<(u64, u64)>) -> Vec<ProcessSummary> {
    let mut rows: Vec<(&Process, u64, u64)> = trace
        .processes
        .iter()
        .zip(totals)
        .map(|(process, (samples, ns))| (process, samples, ns))
        .collect();
    rows.sort_by_key(|(process, _, ns)| (std::cmp::Reverse(*ns), process.pid));
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

/// Identity of a method. All its tiers and inlined copies share it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Method<'a> {
    name: Cow<'a, str>,
    module: &'a str,
}

#[derive(Clone, Copy)]
struct Counts {
    kind: FunctionKind,
    is_offset: bool,
    inlined: bool,
    own: u64,
    total: u64,
    /// The last stack that was counted. A recursive method counts once per stack.
    last_stack: usize,
}

fn methods<'a>(trace: &'a Trace, samples_of: &[u64]) -> Vec<(Method<'a>, Counts)> {
    let with_samples = samples_of
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0);
    let mut names = Interner::new(trace);
    let mut counts: Vec<Counts> = Vec::new();
    for (stack, &samples) in with_samples {
        let mut is_leaf = true;
        for frame in trace.stacks.leaf_first(StackId(stack as u32)) {
            let places = trace.frames[frame.index()].functions.clone();
            let outermost = places.start;
            for place in places.rev() {
                let code = || &trace.functions[trace.frame_functions[place as usize].index()];
                let row = names.row(trace, place, |function| Method {
                    name: label::name(trace, frame, function),
                    module: label::module(code()),
                });
                if row as usize == counts.len() {
                    counts.push(Counts {
                        kind: code().kind,
                        is_offset: label::known_name(code()).is_none(),
                        inlined: true,
                        own: 0,
                        total: 0,
                        last_stack: usize::MAX,
                    });
                }
                let count = &mut counts[row as usize];
                count.inlined &= place != outermost;
                if std::mem::take(&mut is_leaf) {
                    count.own += samples;
                }
                if count.last_stack != stack {
                    count.last_stack = stack;
                    count.total += samples;
                }
            }
        }
    }
    let methods = names.into_rows().into_iter().zip(counts);
    methods
        .filter(|(_, counts)| counts.kind != FunctionKind::Marker)
        .collect()
}

/// Returns the first methods by total and by self samples, sorted by self samples.
fn top_methods(mut methods: Vec<(Method<'_>, Counts)>) -> Vec<MethodSummary> {
    let (by_total, by_own) = (|c: &Counts| (c.total, c.own), |c: &Counts| (c.own, c.total));
    sort_busiest_first(&mut methods, by_total);
    let mut rest = methods.split_off(methods.len().min(TOP));
    sort_busiest_first(&mut rest, by_own);
    rest.truncate(TOP);
    methods.append(&mut rest);
    sort_busiest_first(&mut methods, by_own);
    let summary = |(method, counts): (Method<'_>, Counts)| MethodSummary {
        name: kept(&method.name),
        is_offset: counts.is_offset,
        module: kept(method.module),
        kind: counts.kind,
        inlined: counts.inlined,
        self_samples: counts.own,
        total_samples: counts.total,
    };
    methods.into_iter().map(summary).collect()
}

fn sort_busiest_first(methods: &mut [(Method<'_>, Counts)], key: fn(&Counts) -> (u64, u64)) {
    methods.sort_by(|(a, counts_a), (b, counts_b)| {
        let busiest_first = key(counts_b).cmp(&key(counts_a));
        busiest_first.then_with(|| (a.module, &a.name).cmp(&(b.module, &b.name)))
    });
}
