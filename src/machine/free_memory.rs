//! How much memory a process may still take: what the machine has left, and what its control groups leave it.

use std::path::{Component, Path, PathBuf};

use super::proc_fs::read;
use crate::trace::Pid;

/// Bytes of a text about memory that are read at most.
const MAX_TEXT: u64 = 1 << 16;

/// How one version of control groups calls what is told of memory.
struct Version {
    /// Its controllers in `/proc/PID/cgroup`.
    controller: &'static str,
    root: &'static str,
    limit: &'static str,
    used: &'static str,
    /// Of `memory.stat`: what of it is a cache that goes when it is in the way.
    cache: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        controller: "",
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        used: "memory.current",
        cache: "inactive_file ",
    },
    Version {
        controller: "memory",
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cache: "total_inactive_file ",
    },
];

/// Bytes that a process may still take, where that can be told.
#[must_use]
pub fn free_memory(pid: Pid) -> Option<u64> {
    let groups = text(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    let in_groups = groups.lines().filter_map(left_in_groups);
    let machine = text("/proc/meminfo".into());
    let machine = machine.and_then(|text| number_after(&text, "MemAvailable:")?.checked_mul(1024));
    in_groups.chain(machine).min()
}

/// What the groups of a line `ID:CONTROLLERS:/PATH` leave, the outer ones included.
fn left_in_groups(line: &str) -> Option<u64> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let path = Path::new(path.strip_prefix('/')?);
    // A group outside our own namespace of groups begins with `..`.
    let is_below = |part| matches!(part, Component::Normal(_));
    if !path.components().all(is_below) {
        return None;
    }
    let of_memory = |version: &&Version| controllers.split(',').any(|c| c == version.controller);
    let version = VERSIONS.iter().find(of_memory)?;
    let groups = path
        .ancestors()
        .map(|group| Path::new(version.root).join(group));
    groups.filter_map(|group| left_in(version, &group)).min()
}

fn left_in(version: &Version, group: &Path) -> Option<u64> {
    let file = |name: &str| text(PathBuf::from(group).join(name).display().to_string());
    // Without a limit: `max`, which is no number.
    let limit: u64 = file(version.limit)?.trim().parse().ok()?;
    let used: u64 = file(version.used)?.trim().parse().ok()?;
    let cache = file("memory.stat").and_then(|text| number_after(&text, version.cache));
    Some(limit.saturating_sub(used.saturating_sub(cache.unwrap_or(0))))
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn text(path: String) -> Option<String> {
    String::from_utf8(read(path, MAX_TEXT).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_no_more_than_its_machine() {
        let me = Pid(std::process::id() as i32);
        let all = number_after(&text("/proc/meminfo".into()).unwrap(), "MemTotal:").unwrap();
        let free = free_memory(me).unwrap();
        assert!((1..=all * 1024).contains(&free), "{free} of {all} KiB");
        // A process that is gone is limited by the machine alone.
        assert!(free_memory(Pid(i32::MAX)).unwrap() <= all * 1024);
    }

    #[test]
    fn groups_outside_are_not_looked_for() {
        assert_eq!(left_in_groups("0::/../../etc"), None);
        assert_eq!(left_in_groups("3:cpu,cpuacct:/"), None);
        assert_eq!(left_in_groups("nonsense"), None);
    }
}
