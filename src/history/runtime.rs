//! All that the events of one process report, from one pass over the events of all processes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::allocations::Allocations;
use super::awaits::{Awaiter, Awaits, is_about_awaits};
use super::exceptions::Exceptions;
use super::gc::{CpuTime, GcHistory};
use super::jit::JitCounts;
use super::network::{Network, is_about_network};
use super::requests::{Requests, is_about_requests};
use super::stack_methods::StackMethods;
use super::thread_pool::{ITEM_QUEUED, ITEM_TAKEN, ThreadPool};
use super::type_names::TypeNames;
use super::waits::Waits;
use super::{CpuSample, RUNTIME, is_from_runtime};
use crate::bytes::Bytes;
use crate::nettrace::EventMetadata;
use crate::trace::{FunctionId, Nanos, NoticeKind, Pid, RuntimeEvent, Trace};

/// Maximum number of processes: those with most events.
pub(crate) const MAX_PROCESSES: usize = 100;
/// Maximum number of collections of all processes, and the number that each may have.
const MAX_COLLECTIONS: usize = 1 << 17;
const MIN_COLLECTIONS: usize = 1 << 12;

/// Time after the end of a capture in which events count, in nanoseconds.
const MAX_LATE_NS: u64 = 1_000_000_000;

/// Providers besides the runtime itself.
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
const FRAMEWORK: &str = "System.Diagnostics.Eventing.FrameworkEventSource";

/// Ids of the runtime's events.
const TICK: u32 = 10;
const EXCEPTION: u32 = 80;
const CONTENTION_START: u32 = 81;
const CONTENTION_STOP: u32 = 91;
const RUNTIME_INFORMATION: u32 = 187;
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
    /// Waits of asynchronous methods.
    pub(crate) awaits: Awaits,
    /// Allocations.
    pub(crate) allocations: Allocations,
    /// The thread pool.
    pub(crate) pool: ThreadPool,
    /// Requests of ASP.NET Core and HttpClient.
    pub(crate) requests: Requests,
    /// Steps of connections.
    pub(crate) network: Network,
    /// Names of types.
    pub(crate) types: TypeNames,
    /// Whether the runtime was started with server GC, if it reported that.
    pub(crate) is_server_gc: Option<bool>,
}

impl RuntimeHistory {
    fn take(&mut self, event: &RuntimeEvent, methods: &mut StackMethods<'_>) {
        if !is_from_runtime(event) {
            match event.metadata.id {
                _ if event.metadata.provider == FRAMEWORK => self.pool.take_item(event),
                RUNTIME_INFORMATION => self.started(event),
                _ if is_about_awaits(&event.metadata) => {
                    let requests = &self.requests;
                    self.awaits.take(event, || Awaiter {
                        methods: methods.of(event),
                        route: requests.incoming_route(event.activity.id),
                    });
                }
                _ if is_about_requests(&event.metadata) => self.requests.take(event),
                _ if is_about_network(&event.metadata) => self.network.take(event),
                _ => self.jit.take(event),
            }
            return;
        }
        if Requests::is_pause(event.metadata.id) {
            self.requests.take_pause(event);
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
            RUNTIME_INFORMATION => self.started(event),
            id if ThreadPool::is_event(id) => {
                self.pool.take(event);
            }
            id if GcHistory::is_event(id) => self.gc.take(event),
            _ => self.jit.take(event),
        }
    }

    fn started(&mut self, event: &RuntimeEvent) {
        let flags = startup_flags(&event.payload);
        self.is_server_gc = flags.map(|flags| flags & SERVER_GC != 0);
    }
}

/// Returns whether events of a kind matter.
fn is_wanted(kind: &EventMetadata) -> bool {
    let id = kind.id;
    match kind.provider.as_str() {
        RUNTIME => {
            matches!(
                id,
                TICK | EXCEPTION
                    | CONTENTION_START
                    | CONTENTION_STOP
                    | 143
                    | 145
                    | 152
                    | RUNTIME_INFORMATION
                    | WAIT_START..=ALLOCATION_SAMPLED
            ) || ThreadPool::is_event(id)
                || GcHistory::is_event(id)
        }
        FRAMEWORK => matches!(id, ITEM_QUEUED | ITEM_TAKEN),
        RUNDOWN => matches!(id, 153 | 154 | RUNTIME_INFORMATION),
        _ => is_about_awaits(kind) || is_about_requests(kind) || is_about_network(kind),
    }
}

