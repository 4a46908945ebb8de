//! For how long CPU limits kept the threads of the target from the CPUs.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::cpu_list;
use crate::machine::{self, ControlGroup, CpuLimit, CpuStatistics};
use crate::perf;
use crate::trace::Nanos;

/// Number of times that are kept of a control group: more than a period has looks.
const MAX_TIMES: usize = 256;

/// The CPU limits of a process.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Statistics of its control groups.
    files: Vec<Arc<Path>>,
    pub(super) lowest: Option<CpuLimit>,
}

/// A time in which a thread waited for a CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuWait {
    /// Length in nanoseconds.
    pub(super) ns: u64,
    /// Time of the last look before its end.
    pub(super) last: Nanos,
    /// Time of the look at which the wait before it had ended.
    pub(super) before: Nanos,
    /// CPU that the thread had last. `None` if that is unknown.
    pub(super) cpu: Option<u32>,
}

impl CpuWait {
    /// Returns its earliest start, which may precede the last look.
    fn start(&self) -> u64 {
        self.last.0.saturating_sub(self.ns).max(self.before.0)
    }
}

/// The control groups of the target.
#[derive(Debug)]
pub(super) struct Throttling {
    groups: FxHashMap<Arc<Path>, Group>,
    /// Number of CPUs of the machine.
    cpus: u64,
}

/// A control group, and when it had been throttled for how long.
#[derive(Debug)]
struct Group {
    statistics: CpuStatistics,
    history: History,
    shares: Shares,
}

impl Throttling {
    pub(super) fn new() -> Self {
        let cpus = cpu_list::online().map_or(1, |cpus| cpus.len() as u64);
        Self {
            groups: FxHashMap::default(),
            cpus: cpus.max(1),
        }
    }

    /// Opens the statistics of the control groups of a process.
    pub(super) fn limits_of(&mut self, groups: &[ControlGroup]) -> Limits {
        let (files, lowest) = machine::throttling_of(groups);
        let opened = files.into_iter().filter_map(|file| {
            if let Some((known, _)) = self.groups.get_key_value(&*file) {
                return Some(Arc::clone(known));
            }
            let statistics = CpuStatistics::open(&file)?;
            let start = statistics.throttled()?.ns;
            let group = Group {
                statistics,
                history: History::new(perf::now(), start),
                shares: Shares::default(),
            };
            let file: Arc<Path> = file.into();
            self.groups.insert(Arc::clone(&file), group);
            Some(file)
        });
        Limits {
            files: opened.collect(),
            lowest,
        }
    }

    /// Closes the statistics that no process has.
    pub(super) fn forget_unused(&mut self) {
        self.groups.retain(|file, _| Arc::strong_count(file) > 1);
    }

    /// Returns for how many nanoseconds of a wait for a CPU its thread was throttled.
    pub(super) fn of(&mut self, wait: &CpuWait, limits: &Limits) -> u64 {
        let since = perf::now().0.saturating_sub(wait.last.0);
        let lowest = limits.lowest;
        let most = lowest.map(|limit| longest(limit, self.cpus, wait.ns, since));
        let groups = limits.files.iter().filter_map(|file| {
            let group = self.groups.get_mut(file)?;
            if let Some(throttled) = group.statistics.throttled() {
                group.history.add(perf::now(), throttled.ns);
            }
            let throttled = group.history.throttled(wait);
            let throttled = throttled.min(most.unwrap_or(u64::MAX));
            let share = lowest.zip(wait.cpu).filter(|_| throttled > 0);
            Some(share.map_or(throttled, |(limit, cpu)| {
                let period = group.history.period(limit.period_ns / 2);
                group.shares.take(&period, wait.start(), cpu, throttled)
            }))
        });
        // Two groups may have counted the same time.
        groups.max().unwrap_or(0)
    }

    /// Returns whether a thread of a process that is ready now may be throttled: its group was in the last periods.
    pub(super) fn is_likely(&self, limits: &Limits, now: Nanos) -> bool {
        let groups = limits.files.iter().filter_map(|file| self.groups.get(file));
        let last = groups.filter_map(|group| group.history.last_growth()).max();
        let recent = limits.lowest.map_or(0, |limit| limit.period_ns);
        last.is_some_and(|last| now.0.saturating_sub(last.0) <= recent.saturating_mul(2))
    }
}

