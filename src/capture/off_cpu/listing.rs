//! Lists the threads of the target, and what of their processes changes.

use std::collections::hash_map::Entry;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ticker::{Ticker, WatchedProcess};
use super::watched_thread::{NotWatched, WatchedThread, max_open};
use crate::capture::usage::thread_cpu_time;
use crate::machine::{self, NotBlocked, ProcError};
use crate::trace::{Pid, Tid};

/// Maximum number of threads. The others are counted.
const MAX_THREADS: usize = 4096;
/// Eighths of them for all users but root in a capture of the machine, and for one of them.
const EIGHTHS_OF_USERS: usize = 7;
const EIGHTHS_OF_USER: usize = 6;
/// Longest CPU time of a round of reads of control groups.
const MAX_LIMITS_ROUND: Duration = Duration::from_millis(100);

/// The numbers of threads, by user.
struct Shares {
    max: usize,
    all: usize,
    of_users: usize,
    of_user: FxHashMap<u32, usize>,
    /// Whether there are processes of users who do not know of each other.
    is_machine: bool,
}

impl Shares {
    fn of<'a>(
        processes: &FxHashMap<Pid, WatchedProcess>,
        threads: impl Iterator<Item = &'a WatchedThread>,
        is_machine: bool,
    ) -> Self {
        let max_open = if is_machine { max_open() } else { MAX_THREADS };
        let mut shares = Self {
            max: max_open.min(MAX_THREADS),
            all: 0,
            of_users: 0,
            of_user: FxHashMap::default(),
            is_machine,
        };
        for thread in threads {
            let process = processes.get(&thread.pid);
            shares.add(process.and_then(|process| process.owner));
        }
        shares
    }

    /// Adds a thread of a user.
    fn add(&mut self, owner: Option<u32>) {
        self.all += 1;
        if let Some(owner) = owner.filter(|owner| *owner != 0) {
            self.of_users += 1;
            *self.of_user.entry(owner).or_default() += 1;
        }
    }

    /// Returns whether there may be another thread of a user.
    fn may_add(&self, owner: Option<u32>) -> bool {
        let owner = owner.filter(|owner| *owner != 0 && self.is_machine);
        let is_full = owner.is_some_and(|owner| {
            let of_user = self.of_user.get(&owner).copied().unwrap_or_default();
            of_user >= self.max / 8 * EIGHTHS_OF_USER
                || self.of_users >= self.max / 8 * EIGHTHS_OF_USERS
        });
        self.all < self.max && !is_full
    }

    /// Returns whether it takes more descriptors to add more threads.
    fn lacks_files(&self) -> bool {
        self.max < MAX_THREADS
    }
}

fn own_pid() -> Pid {
    Pid(std::process::id() as i32)
}

impl Ticker {
    /// Returns the processes to look at. `None` if they cannot be listed now.
    fn pids(&self) -> Option<Vec<Pid>> {
        self.named().or_else(|| {
            let mut all = machine::pids().ok()?;
            all.retain(|pid| *pid != own_pid());
            Some(all)
        })
    }

