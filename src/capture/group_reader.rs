//! Reads the control groups of processes in bounded time.
//!
//! The kernel takes longer the deeper they are nested, up to 20 ms for one process. Users may nest their own.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use super::usage::thread_cpu_time;
use crate::machine::ControlGroup;
use crate::trace::Pid;

/// Least CPU time of a slow read: usual ones take some microseconds.
const MIN_SLOW: Duration = Duration::from_millis(1);
/// CPU time of slow reads after which no process of a user but root is read, and no process in a round.
const MAX_OF_USER: Duration = Duration::from_millis(40);
const MAX_OF_ROUND: Duration = Duration::from_millis(20);

/// Reads control groups, and remembers whose took long.
#[derive(Debug, Default)]
pub(super) struct GroupReader {
    of_user: FxHashMap<u32, Duration>,
    of_round: Duration,
    omitted: FxHashSet<Pid>,
}

impl GroupReader {
    /// Reads the control groups of a process of a user. Returns `None` if those of its user take too long.
    pub(super) fn read(&mut self, pid: Pid, user: Option<u32>) -> Option<Vec<ControlGroup>> {
        if !self.may_read(user) {
            self.omitted.insert(pid);
            return None;
        }
        let start = thread_cpu_time();
        let groups = ControlGroup::of(pid);
        self.count(user, thread_cpu_time().saturating_sub(start));
        Some(groups)
    }

    fn may_read(&self, user: Option<u32>) -> bool {
        let limited = user.filter(|user| *user != 0);
        let spent = limited.and_then(|user| self.of_user.get(&user));
        spent.is_none_or(|spent| *spent < MAX_OF_USER)
    }

    fn count(&mut self, user: Option<u32>, spent: Duration) {
        if spent >= MIN_SLOW {
            self.of_round += spent;
            *self.of_user.entry(user.unwrap_or_default()).or_default() += spent;
        }
    }

    /// Starts a round of reads.
    pub(super) fn start_round(&mut self) {
        self.of_round = Duration::ZERO;
    }

    /// Returns whether slow reads have taken enough time in this round.
    pub(super) fn is_round_over(&self) -> bool {
        self.of_round >= MAX_OF_ROUND
    }

    /// Returns the number of processes that were not read.
    pub(super) fn omitted(&self) -> usize {
        self.omitted.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_with_slow_groups_delays_only_his_own() {
        let own = Pid(std::process::id() as i32);
        let mut reader = GroupReader::default();
        assert!(reader.read(own, Some(7)).is_some());
        assert!(!reader.is_round_over());
        for _ in 0..1000 {
            reader.count(Some(7), Duration::from_micros(900));
        }
        assert!(reader.may_read(Some(7)));
        for user in [0, 7] {
            reader.count(Some(user), MAX_OF_USER);
        }
        assert!(reader.is_round_over());
        assert_eq!(reader.read(own, Some(7)), None);
        assert!(reader.read(own, Some(8)).is_some() && reader.read(own, Some(0)).is_some());
        assert_eq!(reader.omitted(), 1);
        reader.start_round();
        assert!(!reader.is_round_over());
    }
}