/// The last time at which a group could run again, on one CPU after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Period {
    /// Time at which it was known to be throttled, or to run, before.
    after: Nanos,
    /// Time for which it was throttled since then, in nanoseconds: the sum over the CPUs.
    ns: u64,
}

/// The parts of CPUs in the time for which a group was throttled in a period.
#[derive(Debug, Default)]
struct Shares {
    after: Nanos,
    cpus: Vec<(u32, u64)>,
}

impl Shares {
    /// Takes at most so many nanoseconds for a thread that had this CPU: no more than other CPUs have left. Returns how
    /// many it got.
    fn take(&mut self, period: &Period, start: u64, cpu: u32, ns: u64) -> u64 {
        if start < period.after.0 {
            // It waited in several periods.
            return ns;
        }
        if self.after != period.after {
            *self = Self {
                after: period.after,
                cpus: Vec::new(),
            };
        }
        let others = self.cpus.iter().filter(|(other, _)| *other != cpu);
        let others: u64 = others.map(|(_, ns)| ns).sum();
        let taken = ns.min(period.ns.saturating_sub(others));
        // All threads of a CPU were throttled at once.
        match self.cpus.iter_mut().find(|(known, _)| *known == cpu) {
            Some((_, most)) => *most = taken.max(*most),
            None => self.cpus.push((cpu, taken)),
        }
        taken
    }
}

/// Returns for how many nanoseconds a limit throttles one thread at most, if it waited for so many in a time.
///
/// The statistics are sums over the CPUs, and the threads of a group also wait for each other. But the group has used
/// its quota before, on all CPUs at once at best.
fn longest(limit: CpuLimit, cpus: u64, waited: u64, time: u64) -> u64 {
    let CpuLimit {
        quota_ns,
        period_ns,
    } = limit;
    let of_period = period_ns.saturating_sub(quota_ns / cpus);
    let periods = waited.div_ceil(period_ns).max(time / period_ns);
    of_period.saturating_mul(periods)
}

/// Times at which a counter had grown, and its values.
#[derive(Debug)]
struct History(VecDeque<(Nanos, u64)>);

impl History {
    fn new(time: Nanos, value: u64) -> Self {
        Self([(time, value)].into())
    }

    fn add(&mut self, time: Nanos, value: u64) {
        if self.last() < value {
            if self.0.len() >= MAX_TIMES {
                self.0.pop_front();
            }
            self.0.push_back((time, value));
        }
    }

    /// Returns for how many nanoseconds of a wait the group was throttled: the sum over the CPUs.
    fn throttled(&self, wait: &CpuWait) -> u64 {
        let start = wait.start();
        let after = self.0.partition_point(|(at, _)| at.0 <= start);
        let before = self.0.get(after.saturating_sub(1));
        let growth = self.last() - before.map_or(self.last(), |(_, value)| *value);
        // The group may run again since then, and at the last look the thread had not.
        let end = self.0.back().map_or(0, |(at, _)| at.0);
        let other = wait.last.0.saturating_sub(end);
        growth.min(wait.ns.saturating_sub(other))
    }

    /// Returns the last growth, with what precedes it by less than so many nanoseconds.
    fn period(&self, length_ns: u64) -> Period {
        let end = self.0.back().map_or(0, |(at, _)| at.0);
        let is_before = |(at, _): &(Nanos, u64)| at.0.saturating_add(length_ns) <= end;
        let before = self.0.partition_point(is_before).saturating_sub(1);
        let (after, value) = self.0.get(before).copied().unwrap_or_default();
        Period {
            after,
            ns: self.last() - value,
        }
    }

    /// Returns when the group was last seen to have been throttled since the first time.
    fn last_growth(&self) -> Option<Nanos> {
        let (at, _) = self.0.back().filter(|_| self.0.len() > 1)?;
        Some(*at)
    }

