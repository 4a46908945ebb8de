//! Waits for CPUs, from the counters of the kernel before and after a capture.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Target;
use super::thread_waits::ThreadWaits;
use crate::machine::{self, ControlGroup};
use crate::trace::{CpuPressure, Pid};

/// Pressure of the CPUs (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Hierarchies of control groups: version 2, and the CPU controller of version 1.
const HIERARCHIES: [(&str, &str); 2] = [("", "/sys/fs/cgroup"), ("cpu", "/sys/fs/cgroup/cpu")];
/// Maximum size of the files, in bytes.
const MAX_BYTES: u64 = 1 << 16;
/// Maximum number of processes whose groups are read, and of groups.
const MAX_PIDS: usize = 4096;
const MAX_GROUPS: usize = 1024;

/// How long a control group was throttled, and in how many periods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Throttled {
    us: u64,
    periods: u64,
}

/// Counters at the start of a capture.
#[derive(Debug)]
pub(super) struct CpuWaits {
    /// By the statistics of the group.
    groups: BTreeMap<PathBuf, Throttled>,
    waiting_us: u64,
    threads: ThreadWaits,
}

impl CpuWaits {
    /// Reads the counters of a target with these processes.
    pub(super) fn start(target: &Target, processes: &[Pid]) -> Self {
        let pids = match target {
            Target::Pids(pids) => pids.clone(),
            Target::SystemWide => machine::pids().unwrap_or_default(),
            // It will be in the group of perfcollect.
            Target::Command(_) => vec![Pid(std::process::id() as i32)],
        };
        let groups = pids.into_iter().take(MAX_PIDS).flat_map(groups_of);
        let mut known = BTreeMap::new();
        for group in groups {
            if known.len() < MAX_GROUPS && !known.contains_key(&group) {
                let start = throttled(&group);
                known.insert(group, start);
            }
        }
        Self {
            groups: known,
            waiting_us: waiting(),
            threads: ThreadWaits::start(processes),
        }
    }

    /// Follows the threads of the target's processes.
    pub(super) fn follow(&mut self, processes: impl FnOnce() -> Vec<Pid>) {
        self.threads.follow(processes);
    }

    /// Returns the differences since the start.
    pub(super) fn end(self, processes: &[Pid]) -> CpuPressure {
        let waiting_us = waiting().saturating_sub(self.waiting_us);
        let (processes, threads_omitted) = self.threads.end(processes);
        let groups = self.groups.iter().map(|(group, start)| {
            let end = throttled(group);
            let us = end.us.saturating_sub(start.us);
            (us, end.periods.saturating_sub(start.periods), group)
        });
        // The limits of groups are independent.
        let most = groups.max_by_key(|(us, ..)| *us);
        let (us, periods, group) = most.map_or_else(Default::default, |(us, periods, stat)| {
            (us, periods, group_name(stat))
        });
        CpuPressure {
            waiting_ms: waiting_us as f64 / 1e3,
            throttled_ms: us as f64 / 1e3,
            throttled_periods: periods,
            throttled_group: if us > 0 { group } else { String::new() },
            processes,
            threads_omitted,
        }
    }
}

/// Returns for how long threads of the machine have waited, in microseconds.
fn waiting() -> u64 {
    let pressure = text(Path::new(PRESSURE)).unwrap_or_default();
    waiting_us(&pressure).unwrap_or_default()
}

/// Reads the statistics of a control group.
fn throttled(stat: &Path) -> Throttled {
    let stat = text(stat).unwrap_or_default();
    let value = |key| value(&stat, key).unwrap_or_default();
    Throttled {
        // Version 1 counts nanoseconds.
        us: value("throttled_usec").max(value("throttled_time") / 1000),
        periods: value("nr_throttled"),
    }
}

/// Returns the name of the control group with these statistics: its path in the hierarchy.
fn group_name(stat: &Path) -> String {
    let group = stat.parent().unwrap_or(stat);
    let mut roots = HIERARCHIES.iter().rev();
    let name = roots.find_map(|(_, root)| group.strip_prefix(root).ok());
    name.unwrap_or(group).to_string_lossy().into_owned()
}

fn text(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

/// Returns the total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=123`.
fn waiting_us(pressure: &str) -> Option<u64> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    line.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Returns the value in a line `key value`.
fn value(stat: &str, key: &str) -> Option<u64> {
    let mut lines = stat.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

/// Returns the statistics of the control groups that limit the CPU time of a process: its own and
/// those around it.
fn groups_of(pid: Pid) -> Vec<PathBuf> {
    let groups = ControlGroup::of(pid);
    let groups = groups.iter().filter_map(|group| {
        let mut hierarchies = HIERARCHIES.iter();
        let (_, root) = hierarchies.find(|(controller, _)| group.has_controller(controller))?;
        Some((root, &group.path))
    });
    let files = groups.flat_map(|(hierarchy, inside)| {
        let around = inside.ancestors().filter(|group| *group != Path::new(""));
        around.map(move |group| Path::new(hierarchy).join(group).join("cpu.stat"))
    });
    files.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_files_of_the_kernel() {
        let pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5284\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waiting_us(pressure), Some(5284));
        assert_eq!(waiting_us("full total=7\n"), None);
        let stat = "usage_usec 9\nnr_periods 4\nnr_throttled 3\nthrottled_usec 250\n";
        assert_eq!(value(stat, "nr_throttled"), Some(3));
        assert_eq!(value(stat, "throttled"), None);
        assert_eq!(value("nr_throttled x\n", "nr_throttled"), None);
    }

    #[test]
    fn groups_are_named_by_their_place() {
        for (stat, name) in [
            (
                "/sys/fs/cgroup/shop.slice/web.service/cpu.stat",
                "shop.slice/web.service",
            ),
            ("/sys/fs/cgroup/cpu/docker/1f/cpu.stat", "docker/1f"),
        ] {
            assert_eq!(group_name(Path::new(stat)), name);
        }
    }

    #[test]
    fn waits_do_not_decrease() {
        let pids = vec![Pid(std::process::id() as i32)];
        let waits = CpuWaits::start(&Target::Pids(pids.clone()), &pids);
        let pressure = waits.end(&pids);
        assert!(pressure.waiting_ms >= 0.0 && pressure.throttled_ms >= 0.0);
    }
}
