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
/// Maximum number of processes.
const MAX_PROCESSES: usize = 100;

/// The threads of the target when the capture ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockedSummary {
    /// The processes that ran then.
    pub processes: Vec<BlockedProcess>,
    /// Threads that wait for each other's locks.
    pub deadlocks: Vec<DeadlockRow>,
    /// Threads with the same stack that do the same: at most 50, deadlocks and locks first, and what is
    /// idle last.
    pub groups: Vec<BlockedGroup>,
    /// Number of all groups.
    pub group_count: u64,
    /// Number of threads beyond the limit of what is read.
    pub omitted_threads: u64,
}

/// A process at the end of the capture.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockedProcess {
    /// Process id.
    pub pid: i32,
    /// Name. Untrusted.
    pub name: String,
    /// Number of its threads.
    pub threads: u64,
    /// Threads that ran, or waited for a CPU.
    pub running: u64,
    /// Threads that waited for a lock.
    pub locked: u64,
    /// Threads that waited for work: no function of the user is on their stacks.
    pub idle: u64,
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

/// Threads with the same stack that do the same.
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
    /// The innermost function of the user, or else of the stack. Untrusted.
    pub method: String,
    /// Whether it is the user's.
    pub own: bool,
    /// What the first thread waits for: a file, a connection, a time. Untrusted; empty if it is not known.
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

    /// Keeps some processes.
    #[must_use]
    pub fn of_processes(&self, pids: &[i32]) -> Self {
        let Self {
            processes,
            deadlocks,
            groups,
            group_count,
            omitted_threads,
        } = self;
        let groups: Vec<BlockedGroup> = groups
            .iter()
            .filter(|group| pids.contains(&group.pid))
            .cloned()
            .collect();
        Self {
            processes: processes
                .iter()
                .filter(|row| pids.contains(&row.pid))
                .cloned()
                .collect(),
            deadlocks: deadlocks
                .iter()
                .filter(|row| pids.contains(&row.pid))
                .cloned()
                .collect(),
            group_count: match groups.len() == self.groups.len() {
                true => *group_count,
                false => groups.len() as u64,
            },
            groups,
            omitted_threads: *omitted_threads,
        }
    }
}
