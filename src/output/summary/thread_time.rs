//! Where threads spent the time without a CPU.

use std::cmp::Reverse;

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::code_place::CodePlace;
use super::{TOP, kept, ms};
use crate::output::own_code::OwnCode;
use crate::trace::{
    FunctionId, FunctionKind, IDLE, Sample, StackId, ThreadId, Tid, Trace, reason_of,
};

/// Parts of the capture: a place in which all threads together were for less is only counted.
const MIN_PART: u64 = 1000;
/// Maximum number of reasons of a thread.
const MAX_REASONS: usize = 16;
/// Maximum number of threads.
const MAX_THREADS: usize = 500;
/// Name of the threads of the .NET thread pool that run work.
const POOL_THREAD: &str = ".NET TP Worker";

/// Where threads spent the time without a CPU, if the capture followed that.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTime {
    /// All of the time, in milliseconds.
    pub ms: f64,
    /// The reasons, and their times. `idle` is a thread without a function of the user on its stack,
    /// `ready` and `preempted` one that waited for a CPU, `throttled` one whose control group had used up its
    /// CPU time, `unseen` a short one that ended before a look.
    pub reasons: Vec<ReasonTime>,
    /// The threads with most of it: at most 500.
    pub threads: Vec<ThreadTimeRow>,
    /// The places with most of it: at most 50, and at least a thousandth of the length of the capture each.
    /// What is idle is last.
    pub places: Vec<PlaceTime>,
    /// Number of all places.
    pub place_count: u64,
}

/// Time without a CPU for a reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ReasonTime {
    /// The reason, such as `lock`, `socket` or `ready`.
    pub reason: String,
    /// Milliseconds.
    pub ms: f64,
}

/// A thread and where its time went.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadTimeRow {
    /// Process id.
    pub pid: i32,
    /// Thread id.
    pub tid: i32,
    /// Name. Untrusted.
    pub name: String,
    /// CPU time of its samples, in milliseconds.
    pub cpu_ms: f64,
    /// Time without a CPU, in milliseconds.
    pub ms: f64,
    /// The same by reason.
    pub reasons: Vec<ReasonTime>,
}

/// A function of the user, or else of the stack, in which threads had no CPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlaceTime {
    /// Process id.
    pub pid: i32,
    /// Name of the process, which may have no samples. Untrusted.
    #[serde(default)]
    pub process: String,
    /// The reason.
    pub reason: String,
    /// Module of the method. Untrusted.
    pub module: String,
    /// The innermost function of the user, or else of the stack. Untrusted; empty if the stack is not known.
    pub method: String,
    /// Whether it is the user's.
    pub own: bool,
    /// Milliseconds of all threads.
    pub ms: f64,
    /// Number of threads.
    pub threads: u64,
    /// Number of these that are of the .NET thread pool.
    #[serde(default)]
    pub pool_threads: u64,
}

