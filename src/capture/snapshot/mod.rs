//! The stacks of all threads of processes at one moment, without stopping them.
//!
//! A thread that waits has left its registers in the kernel, which shows two of them
//! (/proc/PID/syscall). Its stack is in its memory. While its number of time slices stays the same, it
//! has not run, so that stack and registers are of one moment. The stacks of threads that run are those
//! of samples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

mod at_end;
mod omitted;
mod process;

pub(super) use at_end::at_end;
pub use omitted::OmittedThreads;

use omitted::Limit;

use process::MIN_STACK_BYTES;
pub(super) use process::{Process, Read};

use super::engine::Engine;
use super::error::CaptureError;
use super::finished::{Capture, End};
use super::signals::Signals;
use super::target::Target;
use super::wait::Wait;
use super::weight::Weight;
use crate::dotnet::Monitor;
use crate::machine::{
    self, Blocked, NotBlocked, SchedulerClock, SchedulerState, SystemCall, kernel_function,
};
use crate::perf::{
    self, Abi, BranchStack, CallGraph, CpuMode, PerfSession, ReadValues, Record, Registers,
    SampleRecord, SamplingRequest, SessionError, U64s, UNKNOWN_FRAME_POINTER,
};
use crate::trace::{CaptureInfo, Cpu, Header, Nanos, Pid, RawTrace, Samples, Tid};

/// Maximum number of threads. The others are counted.
pub(crate) const MAX_THREADS: usize = 1 << 14;
/// Time after which no more threads are read. The others are counted.
const MAX_TIME: Duration = Duration::from_secs(10);
/// End of the addresses of a 32-bit process.
const BITS_32: u64 = 1 << 32;
/// Time between two attempts to find a thread waiting, and their number.
const RETRY_INTERVAL: Duration = Duration::from_millis(3);
const RETRIES: u32 = 3;
/// Time in which threads that run are sampled, and the frequency.
const SAMPLING: Duration = Duration::from_millis(150);
const SAMPLING_HZ: u32 = 499;
/// Interval of reading the samples.
const TICK: Duration = Duration::from_millis(10);

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// It runs, or is ready for a CPU.
    Runs,
    /// It waits.
    Waits(Wait),
    /// It is stopped, by a signal, a debugger or its control group.
    Stopped,
    /// Its main thread has ended, while others run.
    Ended,
    /// It may not be read, for this reason.
    Unreadable(String),
}

/// A thread at the moment of a snapshot.
#[derive(Clone, Debug)]
pub struct SnapshotThread {
    /// Process.
    pub pid: Pid,
    /// Thread.
    pub tid: Tid,
    /// Name. Untrusted.
    pub name: String,
    /// Id of the thread in the pid namespace of its process.
    pub namespace_tid: Tid,
    /// Whether it waits and no signal wakes it.
    pub is_uninterruptible: bool,
    /// What it does.
    pub activity: Activity,
    /// For how long it has not run, if the kernel counts that.
    pub since: Option<Duration>,
    /// Index of its sample in the trace. `None` if nothing is known about its stack.
    pub sample: Option<usize>,
    /// Whether it has run while its stack was read, so that the stack may be wrong.
    pub has_moved: bool,
    /// The .NET monitor that it waits for, if its stack shows that it waits for one.
    pub monitor: Option<Monitor>,
    /// Whether it has not run from the read of its stack until the locks of all threads were read again:
    /// all such threads waited at one moment, and their locks are of that moment.
    pub has_stayed: bool,
    time_slices: Option<u64>,
}

impl SnapshotThread {
    /// Creates a thread of whose stack nothing is known.
    #[must_use]
    pub fn new(pid: Pid, tid: Tid, activity: Activity) -> Self {
        Self {
            pid,
            tid,
            name: String::new(),
            namespace_tid: tid,
            is_uninterruptible: false,
            activity,
            since: None,
            sample: None,
            has_moved: false,
            monitor: None,
            has_stayed: false,
            time_slices: None,
        }
    }
}

/// All threads of some processes.
pub struct Snapshot {
    /// Their stacks: one sample of each thread, whose weight has no meaning.
    pub capture: Capture,
    /// The threads, in the order of their ids.
    pub threads: Vec<SnapshotThread>,
    /// The threads that were not read.
    pub omitted: OmittedThreads,
    /// Why threads that run could not be sampled.
    pub no_samples: Option<SessionError>,
}

/// Reads the stacks of all threads of processes. A signal ends the wait for those that run.
///
/// # Errors
/// A process does not exist, or /proc cannot be read.
pub fn snapshot(
    pids: &[Pid],
    symbolizer: &Arc<Symbolizer>,
    signals: &Signals,
) -> Result<Snapshot, CaptureError> {
    Target::Pids(pids.to_vec()).check()?;
    // Beside hundreds of threads that are ready it would take half a minute.
    machine::raise_thread_priority();
    let depth = Depth {
        max_time: MAX_TIME,
        samples_running: true,
    };
    read(pids, symbolizer, depth, || signals.pending())
}

/// How much time a snapshot may take.
#[derive(Clone, Copy, Debug)]
struct Depth {
    /// Time after which no more threads are read.
    max_time: Duration,
    /// Whether to wait for samples of the threads that run.
    samples_running: bool,
}