/// Returns what the events of each process report: of the processes with most events.
///
/// `is_own` returns whether a function is the user's.
pub(crate) fn histories(
    trace: &Trace,
    is_own: &dyn Fn(FunctionId) -> bool,
) -> BTreeMap<Pid, RuntimeHistory> {
    let busiest = busiest(trace);
    if busiest.is_empty() {
        return BTreeMap::new();
    }
    let max_collections = (MAX_COLLECTIONS / busiest.len()).max(MIN_COLLECTIONS);
    let processes = busiest.len();
    let history = || RuntimeHistory {
        gc: GcHistory::new(max_collections),
        awaits: Awaits::one_of(processes),
        ..RuntimeHistory::default()
    };
    let histories = busiest.into_iter().map(|pid| (pid, history()));
    let mut histories: BTreeMap<Pid, RuntimeHistory> = histories.collect();
    let mut methods = StackMethods::new(trace, is_own);
    let mut last_events: FxHashMap<Pid, Nanos> = FxHashMap::default();
    let end = match trace.info.end_ns {
        0 => u64::MAX,
        end => end.saturating_add(MAX_LATE_NS),
    };
    for event in trace.events.iter_of(is_wanted) {
        // A runtime that goes on while its session ends is not the answer to what the capture was for.
        if event.time.0 > end && event.metadata.provider != RUNDOWN {
            continue;
        }
        if let Some(history) = histories.get_mut(&event.process) {
            let last = last_events.entry(event.process).or_insert(event.time);
            *last = event.time.max(*last);
            history.take(&event, &mut methods);
        }
    }
    for (&pid, history) in &mut histories {
        let last = last_events.get(&pid).copied().unwrap_or_default();
        let end = end_of(trace, pid).max(last);
        history.contention.finish(end);
        history.waits.finish(end);
        history.awaits.finish(end);
        history.requests.finish(end);
        history.network.finish(end);
        history.cpu = CpuTime::new(&history.gc);
    }
    charge(trace, &mut histories);
    histories
}

/// Returns when a process ended, or the end of the capture.
fn end_of(trace: &Trace, pid: Pid) -> Nanos {
    let end = Nanos(trace.info.end_ns);
    let ended = trace.last_process(pid).and_then(|row| row.ended);
    ended.map_or(end, |ended| ended.min(end))
}

