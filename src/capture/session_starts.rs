//! Which processes get an event session, and when.
//!
//! A session costs the target CPU time, the first one some 50 ms. Of a whole machine only
//! processes that run get one, or all if the user chose events, the busiest first and within a
//! budget. Processes that the user named get theirs at once.

use rustc_hash::FxHashMap;

use super::runtime_search::RuntimeSearch;
use crate::machine;
use crate::trace::{Nanos, Notice, NoticeKind, Pid};

/// CPU time that a process must use within a second to get a session.
const MIN_BUSY_NS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// CPU time of a process for its first session (40 to 60 ms on .NET 8 to 10).
const SESSION_NS: u64 = 60_000_000;
/// Share of the CPUs for sessions: 1 %. Unused time accumulates for a minute.
const BUDGET_SHARE: u64 = 100;
const BUDGET_SECONDS: u64 = 60;
/// Maximum number of sessions that start at once, unless the user named the processes.
const MAX_STARTS: usize = 4;
/// Maximum number of known processes.
const MAX_PROCESSES: usize = 1 << 16;
/// Maximum number of processes listed in notices.
const MAX_LISTED: usize = 5;
/// Maximum number of processes in the subject of a notice.
const MAX_SUBJECTS: usize = 1000;

/// Which processes of the target get a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionChoice {
    /// All, at once: the user named them.
    Named,
    /// Those that run.
    Running,
    /// All, the busiest first.
    All,
}

/// A session to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueSession {
    pub(super) pid: Pid,
    /// Whether the runtime is starting, so that its port may not exist yet.
    pub(super) is_new: bool,
}

#[derive(Debug)]
pub(super) struct SessionStarts {
    choice: SessionChoice,
    search: RuntimeSearch,
    /// Processes that wait for their sessions.
    waiting: FxHashMap<Pid, Waiting>,
    others: FxHashMap<Pid, State>,
    /// Number of the last search.
    searches: u64,
    budget: Budget,
    /// Processes that ended while they waited, and ran or were chosen.
    ended: Vec<Pid>,
    /// Number of processes for whose sessions the budget did not suffice.
    held_back: usize,
}

/// What is known of a process that does not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The search for a runtime with this number is under way.
    Searched { number: u64, is_new: bool },
    /// It has no runtime yet.
    Other,
    /// Its session was started at this time.
    Started(Nanos),
}

#[derive(Debug, Default)]
struct Waiting {
    is_new: bool,
    /// Time when its runtime was found.
    since: Nanos,
    /// CPU time in this second.
    busy_ns: u64,
    second: u64,
    /// Whether it used enough CPU time in a second before.
    was_busy: bool,
}

impl Waiting {
    fn add(&mut self, time: Nanos, busy: Nanos) {
        let second = time.0 / SECOND_NS;
        if second != self.second {
            self.second = second;
            self.busy_ns = 0;
        }
        self.busy_ns = self.busy_ns.saturating_add(busy.0);
        self.was_busy |= self.busy_ns >= MIN_BUSY_NS;
    }

    /// Returns the CPU time of this second, or of the last one with samples.
    fn busy(&self, now: Nanos) -> u64 {
        let is_recent = (now.0 / SECOND_NS).saturating_sub(self.second) <= 1;
        if is_recent { self.busy_ns } else { 0 }
    }
}

/// CPU time that sessions may take.
#[derive(Debug)]
struct Budget {
    left_ns: u64,
    cpus: u64,
    last: Nanos,
}

impl Budget {
    fn new(cpus: u64) -> Self {
        let cpus = cpus.max(1);
        Self {
            left_ns: Self::limit(cpus),
            cpus,
            last: Nanos(0),
        }
    }

    /// Returns the maximum of unused time.
    fn limit(cpus: u64) -> u64 {
        cpus * SECOND_NS / BUDGET_SHARE * BUDGET_SECONDS
    }

