//! The stacks of all threads of processes at one moment, without stopping them.
//!
//! A thread that waits has left its registers in the kernel, which shows two of them
//! (/proc/PID/syscall). Its stack is in its memory. While its number of time slices stays the same, it
//! has not run, so that stack and registers are of one moment. The stacks of threads that run are those
//! of samples.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use perfcollect_symbols::process::{parse_all_maps, read_maps};
use perfcollect_symbols::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

use super::engine::Engine;
use super::error::CaptureError;
use super::finished::{Capture, End};
use super::signals::Signals;
use super::target::Target;
use super::wait::Wait;
use super::weight::Weight;
use crate::dotnet::{Monitor, PrivateMemory};
use crate::machine::{
    self, Blocked, Descriptors, NotBlocked, Resource, SchedulerClock, SchedulerState, SystemCall,
    kernel_function, new_namespace_threads, time_slices,
};
use crate::perf::{
    self, Abi, BranchStack, CallGraph, CpuMode, PerfSession, ReadValues, Record, Registers,
    SampleRecord, SamplingRequest, SessionError, U64s, UNKNOWN_FRAME_POINTER,
};
use crate::trace::{CaptureInfo, Cpu, Header, Nanos, Pid, RawTrace, Samples, Tid};

/// Maximum number of threads. The others are counted.
const MAX_THREADS: usize = 1 << 14;
/// Size of the part of a stack that is read at first: reading holds a lock of the process for a moment.
const MIN_STACK_BYTES: u64 = 64 << 10;
/// Maximum size if its frames need more.
const MAX_STACK_BYTES: u64 = 8 << 20;
/// Size that is read of all stacks, about. When most of it is used, less of each is read.
const STACK_BUDGET: u64 = 1 << 30;
/// Part of the budget that one stack may take.
const BUDGET_SHARE: u64 = 16;
/// Time after which no more threads are read. The others are counted.
const MAX_TIME: Duration = Duration::from_secs(10);
/// End of the addresses of a 32-bit process.
const BITS_32: u64 = 1 << 32;
/// How often a thread is read again that has run meanwhile.
const MAX_READS: u32 = 4;
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
    /// It is stopped, by a signal or a debugger.
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
    /// Number of threads beyond the limit.
    pub omitted: usize,
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
    let target = Target::Pids(pids.to_vec());
    target.check()?;
    let header = header(&target);
    let mut spool = Vec::new();
    let mut engine = Engine::new(&target, Weight::Nominal(Nanos(1)), &mut spool, &header)
        .with_symbolizer(symbolizer);
    engine.start(None)?;
    engine.wait_for_snapshot();
    let mut threads = Threads {
        engine,
        clock: SchedulerClock::default(),
        start: Instant::now(),
        found: Vec::new(),
        omitted: 0,
    };
    for &pid in pids {
        threads.read_process(pid);
    }
    let no_samples = threads.sample_running(&target, signals);
    let Threads {
        mut engine,
        found,
        omitted,
        ..
    } = threads;
    engine.finish_sessions(|| signals.pending());
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

/// The part of a stack that a thread uses.
struct Stacks {
    /// Ranges of memory that belongs to no file, by their start.
    memory: Vec<(u64, u64)>,
}

impl Stacks {
    fn of(pid: Pid) -> Self {
        let maps = read_maps(pid.0).unwrap_or_default();
        let memory = parse_all_maps(&maps).filter(|line| line.inode == 0);
        Self {
            memory: memory.map(|line| (line.start, line.end)).collect(),
        }
    }

    /// Returns the end of the memory with a stack pointer.
    fn end(&self, sp: u64) -> Option<u64> {
        let after = self.memory.partition_point(|(start, _)| *start <= sp);
        let (_, end) = self.memory.get(after.checked_sub(1)?)?;
        (sp < *end).then_some(*end)
    }
}

struct Threads<'a> {
    engine: Engine<'a, &'a mut Vec<u8>>,
    clock: SchedulerClock,
    start: Instant,
    found: Vec<SnapshotThread>,
    omitted: usize,
}

/// What is read once for a process.
struct Process {
    pid: Pid,
    /// Its threads by their ids in its pid namespace, and these ids by thread.
    threads: FxHashMap<Tid, Tid>,
    namespace_tids: FxHashMap<Tid, Tid>,
    is_dotnet: bool,
    memory: Option<PrivateMemory>,
    stacks: Stacks,
    descriptors: Descriptors,
    stack_budget: Cell<u64>,
}

/// A thread that waits, and its stack.
struct Read {
    blocked: Blocked,
    stack: Vec<u8>,
    has_moved: bool,
    time_slices: Option<u64>,
}

impl Process {
    fn of(pid: Pid, is_dotnet: bool) -> Self {
        // The files of a main thread that has ended are empty.
        let reader = match SchedulerState::of(pid, Tid(pid.0)) {
            Some(SchedulerState::Ended) => living_thread(pid),
            _ => pid,
        };
        let threads = new_namespace_threads(pid, &FxHashMap::default());
        Self {
            pid,
            is_dotnet,
            namespace_tids: threads.iter().map(|&(id, tid)| (tid, id)).collect(),
            threads: threads.into_iter().collect(),
            memory: PrivateMemory::open(reader),
            stacks: Stacks::of(pid),
            descriptors: Descriptors::of(reader),
            stack_budget: Cell::new(STACK_BUDGET),
        }
    }

