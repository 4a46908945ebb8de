//! Where the threads of the target spend the time without a CPU.
//!
//! A thread looks at all of them at random times (`ticker`): the scheduler's counters show exactly for how
//! long each ran and waited for a CPU, and the stack of one that waits shows where. What a thread spends
//! without a CPU between two looks belongs to the places where it was found (`timeline`).

mod burst;
mod listing;
mod tail;
mod throttling;
mod tick;
mod ticker;
mod timeline;
mod unseen;
mod watched_thread;

pub(super) use tick::{Found, Tick};
pub(super) use timeline::{State, Timeline, Wait};
pub(super) use unseen::Unseen;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use super::usage;
use crate::machine::ThreadCounters;
use crate::trace::{MORE_DESCRIPTORS, Nanos, Notice, NoticeKind, Pid, RIGHTS_TO_READ_THREADS, Tid};
use ticker::{Shared, Ticker};

/// Ticks that wait to be unwound. A tick with its stack has 16 KiB.
const QUEUE: usize = 2048;
/// Threads that have started and wait to be looked at. Lists have the others.
const MAX_NEW: usize = 1 << 14;
/// Longest time for which a capture waits for the first list of threads.
const MAX_FIRST_LIST: Duration = Duration::from_millis(500);
/// Longest time that the last looks may take: a process can lock its memory for as long as it likes.
const MAX_END: Duration = Duration::from_secs(1);
/// Longest mean time between two looks that needs no notice.
const MAX_INTERVAL: Duration = Duration::from_millis(100);

/// The looks at the threads of the target.
#[derive(Debug)]
pub(super) struct OffCpu {
    shared: Arc<Shared>,
    share: f64,
    start: SyncSender<Nanos>,
    ticker: Thread,
    started: Instant,
    /// Time in which it looked.
    length: Duration,
    ticks: Receiver<Tick>,
    /// Ticks whose records have not arrived yet.
    waiting: VecDeque<Tick>,
    is_incomplete: bool,
}

impl OffCpu {
    /// Lists the threads, before the capture starts: what precedes the first look at a thread is not known. `share` is the
    /// part of a CPU that looks may take, from 0 to 1. Without `pids`, they are at all processes of the machine.
    ///
    /// # Errors
    /// The kernel does not count the time of threads, or has no thread left.
    pub(super) fn prepare(pids: Option<Vec<Pid>>, share: f64) -> Result<Self, Notice> {
        let unavailable = |why: &str, remedy: &str| {
            let what = format!("where threads wait is not in the trace: {why}");
            Notice::new(NoticeKind::NoThreadTime, what, remedy)
        };
        let counters = std::fs::read_to_string("/proc/thread-self/schedstat");
        let counters = counters.ok().and_then(|line| ThreadCounters::parse(&line));
        if counters.is_none_or(|counters| counters.slices == 0) {
            return Err(unavailable(
                "the kernel does not count the time of threads",
                "use a kernel with CONFIG_SCHED_INFO",
            ));
        }
        let shared = Arc::new(Shared {
            pids: Mutex::new(pids),
            new_threads: Mutex::default(),
            is_over: AtomicBool::new(false),
            unwinding_ns: AtomicU64::new(0),
            omitted: AtomicUsize::new(0),
            without_files: AtomicUsize::new(0),
            without_groups: AtomicUsize::new(0),
            unreadable: AtomicUsize::new(0),
            rounds: AtomicU32::new(0),
        });
        let (sender, ticks) = sync_channel(QUEUE);
        let mut ticker = Ticker::new(Arc::clone(&shared), sender, share);
        let (start, starts) = sync_channel(1);
        let (listed, is_listed) = sync_channel(1);
        let named = thread::Builder::new().name("off-cpu".into());
        let ticker = named.spawn(move || {
            ticker.list();
            let _ = listed.send(());
            if let Ok(started) = starts.recv() {
                // Without it, it would look only when the threads of the target do not run.
                let _ = crate::perf::run_first();
                ticker.run(started);
            }
        });
        let ticker =
            ticker.map_err(|error| unavailable(&format!("no thread can start ({error})"), ""))?;
        // The first list goes on meanwhile if it takes longer.
        let _ = is_listed.recv_timeout(MAX_FIRST_LIST);
        Ok(Self {
            shared,
            share,
            start,
            ticker: ticker.thread().clone(),
            started: Instant::now(),
            length: Duration::ZERO,
            ticks,
            waiting: VecDeque::new(),
            is_incomplete: false,
        })
    }

    /// Starts to look. `started` is the start of the capture: threads that are newer count from their own.
    pub(super) fn start(&mut self, started: Nanos) {
        self.started = Instant::now();
        // It is always there.
        let _ = self.start.try_send(started);
    }

