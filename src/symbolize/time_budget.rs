//! Bound on the time of reading what one user wrote: any number of large files is cheap to make.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use perfcollect_symbols::process::Root;
use rustc_hash::FxHashMap;
use rustix::process::geteuid;

use crate::machine::{CodeFile, Content, JitProcess};

/// Time for the files of one user, of all threads together.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// The time that the files of each user have taken.
#[derive(Debug)]
pub(super) struct TimeBudget {
    used: Mutex<FxHashMap<Owner, Duration>>,
    invoking_user: Option<u32>,
    /// Whether this process is root's. Another user reads only what the user could read anyway.
    is_root: bool,
}

/// A user in a root directory: each container has its own users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Owner {
    uid: u32,
    root: (u64, u64),
}

impl Owner {
    /// Returns the owner of the files that name the JIT code of a process.
    pub(super) fn of_process(process: &JitProcess) -> Option<Self> {
        let source = &process.source;
        Self::untrusted(source.uid, &source.root)
    }

    /// Returns the owner of a mapped file, who determines its debug files, too.
    pub(super) fn of_file(file: &CodeFile) -> Option<Self> {
        let Content::File(content) = &file.content else {
            return None;
        };
        let uid = content.metadata().ok()?.uid();
        match &file.container {
            Some(root) => Self::untrusted(uid, root),
            None => Self::untrusted(uid, &Root::host().ok()?),
        }
    }

    /// Returns `None` for root of the host, who needs no bound.
    fn untrusted(uid: u32, root: &Root) -> Option<Self> {
        let identity = root.identity().ok()?;
        let is_host = || io::Result::Ok(Root::host()?.identity()? == identity);
        match uid == 0 && is_host().is_ok_and(|is_host| is_host) {
            true => None,
            false => Some(Self {
                uid,
                root: identity,
            }),
        }
    }
}

impl TimeBudget {
    pub(super) fn new(invoking_user: Option<u32>) -> Self {
        Self {
            used: Mutex::default(),
            invoking_user,
            is_root: geteuid().is_root(),
        }
    }

    /// Starts to read files of an owner; `None` has no bound.
    pub(super) fn read(&self, owner: Option<Owner>) -> Reading<'_> {
        let is_bound = |owner: &Owner| self.is_root && self.invoking_user != Some(owner.uid);
        let owner = owner.filter(is_bound);
        let used = owner.map(|owner| self.with(|all| all.get(&owner).copied().unwrap_or_default()));
        Reading {
            budget: self,
            owner,
            start: Instant::now(),
            left: used.map_or(Duration::MAX, |used| LIMIT.saturating_sub(used)),
        }
    }

    fn with<R>(&self, with: impl FnOnce(&mut FxHashMap<Owner, Duration>) -> R) -> R {
        with(&mut self.used.lock().unwrap_or_else(PoisonError::into_inner))
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
        let seconds = LIMIT.as_secs();
        Some(format!(
            "reading what user {} wrote took more than {seconds} s",
            owner.uid
        ))
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        let Some(owner) = self.owner else { return };
        let spent = self.start.elapsed();
        self.budget.with(|all| {
            let used = all.entry(owner).or_default();
            *used = used.saturating_add(spent);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32) -> Option<Owner> {
        Some(Owner { uid, root: (1, 2) })
    }

    #[test]
    fn bounds_the_time_of_each_owner() {
        let budget = TimeBudget {
            is_root: true,
            ..TimeBudget::new(Some(9))
        };
        budget.with(|all| all.insert(owner(7).unwrap(), LIMIT));
        let mut reading = budget.read(owner(7));
        assert_eq!(reading.left, Duration::ZERO);
        let why = reading.overrun().unwrap();
        assert!(why.contains("user 7"), "{why}");
        reading.start -= Duration::from_secs(3);
        drop(reading);
        budget.with(|all| assert!(all[&owner(7).unwrap()] >= LIMIT + Duration::from_secs(3)));
        budget.with(|all| all.insert(owner(9).unwrap(), LIMIT));
        // The last two are the invoking user and root.
        for other in [owner(8), owner(9), None] {
            assert_eq!(budget.read(other).overrun(), None);
        }
    }

    #[test]
    fn root_of_the_host_has_no_bound() {
        let host = Root::host().unwrap();
        assert_eq!(Owner::untrusted(0, &host), None);
        assert!(Owner::untrusted(1, &host).is_some());
        let directory = tempfile::tempdir().unwrap();
        let container = Root::at(directory.path()).unwrap();
        assert!(Owner::untrusted(0, &container).is_some());
    }
}