    /// Reads the stack of a thread that waits.
    fn read(&self, tid: Tid, limit: u64) -> Result<Read, NotBlocked> {
        let mut last = None;
        for _ in 0..MAX_READS {
            let before = time_slices(self.pid, tid);
            let blocked = Blocked::of(self.pid, tid)?;
            let stack = self.stack(blocked.sp, limit);
            let time_slices = time_slices(self.pid, tid);
            let read = last.insert(Read {
                blocked,
                stack,
                has_moved: before != time_slices,
                time_slices,
            });
            if !read.has_moved {
                break;
            }
        }
        last.ok_or(NotBlocked::Runs)
    }

    /// Returns the monitor that a thread may wait for.
    fn monitor(&self, tid: Tid, read: &Read) -> Option<Monitor> {
        let resource = read.blocked.call?.resource();
        let is_futex = matches!(resource, Resource::Futex { .. });
        let memory = self
            .memory
            .as_ref()
            .filter(|_| is_futex && self.is_dotnet)?;
        Monitor::on_stack(&read.stack, memory, |owner| self.is_other(owner, tid))
    }

    /// Returns whether an id in the pid namespace of the process is that of another thread.
    fn is_other(&self, id: u32, tid: Tid) -> bool {
        let other = i32::try_from(id).ok();
        let other = other.and_then(|id| self.threads.get(&Tid(id)));
        other.is_some_and(|other| *other != tid)
    }

    /// Reads the locks that threads wait for again, and finds which threads have not run since.
    ///
    /// Without that, threads that take turns with their locks would look like a deadlock.
    fn confirm(&self, threads: &mut [SnapshotThread]) {
        let Some(memory) = &self.memory else {
            return;
        };
        for thread in &mut *threads {
            if let Activity::Waits(wait) = &mut thread.activity {
                wait.refresh(memory);
            }
            let monitor = thread.monitor.map(|monitor| monitor.address);
            thread.monitor = monitor.and_then(|address| {
                Monitor::at(address, memory, |owner| self.is_other(owner, thread.tid))
            });
        }
        for thread in threads {
            let slices = thread.time_slices;
            thread.has_stayed = !thread.has_moved
                && slices.is_some()
                && slices == time_slices(self.pid, thread.tid);
        }
    }

    fn stack(&self, sp: u64, limit: u64) -> Vec<u8> {
        let end = self.stacks.end(sp);
        let range = end.map(|end| sp..end.min(sp.saturating_add(limit)));
        let copied = self.memory.as_ref().zip(range);
        let copied = copied.map(|(memory, range)| memory.copy(range));
        let copied = copied.unwrap_or_default();
        let left = self.stack_budget.get();
        self.stack_budget
            .set(left.saturating_sub(copied.len() as u64));
        copied
    }

    /// Returns how much of a stack may be read if its frames need that much.
    fn larger_limit(&self) -> u64 {
        (self.stack_budget.get() / BUDGET_SHARE).clamp(MIN_STACK_BYTES, MAX_STACK_BYTES)
    }
}

/// Returns the id of a thread that has not ended, or else that of its process.
fn living_thread(pid: Pid) -> Pid {
    let threads = machine::threads([pid]).into_iter();
    let mut living =
        threads.filter(|tid| SchedulerState::of(pid, *tid) != Some(SchedulerState::Ended));
    living.next().map_or(pid, |tid| Pid(tid.0))
}

impl Threads<'_> {
    fn read_process(&mut self, pid: Pid) {
        let process = Process::of(pid, self.engine.has_runtime(pid));
        let first = self.found.len();
        let mut tids = machine::threads([pid]);
        tids.sort_unstable();
        let mut running = Vec::new();
        for tid in tids {
            if self.found.len() >= MAX_THREADS || self.start.elapsed() > MAX_TIME {
                self.omitted += 1;
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
        let mut first_bytes = 0;
        if let Ok(first) = &read {
            thread.sample = Some(self.push(pid, tid, first));
            let needed = self.engine.take_deepest().into_values().max();
            first_bytes = first.stack.len();
            if needed.is_some_and(|needed| needed > first_bytes as u64) {
                read = process.read(tid, process.larger_limit());
            }
        }
        thread.activity = match (state, &read) {
            (SchedulerState::Ended, _) => Activity::Ended,
            (_, Err(NotBlocked::Runs)) => return Some(thread),
            (_, Err(NotBlocked::NoUserCode)) => Activity::Waits(Wait::default()),
            (_, Err(NotBlocked::Unreadable(error))) => Activity::Unreadable(error.to_string()),
            (SchedulerState::Stopped, Ok(_)) => Activity::Stopped,
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
            if read.stack.len() > first_bytes {
                thread.sample = Some(self.push(pid, tid, &read));
            }
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
    fn sample_running(&mut self, target: &Target, signals: &Signals) -> Option<SessionError> {
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
            let is_over = running.is_empty() || Instant::now() >= deadline || signals.pending();
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
fn sample<'a>(pid: Pid, tid: Tid, read: &'a Read) -> SampleRecord<'a> {
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