/// Reads the stacks of all threads of processes until `enough` returns true. One that has ended has none.
fn read(
    pids: &[Pid],
    symbolizer: &Arc<Symbolizer>,
    depth: Depth,
    enough: impl Fn() -> bool,
) -> Result<Snapshot, CaptureError> {
    let target = Target::Pids(pids.to_vec());
    let header = header(&target);
    let mut spool = Vec::new();
    let mut engine = Engine::new(&target, Weight::Nominal(Nanos(1)), &mut spool, &header)
        .with_symbolizer(symbolizer);
    engine.start(None)?;
    engine.wait_for_snapshot();
    let mut threads = Threads {
        engine,
        clock: SchedulerClock::default(),
        deadline: Instant::now() + depth.max_time,
        enough: &enough,
        found: Vec::new(),
        omitted: OmittedThreads::default(),
    };
    // One with very many threads leaves room for the others.
    let mut processes: Vec<(Pid, Vec<Tid>)> = pids
        .iter()
        .map(|&pid| (pid, machine::threads([pid])))
        .collect();
    processes.sort_by_key(|(_, tids)| tids.len());
    for (pid, tids) in processes {
        threads.read_process(pid, tids);
    }
    threads.found.sort_by_key(|thread| (thread.pid, thread.tid));
    let no_samples = match depth.samples_running {
        true => threads.sample_running(&target),
        false => None,
    };
    let Threads {
        mut engine,
        found,
        omitted,
        ..
    } = threads;
    engine.finish_sessions(&enough);
    let ended = perf::now();
    let notices = engine.notices();
    let (spooled, machine) = engine.finish(ended);
    spool.extend(spooled.kept);
    let raw_trace = RawTrace::read_into(Samples::default(), &spool[..])?;
    let info = CaptureInfo {
        end_ns: ended.0,
        ..header.info
    };
    let mut capture = Capture::new(raw_trace, machine, info, End::Limit);
    capture.notices.extend(notices);
    Ok(Snapshot {
        capture,
        threads: found,
        omitted,
        no_samples,
    })
}

fn header(target: &Target) -> Header {
    let now = perf::now().0;
    Header {
        info: CaptureInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            target: target.to_string(),
            start_ns: now,
            end_ns: now,
            ..CaptureInfo::default()
        },
        ..Header::default()
    }
}

struct Threads<'a> {
    engine: Engine<'a, &'a mut Vec<u8>>,
    clock: SchedulerClock,
    deadline: Instant,
    enough: &'a dyn Fn() -> bool,
    found: Vec<SnapshotThread>,
    omitted: OmittedThreads,
}

