//! Memory that a process may still allocate, limited by the system and by its control groups.

use std::path::Path;

use super::control_groups::{ControlGroup, read_string};
use crate::trace::Pid;

/// File and field names of the memory controller in one version of control groups.
struct Version {
    /// Name of the controller in `/proc/PID/cgroup`.
    controller: &'static str,
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Field of `memory.stat` with the size of the reclaimable page cache.
    cache: &'static str,
}

const VERSIONS: [Version; 2] = [
    Version {
        controller: "",
        root: "/sys/fs/cgroup",
        limit: "memory.max",
        usage: "memory.current",
        cache: "inactive_file ",
    },
    Version {
        controller: "memory",
        root: "/sys/fs/cgroup/memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cache: "total_inactive_file ",
    },
];

/// Returns the bytes that a process may still allocate, or `None` if no limit can be read.
#[must_use]
pub fn free_memory(pid: Pid) -> Option<u64> {
    let groups = ControlGroup::of(pid);
    let in_groups = groups.iter().filter_map(free_in_groups);
    let meminfo = read_string("/proc/meminfo".into());
    let in_system =
        meminfo.and_then(|meminfo| parse_field(&meminfo, "MemAvailable:")?.checked_mul(1024));
    in_groups.chain(in_system).min()
}

/// Returns the bytes left in a group and in all its parents.
fn free_in_groups(group: &ControlGroup) -> Option<u64> {
    let has_controller = |version: &&Version| group.has_controller(version.controller);
    let version = VERSIONS.iter().find(has_controller)?;
    let groups = group
        .path
        .ancestors()
        .map(|group| Path::new(version.root).join(group));
    groups
        .filter_map(|group| free_in_group(version, &group))
        .min()
}

fn free_in_group(version: &Version, group: &Path) -> Option<u64> {
    let file = |name: &str| read_string(group.join(name).display().to_string());
    // A group without a limit contains `max`, which does not parse.
    let limit: u64 = file(version.limit)?.trim().parse().ok()?;
    let usage: u64 = file(version.usage)?.trim().parse().ok()?;
    let cache = file("memory.stat").and_then(|stat| parse_field(&stat, version.cache));
    Some(limit.saturating_sub(usage.saturating_sub(cache.unwrap_or(0))))
}

fn parse_field(content: &str, name: &str) -> Option<u64> {
    let line = content.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_memory_is_at_most_system_memory() {
        let me = Pid(std::process::id() as i32);
        let all = parse_field(&read_string("/proc/meminfo".into()).unwrap(), "MemTotal:").unwrap();
        let free = free_memory(me).unwrap();
        assert!((1..=all * 1024).contains(&free), "{free} of {all} KiB");
        // Only the memory of the system limits a process that does not exist.
        assert!(free_memory(Pid(i32::MAX)).unwrap() <= all * 1024);
    }

    #[test]
    fn other_controllers_do_not_limit_memory() {
        let group = ControlGroup::parse("3:cpu,cpuacct:/").unwrap();
        assert_eq!(free_in_groups(&group), None);
    }
}