    fn follow(&mut self, now: Nanos) {
        let elapsed = now
            .0
            .saturating_sub(self.last.0)
            .min(BUDGET_SECONDS * SECOND_NS);
        if self.last.0 > 0 {
            self.add(elapsed / BUDGET_SHARE * self.cpus);
        }
        self.last = self.last.max(now);
    }

    fn add(&mut self, ns: u64) {
        self.left_ns = Self::limit(self.cpus).min(self.left_ns + ns);
    }

    fn take(&mut self) -> bool {
        let left = self.left_ns.checked_sub(SESSION_NS);
        self.left_ns = left.unwrap_or(self.left_ns);
        left.is_some()
    }
}

impl SessionStarts {
    pub(super) fn new(choice: SessionChoice, cpus: u64) -> Self {
        Self {
            choice,
            search: RuntimeSearch::default(),
            waiting: FxHashMap::default(),
            others: FxHashMap::default(),
            searches: 0,
            ended: Vec::new(),
            budget: Budget::new(cpus),
            held_back: 0,
        }
    }

    /// Returns the number of processes for whose sessions the budget does not suffice now.
    pub(super) fn held_back(&self) -> usize {
        self.held_back
    }

    /// Adds a process that runs at the start. `has_runtime` tells whether its mappings show a
    /// runtime.
    pub(super) fn running(&mut self, pid: Pid, has_runtime: bool) {
        match (has_runtime, self.choice) {
            (true, _) => self.found(pid, false, Nanos(0)),
            // A sample will tell.
            (false, SessionChoice::Running) => {}
            (false, _) => self.search(pid, false),
        }
    }

    /// Follows a process of the target that executes a program at a time.
    pub(super) fn executed(&mut self, pid: Pid, time: Nanos) {
        // A runtime that was found early belongs to this program.
        let found = match self.others.get(&pid) {
            Some(&State::Started(at)) => Some(at),
            _ => self.waiting.get(&pid).map(|waiting| waiting.since),
        };
        if found.is_some_and(|found| found >= time) {
            return;
        }
        self.forget(pid);
        if self.choice != SessionChoice::Running {
            self.search(pid, true);
        }
    }

    /// Follows a process that has just mapped a runtime. Returns whether that was unknown.
    pub(super) fn loaded(&mut self, pid: Pid, now: Nanos) -> bool {
        if matches!(self.others.get(&pid), Some(State::Started(_))) {
            return false;
        }
        let is_unknown = !self.waiting.contains_key(&pid);
        if is_unknown {
            self.found(pid, true, now);
        }
        if let Some(waiting) = self.waiting.get_mut(&pid) {
            waiting.is_new = true;
            if is_unknown {
                // A process that starts runs.
                waiting.add(now, Nanos(MIN_BUSY_NS));
            }
        }
        is_unknown
    }

    /// Adds the weight of a sample. `has_runtime` tells whether the mappings of the process show a
    /// runtime.
    pub(super) fn sampled(
        &mut self,
        pid: Pid,
        time: Nanos,
        weight: Nanos,
        has_runtime: impl FnOnce() -> bool,
    ) {
        if self.choice == SessionChoice::Named {
            return;
        }
        if let Some(waiting) = self.waiting.get_mut(&pid) {
            waiting.add(time, weight);
        } else if !self.others.contains_key(&pid) {
            match has_runtime() {
                true => self.found(pid, false, time),
                // Its port may not exist yet.
                false => self.search(pid, true),
            }
        }
    }

    pub(super) fn ended(&mut self, pid: Pid) {
        let was_due = |waiting: &Waiting| waiting.was_busy || self.choice != SessionChoice::Running;
        if self.waiting.get(&pid).is_some_and(was_due) && self.ended.len() < MAX_PROCESSES {
            self.ended.push(pid);
        }
        self.forget(pid);
    }

    fn forget(&mut self, pid: Pid) {
        self.waiting.remove(&pid);
        self.others.remove(&pid);
    }

    fn has_room(&self) -> bool {
        self.waiting.len() + self.others.len() < MAX_PROCESSES
    }

