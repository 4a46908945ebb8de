//! The kernel's filter for wake-ups of the target: other processes may be woken a thousand times as often.
//!
//! It lets pass more threads than those of the target: the thread ids between theirs, if there are many, and all
//! threads that start later. They have higher ids until the ids begin anew.

use std::ops::RangeInclusive;
use std::time::{Duration, Instant};

use super::target::Target;
use crate::machine;
use crate::perf::SessionError;
use crate::trace::{Notice, NoticeKind, Pid, Tid};

/// Maximum number of ranges of ids. The kernel takes 4 KiB of text.
const MAX_RANGES: usize = 64;

/// Time between two looks at the ids.
const INTERVAL: Duration = Duration::from_secs(1);

/// Which wake-ups the kernel samples.
pub(super) struct WokenThreads {
    /// The highest id before the target was listed.
    last: Pid,
    looked: Instant,
}

impl WokenThreads {
    /// Call before the processes of the target are listed. Returns `None` if all wake-ups are to be sampled.
    pub(super) fn before_start(target: &Target) -> Option<Self> {
        let last = machine::last_pid().filter(|_| *target != Target::SystemWide)?;
        Some(Self::after(last))
    }

    fn after(last: Pid) -> Self {
        let looked = Instant::now();
        Self { last, looked }
    }

    /// Returns whether ids began anew, so that the filter misses threads. Looks once a second.
    pub(super) fn is_outdated(&mut self) -> bool {
        let now = Instant::now();
        if now.duration_since(self.looked) < INTERVAL {
            return false;
        }
        self.looked = now;
        machine::last_pid().is_none_or(|last| last.0 < self.last.0)
    }

    /// Returns a notice if another filter could not be set.
    pub(super) fn notice(error: &SessionError) -> Notice {
        let what = format!(
            "wake-ups of threads that started late are missing: the ids of threads began anew, and no other events \
             could be opened ({error})"
        );
        Notice::new(NoticeKind::CountersMissing, what, "capture again").about("wake-ups")
    }

    /// Returns the filter, in the syntax of the kernel's trace events.
    pub(super) fn filter(&self, threads: &[Tid]) -> String {
        let old = threads.iter().filter(|tid| tid.0 <= self.last.0);
        let ranges = ranges(old.map(|tid| tid.0).collect());
        let ranges = ranges.into_iter().map(|range| {
            let (start, end) = range.into_inner();
            match start == end {
                true => format!(" || pid == {start}"),
                false => format!(" || (pid >= {start} && pid <= {end})"),
            }
        });
        format!("pid > {}", self.last.0) + &ranges.collect::<String>()
    }
}

/// Returns at most [`MAX_RANGES`] ranges that have the ids, with the smallest gaps closed.
fn ranges(mut ids: Vec<i32>) -> Vec<RangeInclusive<i32>> {
    ids.sort_unstable();
    ids.dedup();
    let gap = |pair: &[i32]| pair[1].saturating_sub(pair[0]);
    let mut gaps: Vec<i32> = ids.windows(2).map(gap).collect();
    gaps.sort_unstable_by(|a, b| b.cmp(a));
    // Gaps of this size and smaller ones are closed.
    let closed = gaps.get(MAX_RANGES - 1).copied().unwrap_or(1).max(1);
    let mut ranges: Vec<RangeInclusive<i32>> = Vec::new();
    for id in ids {
        match ranges.last_mut() {
            Some(last) if id.saturating_sub(*last.end()) <= closed => *last = *last.start()..=id,
            _ => ranges.push(id..=id),
        }
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_the_threads_and_all_later_ones() {
        let woken = WokenThreads::after(Pid(500));
        let filter = |ids: &[i32]| woken.filter(&ids.iter().copied().map(Tid).collect::<Vec<_>>());
        assert_eq!(filter(&[]), "pid > 500");
        let some = "pid > 500 || (pid >= 7 && pid <= 9) || pid == 42";
        assert_eq!(filter(&[42, 9, 7, 8, 501]), some);
    }

    #[test]
    fn any_number_of_threads_has_a_filter() {
        let far_apart: Vec<i32> = (0..10_000).map(|n| n * 400).collect();
        let in_groups: Vec<i32> = (0..2000).map(|n| n / 100 * 100_000 + n).collect();
        for ids in [far_apart, in_groups, vec![i32::MIN, i32::MAX]] {
            let found = ranges(ids.clone());
            assert!(found.len() <= MAX_RANGES, "{}", found.len());
            assert!(
                ids.iter()
                    .all(|id| found.iter().any(|range| range.contains(id)))
            );
            let filter = WokenThreads::after(Pid(i32::MAX))
                .filter(&ids.into_iter().map(Tid).collect::<Vec<_>>());
            assert!(filter.len() < 4096, "{}", filter.len());
        }
        // Groups stay apart.
        let in_groups: Vec<i32> = (0..2000).map(|n| n / 100 * 100_000 + n).collect();
        assert_eq!(ranges(in_groups).len(), 20);
    }
}
