//! The control groups of a process (cgroups(7)).

use std::path::{Component, Path, PathBuf};

use super::proc_fs::read;
use crate::trace::Pid;

/// Maximum size of a file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 16;
/// Files that show whether a group, or one around it, is frozen: the controller, the root, and the file with its line.
const FREEZERS: [(&str, &str, &str, &str); 3] = [
    (
        "freezer",
        "/sys/fs/cgroup/freezer",
        "freezer.state",
        "FROZEN",
    ),
    ("", "/sys/fs/cgroup", "cgroup.events", "frozen 1"),
    ("", "/sys/fs/cgroup/unified", "cgroup.events", "frozen 1"),
];

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlGroup {
    controllers: String,
    /// Path below the root of its hierarchy. Untrusted, but without `..`.
    pub path: PathBuf,
}

impl ControlGroup {
    /// Returns the control groups of a process. Skips those outside the control group namespace of perfcollect.
    ///
    /// The kernel takes longer the deeper they are nested, up to 20 ms.
    #[must_use]
    pub fn of(pid: Pid) -> Vec<Self> {
        let lines = read_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
        lines.lines().filter_map(Self::parse).collect()
    }

    /// Parses `ID:CONTROLLERS:/PATH`.
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        let path = Path::new(path.strip_prefix('/')?);
        // The path of a group outside the namespace starts with `..`.
        let is_normal = |part| matches!(part, Component::Normal(_));
        path.components().all(is_normal).then(|| Self {
            controllers: controllers.to_owned(),
            path: path.to_owned(),
        })
    }

    /// Returns whether it is a group of a controller. Those of version 2 have the name "".
    #[must_use]
    pub fn has_controller(&self, name: &str) -> bool {
        self.controllers.split(',').any(|known| known == name)
    }
}

/// Returns whether one of the control groups of a process is frozen, such as by `docker pause`.
#[must_use]
pub fn is_frozen(groups: &[ControlGroup]) -> bool {
    groups.iter().any(|group| {
        let freezers = FREEZERS.iter();
        let mut freezers = freezers.filter(|(controller, ..)| group.has_controller(controller));
        freezers.any(|(_, root, file, frozen)| {
            let file = Path::new(root).join(&group.path).join(file);
            let content = read_string(file.display().to_string());
            content.is_some_and(|content| content.lines().any(|line| line == *frozen))
        })
    })
}

pub(super) fn read_string(path: String) -> Option<String> {
    String::from_utf8(read(path, MAX_FILE_BYTES).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignores_groups_outside_the_namespace() {
        assert_eq!(ControlGroup::parse("0::/../../etc"), None);
        assert_eq!(ControlGroup::parse("nonsense"), None);
        let group = ControlGroup::parse("3:cpu,cpuacct:/shop:1/web").unwrap();
        assert_eq!(group.path, Path::new("shop:1/web"));
        assert!(group.has_controller("cpuacct") && !group.has_controller(""));
        assert!(ControlGroup::parse("0::/").unwrap().has_controller(""));
    }
}
