//! Bound on the time that the files and the JIT code of one user take on the thread that reads the
//! ring buffers.
//!
//! What is read from a file and what a rule evaluates depends on its owner, who may have any number
//! of files. An owner may take a tenth of the time, and some time at once, as programs need when
//! they start.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::machine::Owner;
use crate::trace::{Notice, NoticeKind};

/// Bound of one owner: less than a ring buffer holds, and a tenth of the time.
const OF_OWNER: Bound = Bound {
    at_once: Duration::from_millis(100),
    one_in: 10,
};
/// Bound of all owners: one user can act as several, and have any number of root directories.
const OF_ALL: Bound = Bound {
    at_once: Duration::from_millis(200),
    one_in: 2,
};
/// Maximum number of owners in notices.
const MAX_NOTICES: usize = 16;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    /// Time that may be taken at once.
    pub(super) at_once: Duration,
    /// One of so many seconds may be taken.
    pub(super) one_in: u32,
}

/// Time that was taken, less what has been granted since.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    taken: Duration,
    settled: Option<Instant>,
    /// Whether something was refused.
    is_refused: bool,
}

impl Account {
    fn settle(&mut self, bound: Bound, now: Instant) {
        let since = self.settled.map_or(Duration::ZERO, |settled| now - settled);
        self.taken = self.taken.saturating_sub(since / bound.one_in);
        self.settled = Some(now);
    }

    /// Returns whether the time is used up.
    pub(super) fn is_over(&mut self, bound: Bound, now: Instant) -> bool {
        self.settle(bound, now);
        self.taken > bound.at_once
    }

    /// Adds time that was taken since the last query.
    pub(super) fn add(&mut self, taken: Duration) {
        self.taken += taken;
    }
}

/// The time that the files of each owner have taken. By default, it is not bounded.
#[derive(Debug, Default)]
pub(super) struct OwnerTime {
    /// Whether ring buffers are read meanwhile.
    is_bounded: bool,
    all: Account,
    of_owner: FxHashMap<Owner, Account>,
}

impl OwnerTime {
    /// Bounds the time.
    pub(super) fn bounded() -> Self {
        Self {
            is_bounded: true,
            ..Self::default()
        }
    }

    /// Reads something of an owner's file, whatever time was taken before.
    pub(super) fn charge<R>(&mut self, owner: Option<Owner>, read: impl FnOnce() -> R) -> R {
        let Some(owner) = owner else { return read() };
        let start = Instant::now();
        let result = read();
        self.add(owner, start.elapsed());
        result
    }

    /// Reads something of an owner's file. Returns `None` if its time is used up.
    pub(super) fn read<R>(&mut self, owner: Option<Owner>, read: impl FnOnce() -> R) -> Option<R> {
        (!self.is_over(owner)).then(|| self.charge(owner, read))
    }

    /// Returns whether the time of an owner is used up, and notes it for the notices.
    pub(super) fn is_over(&mut self, owner: Option<Owner>) -> bool {
        let Some(owner) = owner.filter(|_| self.is_bounded) else {
            return false;
        };
        let now = Instant::now();
        let account = self.of_owner.entry(owner).or_default();
        let is_over = account.is_over(OF_OWNER, now) || self.all.is_over(OF_ALL, now);
        account.is_refused |= is_over;
        is_over
    }

    /// Adds time that an owner has taken.
    pub(super) fn add(&mut self, owner: Owner, taken: Duration) {
        let now = Instant::now();
        let of_owner = self.of_owner.entry(owner).or_default();
        for (account, bound) in [(of_owner, OF_OWNER), (&mut self.all, OF_ALL)] {
            account.settle(bound, now);
            account.add(taken);
        }
    }

    /// Returns notices about the users whose files were refused.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let owners = self.of_owner.iter();
        let refused = owners.filter(|(_, account)| account.is_refused);
        let mut users: Vec<_> = refused.map(|(owner, _)| owner.uid).collect();
        users.sort_unstable();
        users.dedup();
        users.into_iter().take(MAX_NOTICES).map(|user| {
            let what = format!(
                "the unwind information of user {user}'s files and JIT code takes too long to \
                 read: some of their frames were unwound by frame pointers and may miss callers"
            );
            Notice::new(NoticeKind::UnwindingBounded, what, "").about(user)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_the_time_of_each_owner_and_of_all() {
        let owner = |uid| Some(Owner::of_test(uid));
        let mut time = OwnerTime::bounded();
        let long = OF_OWNER.at_once + Duration::from_secs(1);
        time.add(Owner::of_test(7), long);
        assert_eq!(time.read(owner(7), || 1), None);
        assert_eq!(time.read(None, || 1), Some(1));
        // The time of all is used up, too.
        assert_eq!(time.read(owner(8), || 1), None);
        let notices: Vec<_> = time.notices().collect();
        let users: Vec<_> = notices.iter().map(|notice| &*notice.subject).collect();
        assert_eq!(users, ["7", "8"]);

        let mut time = OwnerTime::bounded();
        time.add(
            Owner::of_test(7),
            OF_OWNER.at_once + Duration::from_millis(50),
        );
        assert_eq!(time.read(owner(7), || 1), None);
        assert_eq!(time.read(owner(8), || 1), Some(1));
    }

    #[test]
    fn grants_time_again() {
        let start = Instant::now();
        let mut account = Account {
            taken: OF_OWNER.at_once + Duration::from_secs(1),
            settled: Some(start),
            is_refused: false,
        };
        assert!(account.is_over(OF_OWNER, start + Duration::from_secs(9)));
        assert!(!account.is_over(OF_OWNER, start + Duration::from_secs(11)));
    }
}
