//! The control groups that may limit the CPU time of the target.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};

use super::group_reader::GroupReader;
use super::signals::Signals;
use super::target::Target;
use super::usage::thread_cpu_time;
use crate::machine;
use crate::trace::{Notice, NoticeKind, Pid};

/// Maximum number of processes whose groups are read.
const MAX_PIDS: usize = 4096;
/// Maximum number of groups, of those of all users but root, and of those of one of them.
const MAX_GROUPS: usize = 1024;
const MAX_OF_USERS: usize = MAX_GROUPS / 4 * 3;
const MAX_OF_USER: usize = MAX_GROUPS / 2;
/// Longest CPU time of the search, and longest time if others have the CPUs.
const MAX_CPU_TIME: Duration = Duration::from_millis(100);
const MAX_TIME: Duration = Duration::from_secs(1);

/// The statistics of the groups that may limit the CPU time of the target.
#[derive(Debug, Default)]
pub(super) struct LimitGroups {
    files: FxHashSet<PathBuf>,
    of_user: FxHashMap<u32, usize>,
    of_users: usize,
    /// Number of processes some of whose groups are missing.
    omitted: usize,
}

impl LimitGroups {
    /// Finds the groups of a target, until a signal ends the capture. This may take a tenth of a second, and longer if others
    /// have the CPUs.
    pub(super) fn find(target: &Target, signals: &Signals) -> Self {
        let pids = match target {
            Target::Pids(pids) => pids.clone(),
            Target::SystemWide => machine::pids().unwrap_or_default(),
            // It will be in the group of perfcollect.
            Target::Command(_) => vec![Pid(std::process::id() as i32)],
        };
        let (end, cpu_end) = (Instant::now() + MAX_TIME, thread_cpu_time() + MAX_CPU_TIME);
        let is_over = || thread_cpu_time() >= cpu_end || Instant::now() >= end || signals.pending();
        let mut reader = GroupReader::default();
        let mut found = Self::default();
        let read = pids.iter().take(MAX_PIDS).take_while(|_| !is_over());
        let read = read.map(|pid| {
            let user = machine::real_user(*pid);
            let groups = reader.read(*pid, user);
            found.add(user, machine::limits_of(&groups.unwrap_or_default()));
        });
        let read = read.count();
        found.omitted += reader.omitted() + pids.len() - read;
        found
    }

    /// Adds the groups of a process of a user.
    fn add(&mut self, user: Option<u32>, files: Vec<PathBuf>) {
        let user = user.filter(|user| *user != 0);
        let mut is_complete = true;
        for file in files {
            if self.files.contains(&file) {
                continue;
            }
            let of_user = user.map(|user| self.of_user.entry(user).or_default());
            let has_room = of_user
                .as_ref()
                .is_none_or(|of_user| **of_user < MAX_OF_USER && self.of_users < MAX_OF_USERS);
            if self.files.len() >= MAX_GROUPS || !has_room {
                is_complete = false;
                continue;
            }
            if let Some(of_user) = of_user {
                *of_user += 1;
                self.of_users += 1;
            }
            self.files.insert(file);
        }
        self.omitted += usize::from(!is_complete);
    }

    /// Returns the files, and the notice about processes whose groups are missing.
    pub(super) fn into_parts(self) -> (FxHashSet<PathBuf>, Option<Notice>) {
        let notice = (self.omitted > 0).then(|| {
            let what = format!(
                "CPU limits of {} processes were not looked for: they have too many control groups, or groups that are \
                 nested too deep",
                self.omitted
            );
            let notice = Notice::new(NoticeKind::CpuLimitsUnread, what, "name them: -pid PID");
            notice.counting(self.omitted)
        });
        (self.files, notice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(of: &str, count: usize) -> Vec<PathBuf> {
        let paths = (0..count).map(|number| PathBuf::from(format!("/{of}/{number}/cpu.stat")));
        paths.collect()
    }

    #[test]
    fn groups_of_users_leave_room_for_those_of_root() {
        let mut found = LimitGroups::default();
        for (user, name) in [(7, "a"), (8, "b")] {
            found.add(Some(user), groups(name, MAX_GROUPS));
        }
        assert_eq!(found.files.len(), MAX_OF_USERS);
        // They are known.
        found.add(Some(7), groups("a", MAX_OF_USER));
        found.add(Some(0), groups("c", MAX_GROUPS - MAX_OF_USERS));
        assert_eq!((found.files.len(), found.omitted), (MAX_GROUPS, 2));
        let (_, notice) = found.into_parts();
        assert_eq!(notice.map(|notice| notice.count), Some(2));
    }
}
