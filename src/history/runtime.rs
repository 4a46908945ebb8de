//! All that the events of one process report, from one pass over the events of all processes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use super::allocations::Allocations;
use super::exceptions::Exceptions;
use super::gc::{CpuTime, GcHistory};
use super::jit::JitCounts;
use super::stack_methods::StackMethods;
use super::thread_pool::ThreadPool;
use super::type_names::TypeNames;
use super::waits::Waits;
use super::{CpuSample, is_from_runtime};
use crate::bytes::Bytes;
use crate::nettrace::EventMetadata;
use crate::trace::{FunctionId, Nanos, Pid, RuntimeEvent, Trace};

/// Maximum number of processes: those with most events.
const MAX_PROCESSES: usize = 100;

/// Ids of the runtime's events.
const TICK: u32 = 10;
const EXCEPTION: u32 = 80;
const CONTENTION_START: u32 = 81;
const CONTENTION_STOP: u32 = 91;
const RUNTIME_START: u32 = 187;
const WAIT_START: u32 = 301;
const WAIT_STOP: u32 = 302;
const ALLOCATION_SAMPLED: u32 = 303;
/// Flag of a runtime with server GC.
const SERVER_GC: u32 = 0x1000;

/// What the events of one process report.
#[derive(Debug, Default)]
pub(crate) struct RuntimeHistory {
    /// Garbage collections.
    pub(crate) gc: GcHistory,
    /// CPU time of the collections.
    pub(crate) cpu: CpuTime,
    /// Compilations.
    pub(crate) jit: JitCounts,
    /// Exceptions.
    pub(crate) exceptions: Exceptions,
    /// Waits for locks.
    pub(crate) contention: Waits,
    /// Waits for anything, of runtimes that report them.
    pub(crate) waits: Waits,
    /// Allocations.
    pub(crate) allocations: Allocations,
    /// The thread pool.
    pub(crate) pool: ThreadPool,
    /// Names of types.
    pub(crate) types: TypeNames,
    /// Whether the runtime was started with server GC, if it reported that.
    pub(crate) is_server_gc: Option<bool>,
}

impl RuntimeHistory {
    fn take(&mut self, event: &RuntimeEvent, methods: &mut StackMethods<'_>) {
        if !is_from_runtime(event) {
            self.jit.take(event);
            return;
        }
        match event.metadata.id {
            TICK => {
                self.gc.take(event);
                let methods = methods.of(event);
                self.allocations.take_tick(event, methods, &mut self.types);
            }
            ALLOCATION_SAMPLED => {
                let methods = methods.of(event);
                self.allocations
                    .take_sample(event, methods, &mut self.types);
            }
            EXCEPTION => self
                .exceptions
                .take(event, methods.of(event), &mut self.types),
            CONTENTION_START => {
                let owner = lock_owner(&event.payload).unwrap_or(0);
                self.contention.start(event, methods.of(event), owner);
            }
            CONTENTION_STOP => {
                let duration = duration_ns(&event.payload);
                self.contention.stop(event, || methods.of(event), duration);
            }
            WAIT_START => self.waits.start(event, methods.of(event), 0),
            WAIT_STOP => self.waits.stop(event, || methods.of(event), None),
            RUNTIME_START => {
                let flags = startup_flags(&event.payload);
                self.is_server_gc = flags.map(|flags| flags & SERVER_GC != 0);
            }
            id if ThreadPool::is_event(id) => {
                self.pool.take(event);
            }
            id if GcHistory::is_event(id) => self.gc.take(event),
            _ => self.jit.take(event),
        }
    }
}

/// Returns whether events of a kind matter.
fn is_wanted(kind: &EventMetadata) -> bool {
    let id = kind.id;
    match kind.provider.as_str() {
        "Microsoft-Windows-DotNETRuntime" => {
            matches!(
                id,
                TICK | EXCEPTION
                    | CONTENTION_START
                    | CONTENTION_STOP
                    | 143
                    | 145
                    | 152
                    | RUNTIME_START
                    | WAIT_START..=ALLOCATION_SAMPLED
            ) || ThreadPool::is_event(id)
                || GcHistory::is_event(id)
        }
        "Microsoft-Windows-DotNETRuntimeRundown" => matches!(id, 153 | 154),
        _ => false,
    }
}

