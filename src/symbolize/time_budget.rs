//! Bound on the time of reading what one user wrote: any number of large files is cheap to make.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::machine::{CodeFile, JitProcess, Owner};

/// Time in which files of one user are read.
const LIMIT: Duration = Duration::from_secs(30);
/// The same of all users: one can act as several, and have any number of root directories.
const TOTAL_LIMIT: Duration = Duration::from_secs(120);

/// The time in which the files of each user were read.
#[derive(Debug)]
pub(super) struct TimeBudget {
    spent: Mutex<Spent>,
    invoking_user: Option<u32>,
}

#[derive(Debug, Default)]
struct Spent {
    all: Usage,
    of_owner: FxHashMap<Owner, Usage>,
}

/// Time in which at least one thread reads.
#[derive(Debug, Default)]
struct Usage {
    readers: usize,
    since: Option<Instant>,
    before: Duration,
}

impl Usage {
    fn spent(&self) -> Duration {
        let now = self.since.map_or(Duration::ZERO, |since| since.elapsed());
        self.before + now
    }

    fn start(&mut self) {
        self.readers += 1;
        self.since.get_or_insert_with(Instant::now);
    }

    fn end(&mut self) {
        self.readers -= 1;
        if self.readers == 0 {
            self.before = self.spent();
            self.since = None;
        }
    }
}

impl TimeBudget {
    /// Creates the budget. `invoking_user` is the user of `sudo`.
    pub(super) fn new(invoking_user: Option<u32>) -> Self {
        Self {
            spent: Mutex::default(),
            invoking_user,
        }
    }

    /// Starts to read the files that name the JIT code of a process.
    pub(super) fn read_of_process(&self, process: Option<&JitProcess>) -> Reading<'_> {
        let source = process.map(|process| &process.source);
        self.read(
            source.and_then(|source| Owner::bounded(source.uid, &source.root, self.invoking_user)),
        )
    }

    /// Starts to read a mapped file and its debug files, which its owner determines.
    pub(super) fn read_file(&self, file: &CodeFile) -> Reading<'_> {
        self.read(Owner::of_file(file, self.invoking_user))
    }

    fn read(&self, owner: Option<Owner>) -> Reading<'_> {
        let left = owner.map(|owner| {
            self.with(|spent| {
                let of_owner = spent.of_owner.entry(owner).or_default();
                let left = LIMIT.saturating_sub(of_owner.spent());
                let all_left = TOTAL_LIMIT.saturating_sub(spent.all.spent());
                of_owner.start();
                spent.all.start();
                left.min(all_left)
            })
        });
        Reading {
            budget: self,
            owner,
            start: Instant::now(),
            left: left.unwrap_or(Duration::MAX),
        }
    }

    fn with<R>(&self, with: impl FnOnce(&mut Spent) -> R) -> R {
        with(&mut self.spent.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Files of an owner are read while this exists.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    budget: &'a TimeBudget,
    owner: Option<Owner>,
    start: Instant,
    left: Duration,
}

impl Reading<'_> {
    /// Returns whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        self.start.elapsed() > self.left
    }

    /// Returns why the code of the owner has no names, if the time is over.
    pub(super) fn overrun(&self) -> Option<String> {
        let owner = self.owner.filter(|_| self.is_over())?;
        let (limit, total) = (LIMIT.as_secs(), TOTAL_LIMIT.as_secs());
        Some(format!(
            "reading what user {} wrote took more than {limit} s, or with other users {total} s",
            owner.uid
        ))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Some(owner) = self.owner else { return };
        self.budget.with(|spent| {
            spent.of_owner.entry(owner).or_default().end();
            spent.all.end();
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32) -> Option<Owner> {
        Some(Owner::of_test(uid))
    }

    fn spend(budget: &TimeBudget, uid: u32, time: Duration) {
        let reading = budget.read(owner(uid));
        budget.with(|spent| {
            spent.all.before += time;
            spent
                .of_owner
                .entry(owner(uid).unwrap())
                .or_default()
                .before += time;
        });
        drop(reading);
    }

    #[test]
    fn bounds_the_time_of_each_owner_and_of_all() {
        let budget = TimeBudget::new(None);
        spend(&budget, 7, LIMIT);
        let why = budget.read(owner(7)).overrun().unwrap();
        assert!(why.contains("user 7"), "{why}");
        assert_eq!(budget.read(owner(8)).overrun(), None);
        (10..14).for_each(|uid| spend(&budget, uid, LIMIT));
        assert!(budget.read(owner(8)).is_over());
        assert_eq!(budget.read(None).overrun(), None);
    }

    #[test]
    fn counts_time_of_several_readers_once() {
        let mut usage = Usage::default();
        usage.start();
        usage.start();
        usage.since = usage.since.and_then(|since| since.checked_sub(LIMIT));
        usage.end();
        assert!(usage.spent() >= LIMIT && usage.spent() < 2 * LIMIT);
        usage.end();
        assert!(usage.spent() >= LIMIT && usage.spent() < 2 * LIMIT && usage.since.is_none());
    }
}
