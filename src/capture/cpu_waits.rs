//! Waits for CPUs, from the counters of the kernel before and after a capture.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use super::Target;
use super::thread_waits::ThreadWaits;
use crate::trace::{CpuPressure, Pid};

/// Pressure of the CPUs (Documentation/accounting/psi.rst).
const PRESSURE: &str = "/proc/pressure/cpu";
/// Hierarchies of control groups: version 2, and the CPU controller of version 1.
const HIERARCHIES: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"];
/// Maximum size of the files, in bytes.
const MAX_BYTES: u64 = 1 << 16;
const MAX_PIDS: usize = 64;

/// Counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counters {
    waiting_us: u64,
    throttled_us: u64,
    throttled_periods: u64,
}

/// Counters at the start of a capture.
#[derive(Debug)]
pub(super) struct CpuWaits {
    groups: BTreeSet<PathBuf>,
    start: Counters,
    threads: ThreadWaits,
}

impl CpuWaits {
    /// Reads the counters of a target with these processes.
    pub(super) fn start(target: &Target, processes: &[Pid]) -> Self {
        let pids = match target {
            Target::Pids(pids) => &pids[..],
            Target::SystemWide | Target::Command(_) => &[],
        };
        let groups = pids.iter().take(MAX_PIDS);
        let groups: BTreeSet<PathBuf> = groups.flat_map(|&pid| groups_of(pid)).collect();
        let start = read(&groups);
        Self {
            groups,
            start,
            threads: ThreadWaits::start(processes),
        }
    }

    /// Follows the threads of the target's processes.
    pub(super) fn follow(&mut self, processes: impl FnOnce() -> Vec<Pid>) {
        self.threads.follow(processes);
    }

    /// Returns the differences since the start.
    pub(super) fn end(self, processes: &[Pid]) -> CpuPressure {
        let now = read(&self.groups);
        let (processes, threads_omitted) = self.threads.end(processes);
        let ms = |end: u64, start: u64| end.saturating_sub(start) as f64 / 1e3;
        let start = &self.start;
        CpuPressure {
            waiting_ms: ms(now.waiting_us, start.waiting_us),
            throttled_ms: ms(now.throttled_us, start.throttled_us),
            throttled_periods: now
                .throttled_periods
                .saturating_sub(start.throttled_periods),
            processes,
            threads_omitted,
        }
    }
}

fn read(groups: &BTreeSet<PathBuf>) -> Counters {
    let pressure = text(Path::new(PRESSURE)).unwrap_or_default();
    let mut counters = Counters {
        waiting_us: waiting_us(&pressure).unwrap_or_default(),
        ..Counters::default()
    };
    for group in groups {
        let stat = text(group).unwrap_or_default();
        let value = |key| value(&stat, key).unwrap_or_default();
        // Version 1 counts nanoseconds.
        let throttled = value("throttled_usec").max(value("throttled_time") / 1000);
        counters.throttled_us = counters.throttled_us.saturating_add(throttled);
        let periods = value("nr_throttled");
        counters.throttled_periods = counters.throttled_periods.saturating_add(periods);
    }
    counters
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
    let groups = text(Path::new(&format!("/proc/{pid}/cgroup"))).unwrap_or_default();
    let groups = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':');
        let (number, controllers) = (parts.next()?, parts.next()?);
        let hierarchy = match number {
            "0" => HIERARCHIES[0],
            _ if controllers.split(',').any(|name| name == "cpu") => HIERARCHIES[1],
            _ => return None,
        };
        let inside = Path::new(parts.next()?.strip_prefix('/')?);
        // Outside the control group namespace of perfcollect.
        let is_inside = inside
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        is_inside.then_some((hierarchy, inside))
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
    fn waits_do_not_decrease() {
        let pids = vec![Pid(std::process::id() as i32)];
        let waits = CpuWaits::start(&Target::Pids(pids.clone()), &pids);
        let pressure = waits.end(&pids);
        assert!(pressure.waiting_ms >= 0.0 && pressure.throttled_ms >= 0.0);
    }
}
