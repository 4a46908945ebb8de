//! Waiting times of threads: for locks, or for anything else.
//!
//! A wait is between two events of its thread. A wait without an end is counted apart, and one
//! without a start if its end has the duration.

use hashbrown::HashMap;

use super::stack_methods::EventMethods;
use super::sum;
use super::tally::Tally;
use crate::trace::{Nanos, RuntimeEvent, Tid};

/// Limits per process: threads that wait at once, and methods that wait.
const MAX_PENDING: usize = 1 << 14;
const MAX_ROWS: usize = 1 << 10;
/// Maximum number of threads that are distinguished in a row.
const MAX_THREADS: usize = 64;

/// Waits in one method.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitCount {
    /// Number of waits that ended.
    pub(crate) ended: u64,
    /// Total time of the waits that ended.
    pub(crate) ns: u64,
    /// Time of the longest wait, with those that did not end.
    pub(crate) max_ns: u64,
    /// Number of waits without an end, and their time until the events ended.
    pub(crate) unended: u64,
    pub(crate) unended_ns: u64,
    /// Threads that waited, at most [`MAX_THREADS`].
    pub(crate) threads: Vec<Tid>,
    /// Waiting time by thread that owned the lock, at most [`MAX_THREADS`] threads.
    pub(crate) owners: Vec<(u64, u64)>,
}

/// A wait that has not ended.
#[derive(Clone, Copy, Debug)]
struct PendingWait {
    start: Nanos,
    methods: EventMethods,
    /// Thread that owns the lock, as the runtime identifies it; 0 if unknown.
    owner: u64,
}

/// The waits of a process.
#[derive(Debug)]
pub(crate) struct Waits {
    pending: HashMap<Tid, PendingWait>,
    /// By the methods that wait.
    pub(crate) rows: Tally<EventMethods, WaitCount>,
}

impl Default for Waits {
    fn default() -> Self {
        Self {
            pending: HashMap::new(),
            rows: Tally::new(MAX_ROWS),
        }
    }
}

impl Waits {
    /// Takes the start of a wait for something that a thread `owner` has (0 if unknown).
    pub(super) fn start(&mut self, event: &RuntimeEvent, methods: EventMethods, owner: u64) {
        if self.pending.len() >= MAX_PENDING && !self.pending.contains_key(&event.thread) {
            return;
        }
        let wait = PendingWait {
            start: event.time,
            methods,
            owner,
        };
        // A thread waits for one thing at a time, so the end of its last wait is lost.
        if let Some(lost) = self.pending.insert(event.thread, wait) {
            let row = self.rows.row(lost.methods);
            row.unended += 1;
        }
    }

    /// Takes the end of a wait, which may contain its duration.
    pub(super) fn stop(
        &mut self,
        event: &RuntimeEvent,
        methods: impl FnOnce() -> EventMethods,
        duration: Option<f64>,
    ) {
        // No wait is longer than the machine has been running.
        let duration = duration.filter(|ns| (0.0..=event.time.0 as f64).contains(ns));
        let duration = duration.map(|ns| ns as u64);
        let wait = self.pending.remove(&event.thread);
        let since = |wait: &PendingWait| event.time.0.saturating_sub(wait.start.0);
        // Of a wait that started before the events did, older runtimes do not report the duration.
        let Some(ns) = duration.or(wait.as_ref().map(since)) else {
            return;
        };
        let row = self
            .rows
            .row(wait.map_or_else(methods, |wait| wait.methods));
        row.ended += 1;
        row.ns = sum([row.ns, ns]);
        row.max_ns = row.max_ns.max(ns);
        row.add_thread(event.thread);
        row.add_owner(wait.map_or(0, |wait| wait.owner), ns);
    }

    /// Counts the waits that had not ended at a time.
    pub(super) fn finish(&mut self, end: Nanos) {
        for (thread, wait) in std::mem::take(&mut self.pending) {
            let ns = end.0.saturating_sub(wait.start.0);
            let row = self.rows.row(wait.methods);
            row.unended += 1;
            row.unended_ns = sum([row.unended_ns, ns]);
            row.max_ns = row.max_ns.max(ns);
            row.add_thread(thread);
            row.add_owner(wait.owner, ns);
        }
    }
}

