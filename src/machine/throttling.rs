//! For how long CPU limits of control groups kept threads from the CPUs (cgroup-v2.rst and sched-bwc.rst in the
//! documentation of the kernel).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::control_groups::{ControlGroup, read_string};

/// Hierarchies of control groups: version 2, and the CPU controller of version 1.
const HIERARCHIES: [(&str, &str); 2] = [("", "/sys/fs/cgroup"), ("cpu", "/sys/fs/cgroup/cpu")];
/// Maximum size of the files, in bytes.
const MAX_BYTES: usize = 4096;
/// Maximum number of groups around a process whose limits are read, from the root on. Kubernetes has six.
const MAX_DEPTH: usize = 32;

/// How long a control group was throttled, and in how many periods.
///
/// The time is the sum over the CPUs. The kernel adds it when the group may run again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Nanoseconds.
    pub ns: u64,
    /// Number of periods. 0 if the group has never had a limit.
    pub periods: u64,
}

impl Throttled {
    /// Parses `cpu.stat` or `cpu.stat.local` of a control group. Returns `None` if the group has no CPU controller.
    fn parse(stat: &str) -> Option<Self> {
        let ns = match value(stat, "throttled_usec") {
            Some(us) => us.saturating_mul(1000),
            // Version 1 counts nanoseconds.
            None => value(stat, "throttled_time")?,
        };
        Some(Self {
            ns,
            periods: value(stat, "nr_throttled").unwrap_or_default(),
        })
    }
}

/// The CPU time that a control group may use: as many nanoseconds in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuLimit {
    /// CPU time in nanoseconds.
    pub quota_ns: u64,
    /// Length of a period in nanoseconds, not 0.
    pub period_ns: u64,
}

impl CpuLimit {
    /// Reads the limit of a control group. Returns `None` if it has none.
    fn of(group: &Path) -> Option<Self> {
        let file = |name: &str| read_string(group.join(name).display().to_string());
        file("cpu.max")
            .and_then(|limit| Self::parse(&limit))
            .or_else(|| Self::parse(&(file("cpu.cfs_quota_us")? + &file("cpu.cfs_period_us")?)))
    }

    /// Parses two numbers of microseconds.
    fn parse(limit: &str) -> Option<Self> {
        let mut words = limit.split_ascii_whitespace();
        // A group without a limit has `max` or -1 there, which does not parse.
        let mut ns = || words.next()?.parse::<u64>().ok()?.checked_mul(1000);
        let (quota_ns, period_ns) = (ns()?, ns()?);
        (period_ns > 0).then_some(Self {
            quota_ns,
            period_ns,
        })
    }

    /// Returns the CPUs that it grants.
    fn cpus(&self) -> f64 {
        self.quota_ns as f64 / self.period_ns as f64
    }
}

/// Open statistics of a control group.
#[derive(Debug)]
pub struct CpuStatistics(File);

impl CpuStatistics {
    /// Opens a file of [`limits_of`] or [`throttling_of`]. Returns `None` if it cannot be read.
    #[must_use]
    pub fn open(file: &Path) -> Option<Self> {
        File::open(file).ok().map(Self)
    }

    /// Reads the counters. Returns `None` if the group is gone or has no CPU controller.
    #[must_use]
    pub fn throttled(&self) -> Option<Throttled> {
        Throttled::parse(&self.text()?)
    }

    fn text(&self) -> Option<String> {
        let mut bytes = vec![0; MAX_BYTES];
        let length = self.0.read_at(&mut bytes, 0).ok()?;
        bytes.truncate(length);
        String::from_utf8(bytes).ok()
    }
}

/// Returns the statistics (`cpu.stat`) of the groups that may limit the CPU time of a process in these control groups:
/// its own and those around it, innermost first. Groups outside the control group namespace of perfcollect are not
/// visible, and groups nested very deep are left out.
#[must_use]
pub fn limits_of(groups: &[ControlGroup]) -> Vec<PathBuf> {
    let groups = directories_of(groups).into_iter();
    groups.map(|group| group.join("cpu.stat")).collect()
}

/// Returns the files that count for how long the threads of a process in these control groups were throttled, and the
/// lowest limit of the groups. Several of the files may have counted the same time. Empty if no group that is visible has ever had
/// a limit.
///
/// `cpu.stat.local` (Linux 6.6 or newer) counts the limits of all groups around it, each time once.
#[must_use]
pub fn throttling_of(groups: &[ControlGroup]) -> (Vec<PathBuf>, Option<CpuLimit>) {
    let groups = directories_of(groups);
    let limits = groups.iter().filter_map(|group| CpuLimit::of(group));
    let lowest = limits.min_by(|a, b| a.cpus().total_cmp(&b.cpus()));
    let mut local = groups.iter().map(|group| group.join("cpu.stat.local"));
    let counts =
        |file: &PathBuf| CpuStatistics::open(file).is_some_and(|file| file.throttled().is_some());
    if let Some(local) = local.find(counts) {
        return (vec![local], lowest);
    }
    let files = groups.into_iter().map(|group| group.join("cpu.stat"));
    let has_limit = |file: &PathBuf| {
        let stat = CpuStatistics::open(file).and_then(|file| file.text());
        stat.and_then(|stat| value(&stat, "nr_periods")) > Some(0)
    };
    (files.filter(has_limit).collect(), lowest)
}

