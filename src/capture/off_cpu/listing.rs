//! Lists the threads of the target, and what of their processes changes.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rustc_hash::{FxHashMap, FxHashSet};

use super::ticker::{Ticker, WatchedProcess};
use super::watched_thread::{NotWatched, WatchedThread};
use crate::machine::{self, NotBlocked, ProcError};
use crate::trace::{Pid, Tid};

/// Maximum number of threads, and of those of a user but root in a capture of the machine. The others are counted.
const MAX_THREADS: usize = 4096;
const MAX_OF_USER: usize = MAX_THREADS / 4 * 3;

/// The numbers of threads, by user.
struct Shares {
    all: usize,
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
        let mut shares = Self {
            all: 0,
            of_user: FxHashMap::default(),
            is_machine,
        };
        for thread in threads {
            shares.add(processes.get(&thread.pid));
        }
        shares
    }

    /// Adds a thread of a process.
    fn add(&mut self, process: Option<&WatchedProcess>) {
        self.all += 1;
        if let Some(owner) = process.and_then(|process| process.owner) {
            *self.of_user.entry(owner).or_default() += 1;
        }
    }

    /// Returns whether there may be another thread of a user.
    fn may_add(&self, owner: Option<u32>) -> bool {
        let limit = match self.is_machine && owner != Some(0) {
            true => MAX_OF_USER,
            false => MAX_THREADS,
        };
        let of_user = owner.and_then(|owner| self.of_user.get(&owner));
        self.all < MAX_THREADS && of_user.is_none_or(|count| *count < limit)
    }
}

impl Ticker {
    /// Returns the processes to look at. `None` if they cannot be listed now.
    fn pids(&self) -> Option<Vec<Pid>> {
        let pids = self.shared.pids.lock();
        let pids = pids.unwrap_or_else(PoisonError::into_inner).clone();
        let own = Pid(std::process::id() as i32);
        pids.or_else(|| {
            let mut all = machine::pids().ok()?;
            all.retain(|pid| *pid != own);
            Some(all)
        })
    }

    /// Returns whether all processes are the target.
    fn is_machine(&self) -> bool {
        let pids = self.shared.pids.lock();
        pids.unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Adds the threads that are new.
    pub(super) fn list(&mut self) {
        let Some(pids) = self.pids() else {
            self.shared.without_files.fetch_max(1, Ordering::Relaxed);
            return;
        };
        let listed: FxHashSet<Pid> = pids.iter().copied().collect();
        self.processes.retain(|pid, _| listed.contains(pid));
        let mut ignored = FxHashSet::default();
        let (mut omitted, mut without_files) = (0, 0);
        let is_machine = self.is_machine();
        let mut shares = Shares::of(&self.processes, self.threads.values(), is_machine);
        for &pid in &pids {
            self.burst.pause();
            let known = self.processes.get(&pid);
            let process = known.map(|known| known.is_stopped);
            let owner = match known {
                Some(known) => known.owner,
                None => machine::file_owner(pid),
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
                    omitted += 1;
                } else {
                    self.burst.pause();
                    match error.map_or_else(|| self.add(pid, tid), Err) {
                        Ok(true) => shares.add(self.processes.get(&pid)),
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

    /// Adds a thread. Returns whether it is one of a program, not of the kernel.
    fn add(&mut self, pid: Pid, tid: Tid) -> Result<bool, NotWatched> {
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
        let throttling = &mut self.throttling;
        self.processes.entry(pid).or_insert_with(|| {
            let limits = throttling.limits_of(pid);
            WatchedProcess::of(pid, tid, limits)
        });
        Ok(true)
    }

    /// Finds the control groups of the processes, and whether they are frozen: a process may move to another
    /// one.
    pub(super) fn find_limits(&mut self) {
        let mut changed = FxHashSet::default();
        for (pid, process) in &mut self.processes {
            process.limits = self.throttling.limits_of(*pid);
            let is_frozen = machine::is_frozen(*pid);
            if std::mem::replace(&mut process.is_frozen, is_frozen) != is_frozen {
                changed.insert(*pid);
            }
            self.burst.pause();
        }
        self.throttling.forget_unused();
        for thread in self.threads.values_mut() {
            thread.is_due |= changed.contains(&thread.pid);
        }
    }
}
