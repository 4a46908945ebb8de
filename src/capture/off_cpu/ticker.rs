//! Looks at all threads of the target again and again, at random times.
//!
//! The cost depends on the number of threads, not on how often they wait. A thread that has not run since
//! the last look costs one read of its counters.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::burst::Burst;
use super::throttling::{Limits, Throttling};
use super::tick::{Found, Tick};
use super::watched_thread::WatchedThread;
use crate::capture::group_reader::GroupReader;
use crate::capture::snapshot::{Process, Read};
use crate::capture::usage::thread_cpu_time;
use crate::machine::{self, NotBlocked, SchedulerState, ThreadCounters};
use crate::perf;
use crate::trace::{Blocked, BlockedOn, Nanos, Pid, Tid};

/// Least part of a CPU that looks may take.
const MIN_SHARE: f64 = 1e-3;
/// Shortest mean intervals of looks, and of lists of threads.
const MIN_INTERVAL: Duration = Duration::from_millis(2);
const LIST_INTERVAL: Duration = Duration::from_millis(25);
/// Longest interval between two lists, if looks are not rarer: what they take more then, looks take less.
const MAX_LIST_INTERVAL: Duration = Duration::from_secs(1);
/// Reads of memory that searches for locks may take in a look at all threads. Without more, a wait for a lock of .NET 8
/// and 9 is one for another thread.
const MAX_LOCK_READS: u32 = 4096;
/// Longest interval between two looks, as a multiple of the mean.
const MAX_FACTOR: f64 = 5.0;
/// Part of the budget that lists of threads and memory maps take at most.
const LIST_SHARE: f64 = 0.25;
/// Time between two reads of the memory map of a process, as a multiple of the time that one takes.
const MAP_INTERVALS: u32 = 100;
/// Number of intervals between looks over which most of the CPU time of lists and of unwinding is spread.
const PAYMENTS: u32 = 16;
/// Shortest interval of searches for the control groups of the processes, and the part of the budget that they take.
const LIMITS_INTERVAL: Duration = Duration::from_millis(100);
const LIMITS_SHARE: f64 = 0.1;
/// Shortest interval of reports of a thread that does not run, and the time that each thread adds to it: what was
/// not reported is lost if perfcollect is killed.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
const REPORT_INTERVAL_OF_ONE: Duration = Duration::from_millis(2);
/// Size of the part of a stack that is read.
const STACK_BYTES: u64 = 16 << 10;

/// What the ticker and the engine share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Processes to look at. `None` for all of the machine.
    pub(super) pids: Mutex<Option<Vec<Pid>>>,
    /// Threads that have started, with their processes.
    pub(super) new_threads: Mutex<Vec<(Pid, Tid)>>,
    pub(super) is_over: AtomicBool,
    /// CPU time of unwinding that the ticker has not counted yet, in nanoseconds.
    pub(super) unwinding_ns: AtomicU64,
    /// Largest number of threads that were too many.
    pub(super) omitted: AtomicUsize,
    /// Largest number of threads whose files could not be opened because too many were open.
    pub(super) without_files: AtomicUsize,
    /// Number of processes whose control groups take too long to read.
    pub(super) without_groups: AtomicUsize,
    /// Threads whose system calls and stacks may not be read.
    pub(super) unreadable: AtomicUsize,
    /// Number of rounds before the end.
    pub(super) rounds: AtomicU32,
}

/// The thread that looks.
pub(super) struct Ticker {
    pub(super) shared: Arc<Shared>,
    ticks: SyncSender<Tick>,
    /// Part of a CPU that looks may take, from 0 to 1.
    share: f64,
    pub(super) processes: FxHashMap<Pid, WatchedProcess>,
    pub(super) threads: FxHashMap<Tid, WatchedThread>,
    pub(super) throttling: Throttling,
    pub(super) groups: GroupReader,
    /// Processes whose control groups are to be read.
    pub(super) unread: Vec<Pid>,
    /// Threads of the kernel, and those that have ended before their process.
    pub(super) ignored: FxHashSet<Tid>,
    pub(super) started: Nanos,
    next_list: Instant,
    next_new: Instant,
    next_limits: Instant,
    /// CPU time of lists and of unwinding that no interval between looks counts yet.
    owed: Duration,
    pub(super) burst: Burst,
    random: u64,
}

/// A process with its memory map.
pub(super) struct WatchedProcess {
    process: Process,
    next_map: Instant,
    /// Whether its main thread is stopped: others may run, if a debugger stopped that one only.
    pub(super) is_stopped: bool,
    /// Whether a control group has frozen it.
    pub(super) is_frozen: bool,
    pub(super) limits: Limits,
    /// User who started it.
    pub(super) owner: Option<u32>,
}