impl WaitCount {
    /// Adds the totals of another row.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended += other.ended;
        self.ns = sum([self.ns, other.ns]);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.unended += other.unended;
        self.unended_ns = sum([self.unended_ns, other.unended_ns]);
        for &thread in &other.threads {
            self.add_thread(thread);
        }
        for &(owner, ns) in &other.owners {
            self.add_owner(owner, ns);
        }
    }

    fn add_thread(&mut self, thread: Tid) {
        if self.threads.len() < MAX_THREADS && !self.threads.contains(&thread) {
            self.threads.push(thread);
        }
    }

    fn add_owner(&mut self, owner: u64, ns: u64) {
        let known = self.owners.iter().position(|(known, _)| *known == owner);
        match known {
            _ if owner == 0 => {}
            Some(row) => self.owners[row].1 = sum([self.owners[row].1, ns]),
            None if self.owners.len() < MAX_THREADS => self.owners.push((owner, ns)),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::event;

    const NONE: EventMethods = EventMethods {
        leaf: None,
        own: None,
        waits_for_task: false,
    };

    fn start(waits: &mut Waits, time: u64, thread: i32, owner: u64) {
        waits.start(&event(81, time, thread, Vec::new()), NONE, owner);
    }

    fn stop(waits: &mut Waits, time: u64, thread: i32, duration: Option<f64>) {
        let event = event(91, time, thread, Vec::new());
        waits.stop(&event, || NONE, duration);
    }

    #[test]
    fn waits_of_threads_overlap_and_may_lack_an_end() {
        let mut waits = Waits::default();
        start(&mut waits, 10, 1, 7);
        start(&mut waits, 12, 2, 1);
        stop(&mut waits, 15, 2, None);
        stop(&mut waits, 20, 1, Some(4000.0));
        start(&mut waits, 30, 1, 7);
        // The end of that one is lost.
        start(&mut waits, 40, 1, 8);
        // It started before the session did.
        stop(&mut waits, 41, 3, Some(9000.0));
        stop(&mut waits, 42, 4, None);
        waits.finish(Nanos(50_000));
        let (_, row) = waits.rows.rows().next().unwrap();
        assert_eq!((row.ended, row.ns, row.max_ns), (3, 16_000, 10_000));
        assert_eq!((row.unended, row.unended_ns), (2, 10_000));
        assert_eq!(row.threads, [2, 1, 3].map(Tid));
        assert_eq!(row.owners, [(1, 3000), (7, 4000), (8, 10_000)]);
    }

    #[test]
    fn durations_that_cannot_be_are_measured() {
        let mut waits = Waits::default();
        for duration in [f64::NAN, f64::INFINITY, -1.0, 1e300] {
            start(&mut waits, 10, 1, 0);
            stop(&mut waits, 12, 1, Some(duration));
        }
        // Its start is after its end.
        start(&mut waits, 10, 1, 0);
        stop(&mut waits, 5, 1, None);
        waits.finish(Nanos(0));
        let (_, row) = waits.rows.rows().next().unwrap();
        assert_eq!((row.ended, row.ns, row.unended), (5, 4 * 2000, 0));
    }

    #[test]
    fn memory_is_bounded() {
        let mut waits = Waits::default();
        for thread in 0..2 * MAX_PENDING as i32 {
            start(&mut waits, 1, thread, thread as u64);
        }
        waits.finish(Nanos(u64::MAX));
        let (_, row) = waits.rows.rows().next().unwrap();
        assert_eq!(row.unended, MAX_PENDING as u64);
        assert_eq!(row.unended_ns, u64::MAX);
        assert_eq!(
            (row.threads.len(), row.owners.len()),
            (MAX_THREADS, MAX_THREADS)
        );
    }
}