/// Returns the name of the control group with these statistics: its path in the hierarchy.
#[must_use]
pub fn group_name(stat: &Path) -> String {
    let group = stat.parent().unwrap_or(stat);
    let mut roots = HIERARCHIES.iter().rev();
    let name = roots.find_map(|(_, root)| group.strip_prefix(root).ok());
    match name.unwrap_or(group).to_string_lossy() {
        // The group of a container in its own namespace.
        name if name.is_empty() => "/".into(),
        name => name.into_owned(),
    }
}

/// Returns the directories of control groups and of those around them, innermost first.
fn directories_of(groups: &[ControlGroup]) -> Vec<PathBuf> {
    let groups = groups.iter().filter_map(|group| {
        let mut hierarchies = HIERARCHIES.iter();
        let (_, root) = hierarchies.find(|(controller, _)| group.has_controller(controller))?;
        Some((root, &group.path))
    });
    let around = groups.flat_map(|(root, inside)| {
        let depth = inside.ancestors().count();
        let around = inside.ancestors().skip(depth.saturating_sub(MAX_DEPTH));
        around.map(move |group| Path::new(root).join(group))
    });
    around.collect()
}

/// Returns the value in a line `key value`.
fn value(stat: &str, key: &str) -> Option<u64> {
    let mut lines = stat.lines();
    lines.find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::Pid;

    #[test]
    fn parses_the_files_of_the_kernel() {
        let version_2 = "usage_usec 9\nnr_periods 4\nnr_throttled 3\nthrottled_usec 250\n";
        let version_1 = "nr_periods 4\nnr_throttled 3\nthrottled_time 250000\n";
        for stat in [version_1, version_2] {
            let expected = Throttled {
                ns: 250_000,
                periods: 3,
            };
            assert_eq!(Throttled::parse(stat), Some(expected));
        }
        let local = Throttled::parse("throttled_usec 7\n");
        assert_eq!(local.map(|throttled| throttled.ns), Some(7000));
        assert_eq!(Throttled::parse("usage_usec 9\n"), None);
        assert_eq!(value(version_2, "throttled"), None);
        assert_eq!(value("nr_throttled x\n", "nr_throttled"), None);
    }

    #[test]
    fn limits_have_a_quota_and_a_period() {
        let limit = CpuLimit::parse("20000 100000\n").unwrap();
        assert_eq!((limit.quota_ns, limit.period_ns), (20_000_000, 100_000_000));
        assert!((limit.cpus() - 0.2).abs() < 1e-9);
        for none in [
            "max 100000",
            "-1\n100000\n",
            "20000 0",
            "",
            "20000",
            "99999999999999999999 1",
        ] {
            assert_eq!(CpuLimit::parse(none), None, "{none}");
        }
    }

    #[test]
    fn groups_are_named_by_their_place() {
        for (stat, name) in [
            (
                "/sys/fs/cgroup/shop.slice/web.service/cpu.stat",
                "shop.slice/web.service",
            ),
            ("/sys/fs/cgroup/cpu/docker/1f/cpu.stat", "docker/1f"),
            ("/sys/fs/cgroup/cpu.stat", "/"),
        ] {
            assert_eq!(group_name(Path::new(stat)), name);
        }
    }

    #[test]
    fn groups_of_a_process_end_at_the_root() {
        let me = Pid(std::process::id() as i32);
        let limits = limits_of(&ControlGroup::of(me));
        let outermost = limits.last().map(|file| group_name(file));
        assert!(
            limits.is_empty() || outermost.as_deref() == Some("/"),
            "{limits:?}"
        );
        let none = ControlGroup::of(Pid(i32::MAX));
        assert_eq!(throttling_of(&none), (Vec::new(), None));
    }

    #[test]
    fn groups_nested_very_deep_are_left_out() {
        let line = format!("0::/user{}", "/a".repeat(1500));
        let limits = limits_of(&[ControlGroup::parse(&line).unwrap()]);
        assert_eq!(limits.len(), MAX_DEPTH);
        let inner = format!("/sys/fs/cgroup/user{}/cpu.stat", "/a".repeat(MAX_DEPTH - 2));
        assert_eq!(limits[0], Path::new(&inner));
    }
}