    /// Returns the processes that are the target. `None` if all are.
    fn named(&self) -> Option<Vec<Pid>> {
        let pids = self.shared.pids.lock();
        pids.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds the threads that are new.
    pub(super) fn list(&mut self) {
        let Some(pids) = self.pids() else {
            self.shared.without_files.fetch_max(1, Ordering::Relaxed);
            return;
        };
        let listed: FxHashSet<Pid> = pids.iter().copied().collect();
        self.processes.retain(|pid, _| listed.contains(pid));
        self.groups.start_round();
        let mut ignored = FxHashSet::default();
        let (mut omitted, mut without_files) = (0, 0);
        let mut shares = self.shares();
        for &pid in &pids {
            self.burst.pause();
            let known = self.processes.get(&pid);
            let process = known.map(|known| known.is_stopped);
            let owner = match known {
                Some(known) => known.owner,
                // A program with the rights of root, such as `su`, is its user's.
                None => machine::real_user(pid),
            };
            let is_stopped = machine::is_stopped(pid);
            // One that cannot be listed counts as its main thread.
            let (tids, error) = match machine::tids(pid) {
                Ok(tids) => (tids, None),
                Err(ProcError::Read { source, .. }) => {
                    (vec![Tid(pid.0)], Some(NotWatched::of(&source)))
                }
            };
            for tid in tids {
                if self.shared.is_over.load(Ordering::Relaxed) {
                    return;
                }
                if self.ignored.contains(&tid) {
                    ignored.insert(tid);
                } else if let Some(thread) = self.threads.get_mut(&tid) {
                    // The place is another one, though it has not run.
                    thread.is_due |= process.is_some_and(|known| known != is_stopped);
                } else if !shares.may_add(owner) {
                    match shares.lacks_files() {
                        true => without_files += 1,
                        false => omitted += 1,
                    }
                } else {
                    self.burst.pause();
                    match error.map_or_else(|| self.add(pid, tid, owner), Err) {
                        Ok(true) => shares.add(owner),
                        Err(NotWatched::Ended) => {}
                        Ok(false) => drop(ignored.insert(tid)),
                        Err(NotWatched::TooManyFiles) => without_files += 1,
                        Err(NotWatched::Unreadable) => {
                            self.shared.unreadable.fetch_add(1, Ordering::Relaxed);
                            ignored.insert(tid);
                        }
                    }
                }
            }
            if let Some(known) = self.processes.get_mut(&pid) {
                known.is_stopped = is_stopped;
            }
        }
        self.ignored = ignored;
        self.shared.omitted.fetch_max(omitted, Ordering::Relaxed);
        let missing = &self.shared.without_files;
        missing.fetch_max(without_files, Ordering::Relaxed);
    }

    /// Adds the threads that have started, as the kernel has reported.
    pub(super) fn add_new(&mut self) {
        let new = self.shared.new_threads.lock();
        let new = std::mem::take(&mut *new.unwrap_or_else(PoisonError::into_inner));
        if new.is_empty() {
            return;
        }
        let named = self.named();
        let is_followed = |pid: &Pid| match &named {
            Some(pids) => pids.contains(pid),
            None => *pid != own_pid(),
        };
        self.groups.start_round();
        let mut shares = self.shares();
        for (pid, tid) in new {
            if !is_followed(&pid) || self.threads.contains_key(&tid) {
                continue;
            }
            let known = self.processes.get(&pid);
            let owner = known.map_or_else(|| machine::real_user(pid), |known| known.owner);
            self.burst.pause();
            // What fails is counted by the next list.
            if shares.may_add(owner) && self.add(pid, tid, owner) == Ok(true) {
                shares.add(owner);
            }
        }
    }

    fn shares(&self) -> Shares {
        let is_machine = self.named().is_none();
        Shares::of(&self.processes, self.threads.values(), is_machine)
    }

    /// Adds a thread of a user's process. Returns whether it is one of a program, not of the kernel.
    fn add(&mut self, pid: Pid, tid: Tid, owner: Option<u32>) -> Result<bool, NotWatched> {
        let thread = WatchedThread::open(pid, tid, self.started)?;
        match thread.blocked() {
            Err(NotBlocked::NoUserCode) => return Ok(false),
            Err(NotBlocked::Unreadable(_)) => {
                self.shared.unreadable.fetch_add(1, Ordering::Relaxed);
            }
            Err(NotBlocked::Runs) if machine::is_of_kernel(pid, tid) => return Ok(false),
            Ok(_) | Err(NotBlocked::Runs) => {}
        }
        self.threads.insert(tid, thread);
        if let Entry::Vacant(entry) = self.processes.entry(pid) {
            entry.insert(WatchedProcess::of(pid, tid, owner));
            match self.groups.is_round_over() {
                // The threads of others wait to be looked at.
                true => self.unread.push(pid),
                false => drop(self.find_limits_of(pid)),
            }
        }
        Ok(true)
    }

    /// Finds the control groups of the processes, and whether they are frozen: a process may move to another
    /// one. Goes on where the round before ended, which is when it has taken long.
    pub(super) fn find_limits(&mut self) {
        self.groups.start_round();
        if self.unread.is_empty() {
            self.unread.extend(self.processes.keys());
        }
        let start = thread_cpu_time();
        let mut changed = FxHashSet::default();
        while let Some(pid) = self.unread.pop() {
            if self.find_limits_of(pid) {
                changed.insert(pid);
            }
            self.burst.pause();
            let is_long = thread_cpu_time().saturating_sub(start) > MAX_LIMITS_ROUND;
            let is_over = self.shared.is_over.load(Ordering::Relaxed);
            if is_over || is_long || self.groups.is_round_over() {
                break;
            }
        }
        self.throttling.forget_unused();
        for thread in self.threads.values_mut() {
            thread.is_due |= changed.contains(&thread.pid);
        }
    }

    /// Finds the control groups of a process. Returns whether it has been frozen or thawed.
    fn find_limits_of(&mut self, pid: Pid) -> bool {
        let Some(process) = self.processes.get_mut(&pid) else {
            return false;
        };
        let Some(groups) = self.groups.read(pid, process.owner) else {
            let without_groups = &self.shared.without_groups;
            without_groups.store(self.groups.omitted(), Ordering::Relaxed);
            return false;
        };
        process.limits = self.throttling.limits_of(&groups);
        let is_frozen = machine::is_frozen(&groups);
        std::mem::replace(&mut process.is_frozen, is_frozen) != is_frozen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_users_leave_room_for_those_of_others_and_of_root() {
        let mut shares = Shares::of(&FxHashMap::default(), std::iter::empty(), true);
        let eighth = shares.max / 8;
        let fill = |owner, shares: &mut Shares| {
            let before = shares.all;
            while shares.may_add(Some(owner)) {
                shares.add(Some(owner));
            }
            shares.all - before
        };
        assert_eq!(fill(7, &mut shares), 6 * eighth);
        assert_eq!(fill(8, &mut shares), eighth);
        assert_eq!(fill(9, &mut shares), 0);
        assert_eq!(fill(0, &mut shares), shares.max - 7 * eighth);
        // The user named the processes.
        let mut shares = Shares::of(&FxHashMap::default(), std::iter::empty(), false);
        assert_eq!(fill(7, &mut shares), MAX_THREADS);
    }
}
