//! What is found of a thread that has run since it was looked at before.

use crate::capture::snapshot::Read;
use crate::machine::{Switches, ThreadCounters};
use crate::trace::{Blocked, Nanos, Pid, Tid};

/// A look at a thread.
#[derive(Debug)]
pub(in crate::capture) struct Tick {
    pub(in crate::capture) pid: Pid,
    pub(in crate::capture) tid: Tid,
    /// Time of the look.
    pub(super) time: Nanos,
    /// Time of the last look at which it had not run yet since the one before: it waited until then.
    pub(super) unchanged_until: Nanos,
    /// Its counters at this time. `None` if it has ended.
    pub(super) counters: Option<ThreadCounters>,
    /// Whether no other look follows.
    pub(super) is_last: bool,
    /// How often it has left its CPU since it was last seen to have waited for one. `None` if it has not waited
    /// for one, or that is unknown.
    pub(super) switches: Option<Switches>,
    /// For how many nanoseconds of the time in which it waited for one since the last look its control groups
    /// had used up their CPU time.
    pub(super) throttled: u64,
    /// Since when it has no CPU, and whether its control group was throttled just before. `None` if that does not matter:
    /// only at the last look, a wait for a CPU is not counted.
    pub(super) ready: Option<(Nanos, bool)>,
    /// Its counters and the time when it was first known: its start, or that of the capture.
    pub(super) first: Option<(Nanos, ThreadCounters)>,
    /// Where it waits. `None` if it runs.
    pub(in crate::capture) found: Option<Found>,
}

impl Tick {
    /// Leaves out what is after a time.
    pub(super) fn end_at(&mut self, end: Nanos) {
        self.time = self.time.min(end);
        self.unchanged_until = self.unchanged_until.min(end);
    }
}

/// Where a thread was found.
#[derive(Debug)]
pub(in crate::capture) struct Found {
    pub(in crate::capture) place: Blocked,
    /// Its registers and stack. `None` if it may not be read.
    pub(in crate::capture) read: Option<Box<Read>>,
}