impl ThreadTime {
    /// Returns that of a trace, or `None` if the capture did not follow it.
    pub(super) fn of(trace: &Trace, own_code: &OwnCode) -> Option<Self> {
        if trace.blocked.is_empty() {
            return None;
        }
        let mut stacks: FxHashMap<StackId, Place> = FxHashMap::default();
        let mut by_thread: FxHashMap<ThreadId, FxHashMap<Reason, u64>> = FxHashMap::default();
        let mut by_place: FxHashMap<(i32, Place), FxHashMap<ThreadId, u64>> = FxHashMap::default();
        for wait in trace.blocked.iter() {
            let Sample {
                thread,
                stack,
                weight,
                ..
            } = wait;
            let place = *stacks
                .entry(stack)
                .or_insert_with(|| Place::of(trace, own_code, stack));
            let process = trace.threads[thread.index()].process;
            let pid = trace.processes[process.index()].pid.0;
            let reasons = by_thread.entry(thread).or_default();
            *reasons.entry(place.reason).or_default() += weight.0;
            let threads = by_place.entry((pid, place)).or_default();
            *threads.entry(thread).or_default() += weight.0;
        }
        let names: FxHashMap<i32, &str> = trace
            .processes
            .iter()
            .map(|row| (row.pid.0, &*row.name))
            .collect();
        let mut cpu: FxHashMap<ThreadId, u64> = FxHashMap::default();
        for sample in trace.samples.iter() {
            *cpu.entry(sample.thread).or_default() += sample.weight.0;
        }
        let mut all: FxHashMap<Reason, u64> = FxHashMap::default();
        for (reason, ns) in by_thread.values().flatten() {
            *all.entry(*reason).or_default() += ns;
        }
        let mut threads: Vec<_> = by_thread
            .into_iter()
            .map(|(thread, reasons)| {
                let ns: u64 = reasons.values().sum();
                (thread, ns, reasons)
            })
            .collect();
        threads.sort_by_key(|(thread, ns, _)| (Reverse(*ns), *thread));
        threads.truncate(MAX_THREADS);
        let threads = threads.into_iter().map(|(thread, ns, reasons)| {
            let row = &trace.threads[thread.index()];
            ThreadTimeRow {
                pid: trace.processes[row.process.index()].pid.0,
                tid: row.tid.0,
                name: kept(&row.name),
                cpu_ms: ms(cpu.get(&thread).copied().unwrap_or_default()),
                ms: ms(ns),
                reasons: rows(trace, &reasons),
            }
        });
        let mut places: Vec<_> = by_place
            .into_iter()
            .map(|((pid, place), threads)| {
                let pool = threads.keys();
                let pool = pool.filter(|id| &*trace.threads[id.index()].name == POOL_THREAD);
                // One that executes another program stays the same thread.
                let tids = threads.keys().map(|id| trace.threads[id.index()].tid);
                let counts = [tids.collect::<FxHashSet<Tid>>().len(), pool.count()];
                (pid, place, threads.values().sum::<u64>(), counts)
            })
            .collect();
        places.sort_by_key(|(pid, place, ns, _)| {
            let is_idle = reason(trace, place.reason) == IDLE;
            (is_idle, Reverse(*ns), *pid, *place)
        });
        let place_count = places.len() as u64;
        let least = trace.info.duration_ns() / MIN_PART;
        places.retain(|(_, _, ns, _)| *ns >= least);
        places.truncate(TOP);
        let places = places.into_iter().map(|(pid, place, ns, counts)| {
            let [threads, pool_threads] = counts.map(|count| count as u64);
            let [module, method] = place.code.names(trace);
            PlaceTime {
                pid,
                process: names.get(&pid).copied().map_or_else(String::new, kept),
                reason: reason(trace, place.reason),
                module,
                method,
                own: place.code.own,
                ms: ms(ns),
                threads,
                pool_threads,
            }
        });
        Some(Self {
            ms: ms(all.values().sum()),
            reasons: rows(trace, &all),
            threads: threads.collect(),
            places: places.collect(),
            place_count,
        })
    }

    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(super) fn truncate(&mut self) {
        self.reasons.truncate(MAX_REASONS);
        self.threads.truncate(MAX_THREADS);
        self.places.truncate(TOP);
        for place in &mut self.places {
            place.process = kept(&place.process);
        }
        for thread in &mut self.threads {
            thread.reasons.truncate(MAX_REASONS);
            thread.name = kept(&thread.name);
        }
        let reasons = self
            .threads
            .iter_mut()
            .flat_map(|thread| &mut thread.reasons);
        for row in self.reasons.iter_mut().chain(reasons) {
            row.reason = kept(&row.reason);
        }
        for place in &mut self.places {
            for text in [&mut place.reason, &mut place.module, &mut place.method] {
                *text = kept(text);
            }
        }
    }
}

/// The function that represents a reason; `None` if a stack has none.
type Reason = Option<FunctionId>;

/// What is shown of a stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    reason: Reason,
    code: CodePlace,
}

impl Place {
    fn of(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        let frames = trace.stacks.leaf_first(stack);
        let mut functions = frames.flat_map(|frame| trace.functions_leaf_first(frame));
        let is_reason = |id: &FunctionId| trace.functions[id.index()].kind == FunctionKind::Blocked;
        Self {
            reason: functions.next().filter(is_reason),
            code: CodePlace::of(trace, own_code, stack),
        }
    }
}

/// Returns the reason in the name of a function such as `[lock: futex]`.
fn reason(trace: &Trace, function: Reason) -> String {
    let name = function.and_then(|id| trace.functions[id.index()].name.as_deref());
    kept(reason_of(name.unwrap_or("[blocked]")))
}

/// Returns the times by reason, the longest first. Several system calls may have the same.
fn rows(trace: &Trace, times: &FxHashMap<Reason, u64>) -> Vec<ReasonTime> {
    let mut by_name: FxHashMap<String, u64> = FxHashMap::default();
    for (function, ns) in times {
        *by_name.entry(reason(trace, *function)).or_default() += ns;
    }
    let mut rows: Vec<_> = by_name.into_iter().collect();
    rows.sort_by(|(a, a_ns), (b, b_ns)| b_ns.cmp(a_ns).then_with(|| a.cmp(b)));
    rows.truncate(MAX_REASONS);
    let row = |(reason, ns)| ReasonTime { reason, ms: ms(ns) };
    rows.into_iter().map(row).collect()
}