impl WatchedProcess {
    /// Reads the memory map of a process of a user, through one of its threads: the main thread may have ended.
    pub(super) fn of(pid: Pid, tid: Tid, owner: Option<u32>) -> Self {
        Self {
            process: Process::of_stacks(pid, Pid(tid.0)),
            next_map: Instant::now() + LIST_INTERVAL,
            is_stopped: machine::is_stopped(pid),
            is_frozen: false,
            limits: Limits::default(),
            owner,
        }
    }

    /// Returns whether the memory map may be read again.
    fn may_renew(&self) -> bool {
        Instant::now() >= self.next_map
    }

    /// Reads the memory map again.
    fn renew(&mut self, pid: Pid, tid: Tid) {
        let start = thread_cpu_time();
        self.process = Process::of_stacks(pid, Pid(tid.0));
        let cost = thread_cpu_time().saturating_sub(start);
        self.next_map = Instant::now() + LIST_INTERVAL + cost * MAP_INTERVALS;
    }
}

impl Ticker {
    pub(super) fn new(shared: Arc<Shared>, ticks: SyncSender<Tick>, share: f64) -> Self {
        let share = share.clamp(MIN_SHARE, 1.0);
        Self {
            shared,
            ticks,
            share,
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            throttling: Throttling::new(),
            groups: GroupReader::default(),
            unread: Vec::new(),
            ignored: FxHashSet::default(),
            started: Nanos(u64::MAX),
            next_list: Instant::now(),
            next_new: Instant::now(),
            next_limits: Instant::now(),
            owed: Duration::ZERO,
            // Until the capture starts, the shortest pauses.
            burst: Burst::new(1.0),
            random: perf::now().0 | 1,
        }
    }

    /// Looks from the start of the capture until it is over. Then all threads have a last tick.
    pub(super) fn run(mut self, started: Nanos) {
        self.started = started;
        self.burst = Burst::new(self.share);
        for thread in self.threads.values_mut() {
            thread.begin();
        }
        loop {
            let is_over = self.shared.is_over.load(Ordering::Relaxed);
            let start = Instant::now();
            self.burst.take();
            if !is_over {
                self.keep_up();
            }
            if self.look(is_over).is_err() || is_over {
                return;
            }
            let unwinding = self.shared.unwinding_ns.swap(0, Ordering::Relaxed);
            self.owed += Duration::from_nanos(unwinding);
            // What is much at once, such as the first list of many threads and their first stacks, must not put off
            // the looks for seconds.
            let paid = self.owed / PAYMENTS;
            self.owed -= paid;
            let cost = self.burst.take() + paid;
            let interval = cost.div_f64(self.share).max(MIN_INTERVAL);
            let interval = interval.mul_f64(self.next_factor());
            self.shared.rounds.fetch_add(1, Ordering::Relaxed);
            self.pause_until(start + interval);
        }
    }

