//! Which processes get an event session, and when.
//!
//! A session costs the target CPU time, the first one a tenth of a second. Of a whole machine only
//! processes that run get one, or all if the user chose events, the busiest first and within a
//! budget. Processes that the user named get theirs at once.

use rustc_hash::FxHashMap;

use super::runtime_search::RuntimeSearch;
use crate::trace::{Nanos, Notice, NoticeKind, Pid};

/// CPU time that a process must use within a second to get a session.
const MIN_BUSY_NS: u64 = 10_000_000;
const SECOND_NS: u64 = 1_000_000_000;
/// CPU time of a process for its first session (40 to 60 ms on .NET 8 to 10).
const SESSION_NS: u64 = 60_000_000;
/// Share of the CPUs for sessions: 1 %. Unused time accumulates for a minute.
const BUDGET_SHARE: u64 = 100;
const BUDGET_SECONDS: u64 = 60;
/// Maximum number of known processes.
const MAX_PROCESSES: usize = 1 << 16;
/// Maximum number of processes listed in notices.
const MAX_LISTED: usize = 5;

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
    processes: FxHashMap<Pid, State>,
    budget: Budget,
    /// Number of processes for whose sessions the budget did not suffice.
    held_back: usize,
}

/// What is known of a process.
#[derive(Debug)]
enum State {
    /// The search for a runtime is under way.
    Searched { is_new: bool },
    /// It has no runtime yet.
    Other,
    /// It waits for its session.
    Waiting(Waiting),
    /// Its session was started.
    Started,
}

#[derive(Debug, Default)]
struct Waiting {
    is_new: bool,
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

    /// Returns the CPU time of the last second or two.
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
            left_ns: cpus * SECOND_NS / BUDGET_SHARE * BUDGET_SECONDS,
            cpus,
            last: Nanos(0),
        }
    }

    fn follow(&mut self, now: Nanos) {
        let elapsed = now
            .0
            .saturating_sub(self.last.0)
            .min(BUDGET_SECONDS * SECOND_NS);
        if self.last.0 > 0 {
            let limit = self.cpus * SECOND_NS / BUDGET_SHARE * BUDGET_SECONDS;
            self.left_ns = limit.min(self.left_ns + elapsed / BUDGET_SHARE * self.cpus);
        }
        self.last = self.last.max(now);
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
            processes: FxHashMap::default(),
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
            (true, _) => self.found(pid, false),
            // A sample will tell.
            (false, SessionChoice::Running) => {}
            (false, _) => self.search(pid, false),
        }
    }

    /// Follows a process of the target that executes a program.
    pub(super) fn executed(&mut self, pid: Pid) {
        self.processes.remove(&pid);
        if self.choice == SessionChoice::Named {
            self.search(pid, true);
        }
    }

    /// Follows a process that has just mapped a runtime.
    pub(super) fn loaded(&mut self, pid: Pid, now: Nanos) {
        match self.processes.get(&pid) {
            Some(State::Waiting(_) | State::Started) => {}
            _ => {
                self.found(pid, true);
                // A process that starts runs.
                if let Some(State::Waiting(waiting)) = self.processes.get_mut(&pid) {
                    waiting.add(now, Nanos(MIN_BUSY_NS));
                }
            }
        }
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
        match self.processes.get_mut(&pid) {
            Some(State::Waiting(waiting)) => waiting.add(time, weight),
            Some(_) => {}
            None if has_runtime() => self.found(pid, false),
            None => self.search(pid, false),
        }
    }

    pub(super) fn ended(&mut self, pid: Pid) {
        self.processes.remove(&pid);
    }

    fn search(&mut self, pid: Pid, is_new: bool) {
        if self.processes.len() < MAX_PROCESSES && self.search.start(pid) {
            self.processes.insert(pid, State::Searched { is_new });
        }
    }

    fn found(&mut self, pid: Pid, is_new: bool) {
        if self.processes.len() < MAX_PROCESSES {
            let waiting = Waiting {
                is_new,
                ..Waiting::default()
            };
            self.processes.insert(pid, State::Waiting(waiting));
        }
    }

    /// Returns the sessions to start now, the busiest process first.
    pub(super) fn due(&mut self, now: Nanos) -> Vec<DueSession> {
        for (pid, has_runtime) in self.search.results() {
            match self.processes.get(&pid) {
                Some(&State::Searched { is_new }) if has_runtime => self.found(pid, is_new),
                Some(State::Searched { .. }) => {
                    self.processes.insert(pid, State::Other);
                }
                _ => {}
            }
        }
        self.budget.follow(now);
        let mut due: Vec<(u64, DueSession)> = Vec::new();
        for (&pid, state) in &self.processes {
            if let State::Waiting(waiting) = state {
                let busy = waiting.busy(now);
                if self.choice != SessionChoice::Running || busy >= MIN_BUSY_NS {
                    let is_new = waiting.is_new;
                    due.push((busy, DueSession { pid, is_new }));
                }
            }
        }
        due.sort_unstable_by_key(|(busy, due)| (u64::MAX - busy, due.pid));
        let is_free = self.choice == SessionChoice::Named;
        let all = due.len();
        let due = due.into_iter().map(|(_, due)| due);
        let due: Vec<_> = due.take_while(|_| is_free || self.budget.take()).collect();
        self.held_back = all - due.len();
        for session in &due {
            self.processes.insert(session.pid, State::Started);
        }
        due
    }

    /// Returns the notices about processes without a session.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let mut idle = Vec::new();
        let mut busy = Vec::new();
        for (pid, state) in &self.processes {
            match state {
                State::Waiting(Waiting { was_busy: true, .. }) => busy.push(*pid),
                State::Waiting(_) if self.choice == SessionChoice::Running => idle.push(*pid),
                State::Waiting(_) => busy.push(*pid),
                _ => {}
            }
        }
        let idle = notice(
            idle,
            "as they were idle",
            "choose them with -pid, or events with an option, such as -gccollectonly",
        );
        let busy = notice(
            busy,
            "as their sessions would take more than 1 % of the CPUs",
            "choose some with -pid",
        );
        idle.into_iter().chain(busy)
    }
}