    fn search(&mut self, pid: Pid, is_new: bool) {
        let number = self.searches + 1;
        if self.has_room() && self.search.start(pid, number) {
            self.searches = number;
            self.others.insert(pid, State::Searched { number, is_new });
        }
    }

    fn found(&mut self, pid: Pid, is_new: bool, since: Nanos) {
        self.others.remove(&pid);
        if self.has_room() {
            let waiting = Waiting {
                is_new,
                since,
                ..Waiting::default()
            };
            self.waiting.insert(pid, waiting);
        }
    }

    /// Returns the sessions to start now, at most `free`, the busiest process first.
    ///
    /// Processes that have a session, as `has_session` tells, need no other one.
    pub(super) fn due(
        &mut self,
        now: Nanos,
        free: usize,
        has_session: impl Fn(Pid) -> bool,
    ) -> Vec<DueSession> {
        for result in self.search.results() {
            let pid = result.pid;
            match self.others.get(&pid) {
                Some(&State::Searched { number, is_new }) if number == result.number => {
                    match result.has_runtime {
                        true => self.found(pid, is_new, Nanos(0)),
                        false if machine::is_running(pid) => {
                            self.others.insert(pid, State::Other);
                        }
                        false => self.forget(pid),
                    }
                }
                _ => {}
            }
        }
        self.budget.follow(now);
        let mut due: Vec<(u64, DueSession)> = Vec::new();
        let others = &mut self.others;
        self.waiting.retain(|&pid, waiting| {
            let busy = waiting.busy(now);
            let is_due = self.choice != SessionChoice::Running || busy >= MIN_BUSY_NS;
            let has_session = is_due && has_session(pid);
            if has_session {
                others.insert(pid, State::Started(now));
            } else if is_due {
                let is_new = waiting.is_new;
                due.push((busy, DueSession { pid, is_new }));
            }
            !has_session
        });
        due.sort_unstable_by_key(|(busy, due)| (u64::MAX - busy, due.pid));
        let is_free = self.choice == SessionChoice::Named;
        let at_once = if is_free { free } else { free.min(MAX_STARTS) };
        let all = due.len();
        let due = due.into_iter().map(|(_, due)| due).take(at_once);
        let due: Vec<_> = due.take_while(|_| is_free || self.budget.take()).collect();
        self.held_back = all - due.len();
        for session in &due {
            self.waiting.remove(&session.pid);
            self.others.insert(session.pid, State::Started(now));
        }
        due
    }

    /// Returns the budget of a process that sent nothing.
    pub(super) fn refund(&mut self) {
        self.budget.add(SESSION_NS);
    }

    /// Returns the notices about processes without a session.
    ///
    /// A sample of a process may arrive after its end, so `is_running` tells which ones exist.
    pub(super) fn notices(&self, is_running: impl Fn(Pid) -> bool) -> impl Iterator<Item = Notice> {
        let mut idle = Vec::new();
        let mut busy = self.ended.clone();
        let running = self.waiting.iter().filter(|(pid, _)| is_running(**pid));
        for (pid, waiting) in running {
            match self.choice {
                SessionChoice::Running if !waiting.was_busy => idle.push(*pid),
                _ => busy.push(*pid),
            }
        }
        let idle = notice(idle, "as they were idle", "choose some with -pid");
        let busy = notice(
            busy,
            "as sessions may take 1 % of the CPUs (10 per CPU at once, then one per CPU every 6 s), and 256 may run at a time",
            "choose some with -pid",
        );
        idle.into_iter().chain(busy)
    }
}