    /// Pauses until a time, or until it is over: the end of a capture must not wait for the next look.
    fn pause_until(&self, end: Instant) {
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::park_timeout(left);
        }
    }

    /// Lists the threads, and finds the control groups of the processes, if it is time to.
    fn keep_up(&mut self) {
        if Instant::now() >= self.next_new {
            self.add_new();
            self.next_new = Instant::now() + self.pay(LIST_SHARE).min(MAX_LIST_INTERVAL);
        }
        if Instant::now() >= self.next_list {
            self.list();
            let interval = self.pay(LIST_SHARE);
            self.next_list = Instant::now() + interval.clamp(LIST_INTERVAL, MAX_LIST_INTERVAL);
        }
        if Instant::now() >= self.next_limits {
            self.find_limits();
            self.next_limits = Instant::now() + self.pay(LIMITS_SHARE).max(LIMITS_INTERVAL);
        }
    }

    /// Takes the CPU time since the last call. Returns after which time it may be taken again, for a part of the
    /// budget.
    fn pay(&mut self, part: f64) -> Duration {
        let cost = self.burst.take();
        self.owed += cost;
        cost.div_f64(self.share * part)
    }

    /// Returns a random number with a mean of about 1. A thread with a timer must not run in step with the looks; and as
    /// often as two looks are far apart, they are close: else short waits beside others would be missed.
    fn next_factor(&mut self) -> f64 {
        // Marsaglia, "Xorshift RNGs".
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let uniform = (self.random >> 11) as f64 / (1_u64 << 53) as f64;
        // Exponentially distributed: the time until the next look does not depend on that since the last one.
        (-(1.0 - uniform).ln()).min(MAX_FACTOR)
    }

    /// Looks at all threads once.
    ///
    /// # Errors
    /// Nobody receives the ticks any more.
    fn look(&mut self, is_last: bool) -> Result<(), ()> {
        let mut ended = Vec::new();
        let lock_reads = Cell::new(MAX_LOCK_READS);
        let interval = REPORT_INTERVAL_OF_ONE.saturating_mul(self.threads.len() as u32);
        let interval = interval.max(REPORT_INTERVAL).as_nanos() as u64;
        for (tid, thread) in &mut self.threads {
            if !is_last && self.shared.is_over.load(Ordering::Relaxed) {
                // The last look begins at once.
                break;
            }
            let counters = thread.read_counters();
            let time = perf::now();
            let unchanged_until = thread.last;
            let has_run = counters.is_none_or(|now| now.slices != thread.counters.slices);
            if let Some(now) = counters.filter(|now| now.ran_ns != thread.ran.0) {
                thread.ran = (now.ran_ns, time);
            }
            let mut process = self.processes.get_mut(&thread.pid);
            let may_renew = |process: &&mut WatchedProcess| process.may_renew();
            let is_due = thread.is_due
                || time.0.saturating_sub(thread.reported.0) >= interval
                || thread.lacks_stack && process.as_ref().is_some_and(may_renew);
            if !(has_run || is_last || is_due) {
                thread.last = time;
                continue;
            }
            let found = counters.and_then(|now| {
                let process = process.as_deref_mut()?;
                find(process, *tid, thread, now, &lock_reads, is_last)
            });
            let wait = counters.and_then(|now| thread.cpu_wait(now));
            let mut ready = is_last.then_some((thread.ran.1, false));
            let throttled = process.map_or(0, |process| {
                if let Some((_, was_throttled)) = &mut ready {
                    *was_throttled = self.throttling.is_likely(&process.limits, time);
                }
                let wait = wait.map(|wait| self.throttling.of(&wait, &process.limits));
                if process.limits.lowest.is_some() {
                    thread.read_cpu(*tid);
                }
                wait.unwrap_or(0)
            });
            let switches = wait.and_then(|_| {
                thread.last_wait = perf::now();
                thread.switches(*tid)
            });
            let tick = Tick {
                switches,
                throttled,
                ready,
                is_last,
                pid: thread.pid,
                tid: *tid,
                time,
                unchanged_until: if has_run { unchanged_until } else { time },
                counters,
                first: (!thread.has_reported).then_some((thread.last, thread.counters)),
                found,
            };
            self.ticks.send(tick).map_err(drop)?;
            (thread.last, thread.reported) = (time, time);
            (thread.is_due, thread.has_reported) = (false, true);
            match counters {
                Some(now) => thread.counters = now,
                None => ended.push(*tid),
            }
            self.burst.pause();
        }
        for tid in ended {
            self.threads.remove(&tid);
        }
        Ok(())
    }
}

/// Finds where a thread waits. Returns `None` if it runs.
fn find(
    watched: &mut WatchedProcess,
    tid: Tid,
    thread: &mut WatchedThread,
    before: ThreadCounters,
    lock_reads: &Cell<u32>,
    is_last: bool,
) -> Option<Found> {
    let blocked = match thread.blocked() {
        Ok(blocked) => blocked,
        Err(NotBlocked::Runs | NotBlocked::NoUserCode) => return None,
        Err(NotBlocked::Unreadable(_)) => {
            return Some(Found {
                place: Blocked::Unknown,
                read: None,
            });
        }
    };
    let mut stack = watched.process.stack(blocked.sp, STACK_BYTES);
    // The thread is new, or the process has executed another program. The end of a capture does not wait for large
    // maps.
    thread.lacks_stack = stack.is_empty() && !is_last;
    if thread.lacks_stack && watched.may_renew() {
        watched.renew(thread.pid, tid);
        stack = watched.process.stack(blocked.sp, STACK_BYTES);
        thread.lacks_stack = false;
    }
    let after = thread.read_counters()?;
    // One that waits again and again, each time for a moment, is found in the same call.
    let has_stayed = after.slices == before.slices || thread.blocked().ok()? == blocked;
    let is_stopped = || SchedulerState::of(thread.pid, tid) == Some(SchedulerState::Stopped);
    let read = Box::new(Read {
        blocked,
        stack,
        has_moved: false,
        time_slices: Some(after.slices),
    });
    let mut place = match watched.is_frozen || watched.is_stopped && is_stopped() {
        true => Blocked::Stopped,
        false => watched.process.place(&read.blocked),
    };
    if let Blocked::Call(_, on) = &mut place
        && let Some(monitor) = watched
            .process
            .monitor_at(tid, &read, thread.monitor, lock_reads)
    {
        *on = BlockedOn::Monitor;
        thread.monitor = Some(monitor);
    }
    has_stayed.then_some(Found {
        place,
        read: Some(read),
    })
}