/// Returns what the events of each process report: of the processes with most events.
///
/// `is_own` returns whether a function is the user's.
pub(crate) fn histories(
    trace: &Trace,
    is_own: &dyn Fn(FunctionId) -> bool,
) -> BTreeMap<Pid, RuntimeHistory> {
    let mut histories: BTreeMap<Pid, RuntimeHistory> = BTreeMap::new();
    let busiest = busiest(trace);
    if busiest.is_empty() {
        return histories;
    }
    let mut methods = StackMethods::new(trace, is_own);
    let mut end = Nanos(trace.info.end_ns);
    for event in trace.events.iter_of(is_wanted) {
        if busiest.contains(&event.process) {
            end = end.max(event.time);
            let history = histories.entry(event.process).or_default();
            history.take(&event, &mut methods);
        }
    }
    for history in histories.values_mut() {
        history.contention.finish(end);
        history.waits.finish(end);
        history.cpu = CpuTime::new(&history.gc);
    }
    charge(trace, &mut histories);
    histories
}

/// Returns the processes with most events.
fn busiest(trace: &Trace) -> FxHashSet<Pid> {
    let mut events: BTreeMap<Pid, u64> = BTreeMap::new();
    for stream in trace.events.streams() {
        let count = events.entry(stream.name.process).or_default();
        *count = count.saturating_add(stream.counts.events);
    }
    let mut busiest: Vec<(Pid, u64)> = events.into_iter().collect();
    busiest.retain(|(_, events)| *events > 0);
    busiest.sort_by_key(|(_, events)| Reverse(*events));
    let busiest = busiest.into_iter().take(MAX_PROCESSES);
    busiest.map(|(pid, _)| pid).collect()
}

/// Adds the CPU time of the samples to the collections.
fn charge(trace: &Trace, histories: &mut BTreeMap<Pid, RuntimeHistory>) {
    let mut counters: Vec<(Pid, &mut CpuTime)> = histories
        .iter_mut()
        .filter(|(_, history)| !history.gc.rows.is_empty())
        .map(|(pid, history)| (*pid, &mut history.cpu))
        .collect();
    if counters.is_empty() {
        return;
    }
    let rows: FxHashMap<Pid, usize> = counters.iter().map(|(pid, _)| *pid).zip(0..).collect();
    let threads: Vec<Option<usize>> = trace
        .threads
        .iter()
        .map(|thread| {
            rows.get(&trace.processes[thread.process.index()].pid)
                .copied()
        })
        .collect();
    for sample in trace.samples.iter() {
        if let Some(row) = threads[sample.thread.index()] {
            let (process, cpu) = &mut counters[row];
            cpu.add(&CpuSample {
                process: *process,
                thread: trace.threads[sample.thread.index()].tid,
                time: sample.time,
                ns: sample.weight.0,
            });
        }
    }
}

/// Returns the thread that owns the lock of a `ContentionStart` event, as the runtime identifies it.
fn lock_owner(payload: &[u8]) -> Option<u64> {
    let mut payload = Bytes(payload);
    let _flags_runtime_lock_object = payload.take(1 + 2 + 8 + 8)?;
    payload.u64()
}

/// Returns the duration in a `ContentionStop` event.
fn duration_ns(payload: &[u8]) -> Option<f64> {
    let mut payload = Bytes(payload);
    let _flags_runtime = payload.take(1 + 2)?;
    payload.array().map(f64::from_le_bytes)
}

/// Returns the startup flags in a `RuntimeInformationStart` event.
fn startup_flags(payload: &[u8]) -> Option<u32> {
    let mut payload = Bytes(payload);
    let _versions = payload.take(10 * 2)?;
    payload.u32()
}