/// Returns the processes with most events.
fn busiest(trace: &Trace) -> Vec<Pid> {
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

/// Adds the CPU time of the samples to the collections and requests, and the time without a CPU to the
/// requests.
fn charge(trace: &Trace, histories: &mut BTreeMap<Pid, RuntimeHistory>) {
    if !trace.info.counts_time() {
        return;
    }
    let mut counters: Vec<(Pid, &mut RuntimeHistory)> = histories
        .iter_mut()
        .filter(|(_, history)| !history.gc.rows.is_empty() || !history.requests.rows.is_empty())
        .map(|(pid, history)| (*pid, history))
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
    let mut samples_end = Nanos(trace.info.end_ns);
    for sample in trace.samples.iter() {
        samples_end = samples_end.max(sample.time);
        if let Some(row) = threads[sample.thread.index()] {
            let (process, history) = &mut counters[row];
            let sample = CpuSample {
                process: *process,
                thread: trace.threads[sample.thread.index()].tid,
                time: sample.time,
                ns: sample.weight.0,
            };
            history.cpu.add(&sample);
            history.requests.add_cpu_time(&sample);
        }
    }
    // The events of a capture that was killed may go on for longer than what is left of its spool.
    let notices = &trace.quality.notices;
    let is_recovered = notices.iter().any(|it| it.kind == NoticeKind::Recovered);
    for (_, history) in counters.iter_mut().filter(|_| is_recovered) {
        history.requests.set_samples_end(samples_end);
    }
    for wait in trace.blocked.iter() {
        if let Some(row) = threads[wait.thread.index()]
            // When exactly a thread got work is not known.
            && !trace.is_idle(wait.stack)
        {
            let (_, history) = &mut counters[row];
            let thread = trace.threads[wait.thread.index()].tid;
            let start = Nanos(wait.time.0.saturating_sub(wait.weight.0));
            history.requests.add_wait(thread, start, wait.time);
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

/// Returns the startup flags in a `RuntimeInformation` event.
fn startup_flags(payload: &[u8]) -> Option<u32> {
    let mut payload = Bytes(payload);
    let _versions = payload.take(10 * 2)?;
    payload.u32()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::put_utf16z;
    use crate::history::EventMethods;
    use crate::history::test_events::event;
    use crate::trace::{Process, Tid};

    /// Takes events: id, time in microseconds, thread, payload.
    fn history(events: Vec<(u32, u64, i32, Vec<u8>)>) -> RuntimeHistory {
        let trace = Trace::default();
        let mut methods = StackMethods::new(&trace, &|_| false);
        let mut history = RuntimeHistory::default();
        for (id, time, thread, payload) in events {
            history.take(&event(id, time, thread, payload), &mut methods);
        }
        history.contention.finish(Nanos(1_000_000));
        history
    }

    #[test]
    fn reads_each_kind_of_event() {
        let mut exception = Vec::new();
        put_utf16z(&mut exception, "System.Exception");
        put_utf16z(&mut exception, "why");
        let mut start = vec![0; 1 + 2 + 8 + 8];
        start.extend(42_u64.to_le_bytes());
        let mut stop = vec![0; 3];
        stop.extend(7000_f64.to_le_bytes());
        let mut information = vec![0; 20];
        information.extend(SERVER_GC.to_le_bytes());
        let history = history(vec![
            (RUNTIME_INFORMATION, 1, 0, information),
            (EXCEPTION, 2, 1, exception.clone()),
            (CONTENTION_START, 3, 1, start),
            (EXCEPTION, 4, 2, exception),
            (CONTENTION_STOP, 10, 1, stop),
            // Older runtimes send neither owner nor duration.
            (CONTENTION_START, 11, 2, vec![0; 3]),
            (CONTENTION_STOP, 13, 2, vec![0; 3]),
            (50, 14, 1, 3_u32.to_le_bytes().to_vec()),
        ]);
        assert_eq!(history.types.names(), ["System.Exception"]);
        let mut thrown = history.exceptions.rows.rows();
        let (&(kind, methods), &count) = thrown.next().unwrap();
        assert_eq!((kind.map(|kind| kind.index()), count), (Some(0), 2));
        assert_eq!(methods, EventMethods::default());
        let (_, waits) = history.contention.rows.rows().next().unwrap();
        assert_eq!((waits.ended, waits.ns, waits.unended), (2, 9000, 0));
        assert_eq!(waits.owners, [(42, 7000)]);
        assert_eq!(waits.threads, [Tid(1), Tid(2)]);
        assert_eq!(history.is_server_gc, Some(true));
        assert_eq!((history.pool.started, history.pool.max_threads), (1, 3));
    }

    #[test]
    fn a_process_ends_as_its_last_program_does() {
        let mut trace = Trace::default();
        trace.info.end_ns = 90;
        // It executes a program, which ends; then another process has the id.
        for (pid, ended, expected) in [(7, None, 90), (7, Some(50), 50), (7, None, 90)] {
            trace.processes.push(Process {
                pid: Pid(pid),
                name: "dotnet".into(),
                command_line: "".into(),
                ended: ended.map(Nanos),
            });
            assert_eq!(end_of(&trace, Pid(7)), Nanos(expected));
            assert_eq!(end_of(&trace, Pid(8)), Nanos(90));
        }
    }

    #[test]
    fn truncated_payloads_of_all_kinds_are_accepted() {
        for bytes in 0..64 {
            let events = (0..400).map(|id| (id, u64::from(id), 1, vec![0xff; bytes]));
            history(events.collect());
        }
    }

    #[test]
    fn collections_beyond_the_limit_are_counted() {
        let mut gc = GcHistory::new(2);
        for number in 0..5_u32 {
            let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect();
            gc.take(&event(9, 1, 1, words(&[1, 0])));
            gc.take(&event(1, 2, 1, words(&[number, 0, 0, 0])));
        }
        assert_eq!((gc.rows.len(), gc.omitted), (2, 3));
    }
}
