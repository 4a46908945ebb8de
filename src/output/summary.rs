//! The summary of a trace: what `summary.json` holds and the reports print.

use std::borrow::Cow;

use perfcollect_symbols::build_id::BuildId;
use serde::{Deserialize, Serialize};

use super::label::{self, Interner};
use super::sanitize;
use super::time_zero::TimeZero;
use crate::trace::{
    CaptureInfo, FunctionKind, Module, NameCount, Process, Quality, StackId, Trace,
};

/// Version of the format; readers refuse a higher one.
pub const FORMAT_VERSION: u32 = 1;

/// Rows kept of each order of a list.
const TOP: usize = 50;

/// ELF files kept.
const MAX_MODULES: usize = 200;

/// What a trace says at a glance. Names are as the target has them: escape them where they are shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// [`FORMAT_VERSION`] of the writer.
    pub format_version: u32,
    /// How the trace came to be.
    pub info: CaptureInfo,
    /// The moment from which PerfView counts, in nanoseconds on the clock of the trace; `None` in traces of before.
    #[serde(default)]
    pub time_zero_ns: Option<i64>,
    /// Whether over 10 % of what happened was lost: what the trace shows may be far from it.
    #[serde(default)]
    pub incomplete: bool,
    /// Samples in the trace.
    pub samples: u64,
    /// CPU time they stand for, in milliseconds.
    pub cpu_ms: f64,
    /// What was kept and lost.
    pub quality: Quality,
    /// ELF files with code in a stack; the 200 with most frames, at most.
    #[serde(default)]
    pub modules: Vec<ModuleSummary>,
    /// Processes with samples.
    pub process_count: u64,
    /// The processes with most CPU time.
    pub processes: Vec<ProcessSummary>,
    /// Methods in any stack.
    pub method_count: u64,
    /// The 50 methods in most samples and, of the others, the 50 with most samples of their own; these first.
    pub methods: Vec<MethodSummary>,
}

/// One ELF file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleSummary {
    /// Its path in the mount namespace of a process that had it mapped.
    pub path: String,
    /// Its build id in hexadecimal, by which debug files are asked for.
    pub build_id: Option<BuildId>,
    /// Whether it, or a debug file that was found, has a symbol table.
    pub has_symbols: bool,
    /// How many of its frames have names, each counted once for each sample it is in.
    pub frames: NameCount,
}

/// One process life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcessSummary {
    /// Its id.
    pub pid: i32,
    /// Its name.
    pub name: String,
    /// Its arguments, joined by spaces; empty if unknown.
    pub command_line: String,
    /// Its samples.
    pub samples: u64,
    /// CPU time they stand for, in milliseconds.
    pub cpu_ms: f64,
}

/// One method, whatever tiers it was compiled in; one function without a name; or one code address in none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MethodSummary {
    /// Its name; where it has none the offset in its module, at which it starts if that is known.
    pub name: String,
    /// Whether that is an offset.
    #[serde(default)]
    pub is_offset: bool,
    /// Its module; its kind of code where there is none.
    pub module: String,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether it was inlined wherever it was met.
    #[serde(default)]
    pub inlined: bool,
    /// Samples in which it ran itself.
    pub self_samples: u64,
    /// Samples in which it is in the stack, each counted once.
    pub total_samples: u64,
}

impl Summary {
    /// Whether there are events, and not one sample.
    #[must_use]
    pub fn has_only_events(&self) -> bool {
        self.samples == 0 && !self.quality.events.is_empty()
    }

    /// Sums a trace up.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let samples = Samples::of(trace);
        let methods = methods(trace, &samples.of_stack);
        Self {
            format_version: FORMAT_VERSION,
            info: trace.info.clone(),
            time_zero_ns: Some(TimeZero::of(trace).unmoved()),
            incomplete: trace.quality.losses.is_incomplete(),
            samples: trace.samples.len() as u64,
            cpu_ms: ms(samples.of_process.iter().map(|(_, ns)| ns).sum()),
            quality: trace.quality.clone(),
            modules: modules(trace),
            process_count: trace.processes.len() as u64,
            processes: processes(trace, samples.of_process),
            method_count: methods.len() as u64,
            methods: top_methods(methods),
        }
    }
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn kept(text: &str) -> String {
    sanitize::distinct(text).into_owned()
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

/// The samples counted, in one pass.
struct Samples {
    /// How many, and the nanoseconds they stand for.
    of_process: Vec<(u64, u64)>,
    of_stack: Vec<u64>,
}

impl Samples {
    fn of(trace: &Trace) -> Self {
        let mut of_process = vec![(0, 0); trace.processes.len()];
        let mut of_stack = vec![0; trace.stacks.len()];
        for sample in trace.samples.iter() {
            let process = trace.threads[sample.thread.index()].process;
            let (samples, ns) = &mut of_process[process.index()];
            *samples += 1;
            *ns += sample.weight.0;
            if let Some(samples) = of_stack.get_mut(sample.stack.index()) {
                *samples += 1;
            }
        }
        Self {
            of_process,
            of_stack,
        }
    }
}

fn processes(trace: &Trace, sums: Vec<(u64, u64)>) -> Vec<ProcessSummary> {
    let mut rows: Vec<(&Process, u64, u64)> = trace
        .processes
        .iter()
        .zip(sums)
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

/// A method as its users know it: its tiers are one, its inlined copies too.
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
    /// The last stack that counted it: recursion counts once.
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
    let methods = names.rows.into_iter().zip(counts);
    methods
        .filter(|(_, counts)| counts.kind != FunctionKind::Marker)
        .collect()
}

/// The methods at the top of either order, by their own samples.
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