/// Returns the notice about processes without events.
fn notice(mut pids: Vec<Pid>, why: &str, remedy: &'static str) -> Option<Notice> {
    pids.sort_unstable();
    let listed = |most| {
        let pids = pids.iter().take(most).map(Pid::to_string);
        pids.collect::<Vec<_>>().join(", ")
    };
    let (subject, listed) = (listed(MAX_SUBJECTS), listed(MAX_LISTED));
    let more = match pids.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!pids.is_empty()).then(|| {
        let what = format!("no events were requested from .NET process {listed}{more}, {why}");
        Notice::new(NoticeKind::EventsNotRequested, what, remedy)
            .about(subject)
            .counting(pids.len())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn at(ms: u64) -> Nanos {
        Nanos(SECOND_NS + ms * MS)
    }

    fn due(starts: &mut SessionStarts, now: Nanos) -> Vec<DueSession> {
        starts.due(now, 256, |_| false)
    }

    fn pids(due: Vec<DueSession>) -> Vec<i32> {
        due.into_iter().map(|due| due.pid.0).collect()
    }

    fn sample(starts: &mut SessionStarts, pid: i32, ms: u64, count: u64) {
        for _ in 0..count {
            starts.sampled(Pid(pid), at(ms), Nanos(MS), || true);
        }
    }

    #[test]
    fn only_processes_that_run_get_a_session() {
        let mut starts = SessionStarts::new(SessionChoice::Running, 2);
        for pid in 1..=4 {
            starts.running(Pid(pid), true);
        }
        assert_eq!(due(&mut starts, at(0)), []);
        sample(&mut starts, 1, 100, 9);
        sample(&mut starts, 2, 100, 10);
        // Not known before.
        sample(&mut starts, 9, 100, 30);
        assert_eq!(pids(due(&mut starts, at(200))), [9, 2]);
        // The second begins anew.
        sample(&mut starts, 1, 1100, 9);
        assert_eq!(due(&mut starts, at(1200)), []);
        sample(&mut starts, 1, 1900, 1);
        starts.ended(Pid(1));
        starts.loaded(Pid(5), at(1900));
        let new = DueSession {
            pid: Pid(5),
            is_new: true,
        };
        assert_eq!(due(&mut starts, at(1900)), [new]);
        let notices: Vec<_> = starts.notices(|pid| pid != Pid(4)).collect();
        let [idle, ended] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!((&*idle.subject, idle.count), ("3", 1));
        assert_eq!((&*ended.subject, ended.count), ("1", 1));
    }

    #[test]
    fn sessions_stay_within_the_budget() {
        let mut starts = SessionStarts::new(SessionChoice::All, 1);
        for pid in 1..=20 {
            starts.running(Pid(pid), true);
        }
        sample(&mut starts, 20, 0, 1);
        // A minute of 1 % of a CPU.
        assert_eq!(pids(due(&mut starts, at(0))), [20, 1, 2, 3]);
        assert_eq!(pids(due(&mut starts, at(1))), [4, 5, 6, 7]);
        assert_eq!(pids(due(&mut starts, at(2))), [8, 9]);
        assert_eq!(starts.held_back(), 10);
        assert_eq!(due(&mut starts, at(5_900)), []);
        assert_eq!(pids(due(&mut starts, at(6_000))), [10]);
        assert_eq!(due(&mut starts, at(6_001)), []);
        assert_eq!(starts.held_back(), 9);
        let mut named = SessionStarts::new(SessionChoice::Named, 1);
        (1..=20).for_each(|pid| named.running(Pid(pid), true));
        assert_eq!(due(&mut named, at(0)).len(), 20);
    }

    #[test]
    fn programs_that_are_executed_are_searched() {
        let mut starts = SessionStarts::new(SessionChoice::Named, 1);
        let me = Pid(std::process::id() as i32);
        starts.executed(me, at(0));
        assert!(matches!(
            starts.others.get(&me),
            Some(State::Searched { is_new: true, .. })
        ));
        while starts.others.get(&me) != Some(&State::Other) {
            assert_eq!(due(&mut starts, at(0)), []);
        }
        assert!(starts.loaded(me, at(5)) && !starts.loaded(me, at(6)));
        // The record of the program's start arrives later than that of the runtime.
        starts.executed(me, at(4));
        assert_eq!(pids(due(&mut starts, at(7))), [me.0]);
        starts.executed(me, at(4));
        assert!(!starts.loaded(me, at(8)));
    }
}
