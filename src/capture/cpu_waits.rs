//! Waits for CPUs, from the counters of the kernel before and after a capture.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustc_hash::FxHashSet;

use super::thread_waits::ThreadWaits;
use crate::machine::{CpuStatistics, Throttled, group_name};
use crate::trace::{CpuPressure, Pid};

/// Pressure of the CPUs (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Maximum size of the files, in bytes.
const MAX_BYTES: u64 = 1 << 16;

/// Counters at the start of a capture.
#[derive(Debug)]
pub(super) struct CpuWaits {
    /// By the statistics of the group.
    groups: BTreeMap<PathBuf, Throttled>,
    waiting_us: u64,
    threads: ThreadWaits,
}

impl CpuWaits {
    /// Reads the counters of groups with these statistics, and of the threads of processes.
    pub(super) fn start(groups: FxHashSet<PathBuf>, processes: &[Pid]) -> Self {
        let groups = groups.into_iter().map(|group| {
            let start = throttled(&group);
            (group, start)
        });
        Self {
            groups: groups.collect(),
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
            let ns = end.ns.saturating_sub(start.ns);
            (ns, end.periods.saturating_sub(start.periods), group)
        });
        // The limits of groups are independent.
        let most = groups.max_by_key(|(ns, ..)| *ns);
        let (ns, periods, group) = most.map_or_else(Default::default, |(ns, periods, stat)| {
            (ns, periods, group_name(stat))
        });
        CpuPressure {
            waiting_ms: waiting_us as f64 / 1e3,
            throttled_ms: ns as f64 / 1e6,
            throttled_periods: periods,
            throttled_group: if ns > 0 { group } else { String::new() },
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
    let throttled = CpuStatistics::open(stat).and_then(|stat| stat.throttled());
    throttled.unwrap_or_default()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::{self, ControlGroup};

    #[test]
    fn parses_the_files_of_the_kernel() {
        let pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5284\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waiting_us(pressure), Some(5284));
        assert_eq!(waiting_us("full total=7\n"), None);
    }

    #[test]
    fn waits_do_not_decrease() {
        let pids = vec![Pid(std::process::id() as i32)];
        let files = machine::limits_of(&ControlGroup::of(pids[0]));
        let waits = CpuWaits::start(files.into_iter().collect(), &pids);
        let pressure = waits.end(&pids);
        assert!(pressure.waiting_ms >= 0.0 && pressure.throttled_ms >= 0.0);
    }
}