    /// Sets the processes to look at.
    pub(super) fn follow(&self, pids: Vec<Pid>) {
        let orders = self.shared.pids.lock();
        let mut orders = orders.unwrap_or_else(PoisonError::into_inner);
        if let Some(orders) = &mut *orders {
            *orders = pids;
        }
    }

    /// Looks at threads that have started, if their processes are followed: lists are rare if there are many threads.
    pub(super) fn watch(&self, threads: Vec<(Pid, Tid)>) {
        if !threads.is_empty() {
            let new = self.shared.new_threads.lock();
            let mut new = new.unwrap_or_else(PoisonError::into_inner);
            new.extend(threads);
            new.truncate(MAX_NEW);
        }
    }

    /// Passes on what was found until a time. The records of what happened before must be processed.
    pub(super) fn ticks(&mut self, until: Nanos, each: impl FnMut(&Tick)) {
        self.waiting.extend(self.ticks.try_iter());
        let ready = self.waiting.partition_point(|tick| tick.time <= until);
        self.pass(ready, each);
    }

    fn pass(&mut self, count: usize, mut each: impl FnMut(&Tick)) {
        let start = usage::thread_cpu_time();
        for tick in self.waiting.drain(..count) {
            each(&tick);
        }
        self.pay_since(start);
    }

    /// Counts the CPU time of this thread since a moment as that of looks.
    fn pay_since(&self, start: Duration) {
        let cost = usage::thread_cpu_time().saturating_sub(start);
        let unwinding = &self.shared.unwinding_ns;
        unwinding.fetch_add(cost.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Does work whose CPU time counts as that of looks.
    pub(super) fn paying(&self, work: impl FnOnce()) {
        let start = usage::thread_cpu_time();
        work();
        self.pay_since(start);
    }

    /// Ends the looks, and waits for the last ones.
    pub(super) fn end(&mut self) {
        self.length = self.started.elapsed();
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.ticker.unpark();
        let end = Instant::now() + MAX_END;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.ticks.recv_timeout(left) {
                Ok(tick) => self.waiting.push_back(tick),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {
                    self.is_incomplete = true;
                    return;
                }
            }
        }
    }

    /// Passes on the last ticks. Returns what is missing.
    ///
    /// What they found after `end` is not part of the capture.
    pub(super) fn finish(mut self, end: Nanos, each: impl FnMut(&Tick)) -> Vec<Notice> {
        for tick in &mut self.waiting {
            tick.end_at(end);
        }
        self.pass(self.waiting.len(), each);
        let read = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        let (unreadable, omitted) = (read(&self.shared.unreadable), read(&self.shared.omitted));
        let rounds = self.shared.rounds.load(Ordering::Relaxed).max(1);
        let interval = self.length / rounds;
        let notice =
            |what: String, remedy: &str| Notice::new(NoticeKind::NoThreadTime, what, remedy);
        let unreadable = (unreadable > 0).then(|| {
            let what =
                format!("{unreadable} threads may not be read: it is unknown where they wait");
            notice(what, RIGHTS_TO_READ_THREADS).counting(unreadable)
        });
        let omitted = (omitted > 0).then(|| {
            let what = format!("{omitted} threads were too many to see where they wait");
            notice(what, "capture fewer processes: -pid PID").counting(omitted)
        });
        let without_files = read(&self.shared.without_files);
        let without_files = (without_files > 0).then(|| {
            let what = format!(
                "{without_files} threads are missing where threads wait: too many files were open"
            );
            notice(what, MORE_DESCRIPTORS).counting(without_files)
        });
        let without_groups = read(&self.shared.without_groups);
        let without_groups = (without_groups > 0).then(|| {
            let what = format!(
                "{without_groups} processes have control groups that are nested too deep: whether a CPU limit or a freezer \
                 stopped their threads is unknown"
            );
            let notice = Notice::new(NoticeKind::CpuLimitsUnread, what, "");
            notice.counting(without_groups)
        });
        let incomplete = self.is_incomplete.then(|| {
            let what = format!(
                "where threads wait was not read until the end: that took more than {} s",
                MAX_END.as_secs()
            );
            notice(what, "capture fewer processes: -pid PID")
        });
        let rare = (interval > MAX_INTERVAL).then(|| {
            let what = format!(
                "threads were looked at only every {} ms, to take at most {} % of a CPU: short captures show roughly where \
                 they wait",
                interval.as_millis(),
                (self.share * 1e4).round() / 1e2
            );
            notice(what, "capture for longer, with a larger -budget, or fewer processes: -pid PID")
        });
        [
            unreadable,
            omitted,
            without_files,
            without_groups,
            incomplete,
            rare,
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
