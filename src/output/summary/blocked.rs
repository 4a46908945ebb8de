//! What the threads of the target did when the capture ended: those that waited have no samples.

use serde::{Deserialize, Serialize};

use super::kept;

/// Maximum number of groups.
pub const MAX_GROUPS: usize = 50;
/// Maximum number of thread ids of a group.
pub const MAX_TIDS: usize = 16;
/// Maximum number of deadlocks.
pub const MAX_DEADLOCKS: usize = 8;
/// Maximum number of threads of a deadlock.
pub const MAX_DEADLOCKED: usize = 64;
/// Maximum number of locks.
pub const MAX_LOCKS: usize = 50;
/// Maximum number of functions in which threads wait for a lock.
pub const MAX_LOCK_METHODS: usize = 8;
/// Maximum number of processes.
pub const MAX_PROCESSES: usize = 100;

/// The threads of the target when the capture ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedSummary {
    /// The processes that ran then: at most 100, those with deadlocks and locks first.
    pub processes: Vec<BlockedProcess>,
    /// Number of all processes.
    #[serde(default)]
    pub process_count: u64,
    /// Threads that wait for each other's locks.
    pub deadlocks: Vec<DeadlockRow>,
    /// Locks for which threads wait, in each place: at most 50, those with most threads first.
    #[serde(default)]
    pub locks: Vec<LockRow>,
    /// Threads that do the same in the same function: at most 50, deadlocks and locks first, and what is
    /// idle last.
    pub groups: Vec<BlockedGroup>,
    /// Number of all groups.
    pub group_count: u64,
    /// Number of threads that were not read.
    pub omitted_threads: u64,
}

/// A process at the end of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedProcess {
    /// Process id.
    pub pid: i32,
    /// Name. Untrusted.
    pub name: String,
    /// Number of its threads that were read.
    pub threads: u64,
    /// Number of those that were not.
    #[serde(default)]
    pub omitted: u64,
    /// Threads that ran, or waited for a CPU.
    pub running: u64,
    /// Threads that waited for a lock.
    pub locked: u64,
    /// Threads that waited for work: no function of the user is on their stacks.
    pub idle: u64,
    /// Threads that a signal, a debugger or a control group stopped.
    #[serde(default)]
    pub stopped: u64,
    /// Threads that had ended: a main thread, or all of a process whose parent did not wait for it.
    #[serde(default)]
    pub ended: u64,
    /// Threads that have not run in all the capture.
    pub always_waiting: u64,
}

/// Threads that wait for each other's locks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeadlockRow {
    /// Process id.
    pub pid: i32,
    /// Number of threads.
    pub threads: u64,
    /// The threads, each waiting for the next one and the last for the first: the first 64.
    pub tids: Vec<i32>,
    /// Where each waits: the innermost function of the user. Untrusted; empty if there is none.
    pub methods: Vec<String>,
}

/// A lock, or the locks of one owner, for which threads of a process wait. Without an owner, threads with the
/// same address or the same stack wait for the same lock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LockRow {
    /// Process id.
    pub pid: i32,
    /// Number of threads.
    pub threads: u64,
    /// Ids of the first threads.
    pub tids: Vec<i32>,
    /// Threads that have waited for half of the capture at least.
    pub long_waiting: u64,
    /// Least time for which one of these has waited, in seconds.
    pub long_s: Option<f64>,
    /// Where they wait, most threads first: at most 8. Untrusted.
    pub methods: Vec<String>,
    /// Number of all these places.
    pub method_count: u64,
    /// The thread that has the lock.
    pub owner: Option<i32>,
    /// Id of the owner in the memory of the process, if no thread of the process has it.
    pub foreign_owner: Option<u32>,
    /// What the owner does, in words. Empty if it is not known.
    pub owner_words: String,
    /// Where the owner does that. Untrusted.
    pub owner_method: String,
}

/// Threads that do the same in the same function.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedGroup {
    /// Process id.
    pub pid: i32,
    /// What they do, such as `lock` or `io`: the reasons of `perfcollect stacks`.
    pub reason: String,
    /// The same in words, such as "wait for a lock".
    pub words: String,
    /// Number of threads.
    pub threads: u64,
    /// Ids of the first threads.
    pub tids: Vec<i32>,
    /// Name of the first thread. Untrusted.
    pub name: String,
    /// Module of the method. Untrusted.
    pub module: String,
    /// The innermost function of the user, or else the first one outside of the C library. Untrusted.
    pub method: String,
    /// Whether it is the user's.
    pub own: bool,
    /// What the threads wait for: a file, a connection, a time. Untrusted; empty if it is not known.
    pub waits_for: String,
    /// The thread that has the lock that they wait for.
    pub owner: Option<i32>,
    /// Least and most time for which one of them has not run, in seconds.
    pub since_s: Option<[f64; 2]>,
}

impl BlockedSummary {
    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(super) fn truncate(&mut self) {
        self.processes.truncate(MAX_PROCESSES);
        self.deadlocks.truncate(MAX_DEADLOCKS);
        self.groups.truncate(MAX_GROUPS);
        for process in &mut self.processes {
            process.name = kept(&process.name);
        }
        self.locks.truncate(MAX_LOCKS);
        for lock in &mut self.locks {
            lock.tids.truncate(MAX_TIDS);
            lock.methods.truncate(MAX_LOCK_METHODS);
            let LockRow {
                methods,
                owner_words,
                owner_method,
                ..
            } = lock;
            for text in methods.iter_mut().chain([owner_words, owner_method]) {
                *text = kept(text);
            }
        }
        for deadlock in &mut self.deadlocks {
            deadlock.tids.truncate(MAX_DEADLOCKED);
            deadlock.methods.truncate(MAX_DEADLOCKED);
            for method in &mut deadlock.methods {
                *method = kept(method);
            }
        }
        for group in &mut self.groups {
            group.tids.truncate(MAX_TIDS);
            let BlockedGroup {
                reason,
                words,
                name,
                module,
                method,
                waits_for,
                ..
            } = group;
            for text in [reason, words, name, module, method, waits_for] {
                *text = kept(text);
            }
        }
    }

    /// Keeps the processes that `keep` selects.
    #[must_use]
    pub fn of_processes(&self, keep: impl Fn(&BlockedProcess) -> bool) -> Self {
        fn rows<T: Clone>(rows: &[T], is_kept: impl Fn(&T) -> bool) -> Vec<T> {
            rows.iter().filter(|row| is_kept(row)).cloned().collect()
        }
        let processes = rows(&self.processes, keep);
        if processes.len() == self.processes.len() {
            return self.clone();
        }
        let is_kept = |pid: i32| processes.iter().any(|process| process.pid == pid);
        let groups = rows(&self.groups, |group| is_kept(group.pid));
        Self {
            process_count: processes.len() as u64,
            deadlocks: rows(&self.deadlocks, |deadlock| is_kept(deadlock.pid)),
            locks: rows(&self.locks, |lock| is_kept(lock.pid)),
            group_count: groups.len() as u64,
            omitted_threads: processes.iter().map(|process| process.omitted).sum(),
            groups,
            processes,
        }
    }
}