impl Threads<'_> {
    /// Returns why no more threads are read.
    fn limit(&self) -> Option<Limit> {
        match () {
            () if self.found.len() >= MAX_THREADS => Some(Limit::Threads),
            () if Instant::now() >= self.deadline => Some(Limit::Time),
            () if (self.enough)() => Some(Limit::Signal),
            () => None,
        }
    }

    fn read_process(&mut self, pid: Pid, mut tids: Vec<Tid>) {
        let process = Process::of(pid, self.engine.has_runtime(pid));
        let first = self.found.len();
        // Ids wrap: the main thread, which names the process, may have the highest one.
        tids.sort_unstable_by_key(|tid| (tid.0 != pid.0, *tid));
        let mut running = Vec::new();
        for tid in tids {
            if let Some(limit) = self.limit() {
                self.omitted.add(pid, limit);
                continue;
            }
            if let Some(thread) = self.read_thread(&process, tid) {
                if thread.activity == Activity::Runs {
                    running.push(self.found.len());
                }
                self.found.push(thread);
            }
        }
        // Most threads run only for a moment.
        for _ in 0..RETRIES {
            if running.is_empty() {
                break;
            }
            std::thread::sleep(RETRY_INTERVAL);
            running.retain(|&index| {
                let Some(tid) = self.found.get(index).map(|thread| thread.tid) else {
                    return false;
                };
                let again = self.read_thread(&process, tid);
                let runs = again
                    .as_ref()
                    .is_some_and(|again| again.activity == Activity::Runs);
                if let (Some(known), Some(again)) = (self.found.get_mut(index), again) {
                    *known = again;
                }
                runs
            });
        }
        process.confirm(self.found.get_mut(first..).unwrap_or_default());
    }

    /// Reads a thread. Returns `None` if it has ended.
    fn read_thread(&mut self, process: &Process, tid: Tid) -> Option<SnapshotThread> {
        let pid = process.pid;
        let state = SchedulerState::of(pid, tid)?;
        let mut thread = SnapshotThread {
            name: machine::thread_name(pid, tid).unwrap_or_default(),
            namespace_tid: *process.namespace_tids.get(&tid).unwrap_or(&tid),
            is_uninterruptible: state == SchedulerState::Uninterruptible,
            ..SnapshotThread::new(pid, tid, Activity::Runs)
        };
        let mut read = process.read(tid, MIN_STACK_BYTES);
        if let Ok(first) = &read {
            thread.sample = Some(self.push(pid, tid, first));
            let needed = self.engine.take_deepest().into_values().max();
            if needed.is_some_and(|needed| needed > first.stack.len() as u64)
                && let Ok(longer) = process.read(tid, process.larger_limit())
                && longer.stack.len() > first.stack.len()
            {
                thread.sample = Some(self.push(pid, tid, &longer));
                read = Ok(longer);
            }
        }
        thread.activity = match (state, &read) {
            (SchedulerState::Ended, _) => Activity::Ended,
            (_, Err(NotBlocked::Runs)) => return Some(thread),
            (_, Err(NotBlocked::NoUserCode)) => Activity::Waits(Wait::default()),
            (_, Err(NotBlocked::Unreadable(error))) => Activity::Unreadable(error.to_string()),
            (SchedulerState::Stopped, Ok(_)) => Activity::Stopped,
            (_, Ok(_)) if process.is_frozen => Activity::Stopped,
            (_, Ok(Read { blocked, .. })) => {
                let memory = process.memory.as_ref();
                // Their system calls have other numbers.
                let call = match is_32_bit(blocked) {
                    true => Some(SystemCall::UNKNOWN),
                    false => blocked.call,
                };
                Activity::Waits(Wait {
                    kernel_function: kernel_function(pid, tid),
                    ..Wait::of(call, memory, &process.descriptors)
                })
            }
        };
        thread.since = self.clock.since_last_run(pid, tid);
        if let Ok(read) = read {
            thread.has_moved = read.has_moved;
            thread.time_slices = read.time_slices;
            thread.monitor = process.monitor(tid, &read);
        }
        Some(thread)
    }

    /// Adds the sample of a thread. Returns its index.
    fn push(&mut self, pid: Pid, tid: Tid, read: &Read) -> usize {
        let index = self.engine.samples() as usize;
        let sample = Record::Sample(sample(pid, tid, read));
        self.engine.record(perf::now(), &sample);
        index
    }

    /// Samples the threads that run. Returns why that is not possible.
    fn sample_running(&mut self, target: &Target) -> Option<SessionError> {
        let runs = |thread: &SnapshotThread| thread.activity == Activity::Runs;
        let mut running: FxHashMap<Tid, usize> = FxHashMap::default();
        let found = self
            .found
            .iter()
            .enumerate()
            .filter(|(_, thread)| runs(thread));
        running.extend(found.map(|(index, thread)| (thread.tid, index)));
        if running.is_empty() {
            return None;
        }
        let threads: Vec<Tid> = running.keys().copied().collect();
        let mut session = match Self::open_session(target, &threads) {
            Ok(session) => session,
            Err(error) => return Some(error),
        };
        let deadline = Instant::now() + SAMPLING;
        loop {
            let is_over = running.is_empty() || Instant::now() >= deadline || (self.enough)();
            if is_over {
                let _ = session.stop();
            } else {
                std::thread::sleep(TICK);
            }
            let mut take = |time: Nanos, record: &Record<'_>| {
                let Record::Sample(sample) = record else {
                    self.engine.record(time, record);
                    return;
                };
                if let Some(index) = running.remove(&sample.tid)
                    && let Some(thread) = self.found.get_mut(index)
                {
                    thread.sample = Some(self.engine.samples() as usize);
                    self.engine.record(time, record);
                }
            };
            if is_over {
                session.drain_all(|time, record| take(time, &record));
                return None;
            }
            session.drain(|time, record| {
                take(time, &record);
                std::ops::ControlFlow::Continue(())
            });
        }
    }

    fn open_session(target: &Target, threads: &[Tid]) -> Result<PerfSession, SessionError> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let request = SamplingRequest::new(SAMPLING_HZ, CallGraph::Auto, cpus);
        let mut session = PerfSession::open(&request, target.scope())?;
        session.start_tracking()?;
        session.attach(&target.to_string(), || threads.to_vec())?;
        session.start_sampling()?;
        Ok(session)
    }
}

/// Returns whether a thread belongs to a 32-bit process: its stack is below 4 GiB.
fn is_32_bit(blocked: &Blocked) -> bool {
    blocked.sp < BITS_32 && blocked.ip < BITS_32
}

/// Returns the sample of a thread that waits.
pub(super) fn sample(pid: Pid, tid: Tid, read: &Read) -> SampleRecord<'_> {
    let Read { blocked, stack, .. } = read;
    SampleRecord {
        mode: CpuMode::User,
        ip: blocked.ip,
        pid,
        tid,
        time: perf::now(),
        cpu: Cpu(0),
        period: 1,
        event: 0,
        counts: ReadValues::default(),
        callchain: U64s::default(),
        calls: BranchStack::default(),
        raw: &[],
        abi: match is_32_bit(blocked) {
            true => Abi::Bits32,
            false => Abi::Bits64,
        },
        // Only 64-bit code is unwound by registers.
        registers: (!is_32_bit(blocked)).then_some(Registers {
            ip: blocked.ip,
            sp: blocked.sp,
            bp: UNKNOWN_FRAME_POINTER,
        }),
        stack,
        requested_stack: stack.len() as u64,
    }
}
