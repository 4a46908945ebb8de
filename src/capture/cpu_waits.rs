//! Waits for CPUs, from the counters of the kernel before and after a capture.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::Target;
use super::thread_waits::ThreadWaits;
use crate::machine::{self, CpuStatistics, Throttled, group_name};
use crate::trace::{CpuPressure, Pid};

/// Pressure of the CPUs (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Maximum size of the files, in bytes.
const MAX_BYTES: u64 = 1 << 16;
/// Maximum number of processes whose groups are read, and of groups.
const MAX_PIDS: usize = 4096;
const MAX_GROUPS: usize = 1024;

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
        let groups = pids.into_iter().take(MAX_PIDS).flat_map(machine::limits_of);
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

    #[test]
    fn parses_the_files_of_the_kernel() {
        let pressure = "some avg10=1.00 avg60=0.00 avg300=0.00 total=5284\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
        assert_eq!(waiting_us(pressure), Some(5284));
        assert_eq!(waiting_us("full total=7\n"), None);
    }

    #[test]
    fn waits_do_not_decrease() {
        let pids = vec![Pid(std::process::id() as i32)];
        let waits = CpuWaits::start(&Target::Pids(pids.clone()), &pids);
        let pressure = waits.end(&pids);
        assert!(pressure.waiting_ms >= 0.0 && pressure.throttled_ms >= 0.0);
    }
}