    fn last(&self) -> u64 {
        self.0.back().map_or(0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Pid;

    fn throttled(history: &History, ns: u64, last: u64, before: u64) -> u64 {
        let (last, before) = (Nanos(last), Nanos(before));
        history.throttled(&CpuWait {
            ns,
            last,
            before,
            cpu: None,
        })
    }

    #[test]
    fn a_wait_is_throttled_for_what_its_group_counted_meanwhile() {
        let mut history = History::new(Nanos(100), 7);
        assert_eq!(throttled(&history, 50, 90, 0), 0);
        for (time, value) in [(200, 7), (300, 50), (400, 49), (500, 80)] {
            history.add(Nanos(time), value);
        }
        // It lasted from 450 at the earliest.
        assert_eq!(throttled(&history, 40, 490, 0), 30);
        assert_eq!(throttled(&history, 20, 490, 0), 20);
        assert_eq!(throttled(&history, 240, 490, 0), 73);
        // The time until 300 belongs to the wait before.
        assert_eq!(throttled(&history, 240, 490, 300), 30);
        assert_eq!(throttled(&history, 40, 490, 500), 0);
        // At 520 it still waited, for another thread.
        assert_eq!(throttled(&history, 40, 520, 0), 20);
        assert_eq!(throttled(&history, 40, 600, 0), 0);
    }

    #[test]
    fn times_are_bounded() {
        let mut history = History::new(Nanos(0), 0);
        for time in 1..=1000 {
            history.add(Nanos(time), time);
        }
        assert_eq!(history.0.len(), MAX_TIMES);
        assert_eq!(throttled(&history, 10, 1000, 0), 10);
        // What is not known any more is left out.
        assert_eq!(throttled(&history, 900, 1000, 0), MAX_TIMES as u64 - 1);
    }

    #[test]
    fn cpus_share_the_time_of_a_period() {
        let mut history = History::new(Nanos(0), 0);
        // Two CPUs may run again one after the other.
        for (time, value) in [(100, 90), (200, 100), (201, 250)] {
            history.add(Nanos(time), value);
        }
        assert_eq!(history.last_growth(), Some(Nanos(201)));
        assert_eq!(History::new(Nanos(7), 9).last_growth(), None);
        let period = history.period(50);
        let expected = Period {
            after: Nanos(100),
            ns: 160,
        };
        assert_eq!(period, expected);
        let mut shares = Shares::default();
        // Two threads have a CPU, and waited for each other, too.
        assert_eq!(shares.take(&period, 120, 7, 83), 83);
        assert_eq!(shares.take(&period, 120, 7, 80), 80);
        // The other CPU has the rest.
        assert_eq!(shares.take(&period, 120, 3, 82), 77);
        assert_eq!(shares.take(&period, 120, 3, 90), 77);
        assert_eq!(shares.take(&period, 120, 4, 10), 0);
        // Another one waited in the period before as well.
        assert_eq!(shares.take(&period, 50, 4, 10), 10);
        history.add(Nanos(300), 290);
        assert_eq!(shares.take(&history.period(50), 210, 4, 50), 40);
    }

    #[test]
    fn a_limit_throttles_a_thread_when_its_quota_is_used() {
        const MS: u64 = 1_000_000;
        let limit = CpuLimit {
            quota_ns: 40 * MS,
            period_ns: 100 * MS,
        };
        let longest = |waited, time| longest(limit, 2, waited * MS, time * MS) / MS;
        // It also waited for a thread that used the quota, or in two periods.
        assert_eq!(longest(84, 2), 80);
        assert_eq!(longest(170, 2), 160);
        // It ran between its waits.
        assert_eq!(longest(90, 300), 240);
        let many_cpus = CpuLimit {
            quota_ns: 640 * MS,
            ..limit
        };
        assert_eq!(super::longest(many_cpus, 2, 90 * MS, 0), 0);
    }

    #[test]
    fn groups_are_closed_that_no_process_has() {
        let mut throttling = Throttling::new();
        let limits = throttling.limits_of(&ControlGroup::of(Pid(std::process::id() as i32)));
        assert_eq!(throttling.groups.len(), limits.files.len());
        throttling.forget_unused();
        assert_eq!(throttling.groups.len(), limits.files.len());
        drop(limits);
        throttling.forget_unused();
        assert!(throttling.groups.is_empty());
    }
}