/// Returns the notice about processes without events.
fn notice(mut pids: Vec<Pid>, why: &str, remedy: &'static str) -> Option<Notice> {
    pids.sort_unstable();
    let listed = pids.iter().take(MAX_LISTED).map(Pid::to_string);
    let listed = listed.collect::<Vec<_>>().join(", ");
    let more = match pids.len().saturating_sub(MAX_LISTED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    (!pids.is_empty()).then(|| {
        let what = format!("no events were requested from .NET process {listed}{more}, {why}");
        Notice::new(NoticeKind::EventsNotRequested, what, remedy)
            .about(listed)
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
        assert_eq!(starts.due(at(0)), []);
        sample(&mut starts, 1, 100, 9);
        sample(&mut starts, 2, 100, 10);
        // Not known before.
        sample(&mut starts, 9, 100, 30);
        assert_eq!(pids(starts.due(at(200))), [9, 2]);
        // The second begins anew.
        sample(&mut starts, 1, 1100, 9);
        assert_eq!(starts.due(at(1200)), []);
        sample(&mut starts, 1, 1900, 1);
        starts.ended(Pid(1));
        starts.loaded(Pid(5), at(1900));
        let due = starts.due(at(1900));
        assert_eq!(
            due,
            [DueSession {
                pid: Pid(5),
                is_new: true
            }]
        );
        let notices: Vec<_> = starts.notices().collect();
        let [notice] = &notices[..] else {
            panic!("{notices:?}");
        };
        assert_eq!((&*notice.subject, notice.count), ("3, 4", 2));
    }

    #[test]
    fn sessions_stay_within_the_budget() {
        let mut starts = SessionStarts::new(SessionChoice::All, 1);
        for pid in 1..=20 {
            starts.running(Pid(pid), true);
        }
        sample(&mut starts, 20, 0, 1);
        // A minute of 1 % of a CPU.
        assert_eq!(pids(starts.due(at(0))), [20, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(starts.held_back(), 10);
        assert_eq!(starts.due(at(5_900)), []);
        assert_eq!(pids(starts.due(at(6_000))), [10]);
        assert_eq!(starts.due(at(6_001)), []);
        let count = starts.notices().map(|notice| notice.count).sum::<u64>();
        assert_eq!((count, starts.held_back()), (9, 9));
        let mut named = SessionStarts::new(SessionChoice::Named, 1);
        (1..=20).for_each(|pid| named.running(Pid(pid), true));
        assert_eq!(named.due(at(0)).len(), 20);
    }

    #[test]
    fn programs_that_are_executed_are_searched() {
        let mut starts = SessionStarts::new(SessionChoice::Named, 1);
        let me = Pid(std::process::id() as i32);
        starts.executed(me);
        assert!(matches!(
            starts.processes.get(&me),
            Some(State::Searched { is_new: true })
        ));
        while !matches!(starts.processes.get(&me), Some(State::Other)) {
            assert_eq!(starts.due(at(0)), []);
        }
        starts.loaded(me, at(0));
        assert_eq!(pids(starts.due(at(0))), [me.0]);
    }
}
