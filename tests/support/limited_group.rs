//! A control group with a CPU limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use test_skip::Missing;

use super::child::{Running, start};
use super::wait::wait_until;

/// Period of the limit.
const PERIOD_US: u64 = 100_000;

/// A control group, which is removed at the end. Its processes must have ended.
pub struct LimitedGroup(PathBuf);

impl LimitedGroup {
    /// Makes a group whose threads may run for so many microseconds of 100 ms.
    pub fn new(quota_us: u64) -> Result<Self, Missing> {
        let name = format!("perfcollect-test-{}-{quota_us}", std::process::id());
        let root = Path::new("/sys/fs/cgroup");
        // Version 2 passes a controller on to groups below if that is set.
        let _ = fs::write(root.join("cgroup.subtree_control"), "+cpu");
        let limits = [
            ("cpu", "cpu.cfs_quota_us", quota_us.to_string()),
            ("", "cpu.max", format!("{quota_us} {PERIOD_US}")),
        ];
        let mut groups = limits.iter().filter_map(|(hierarchy, file, limit)| {
            let group = root.join(hierarchy).join(&name);
            fs::create_dir(&group).ok()?;
            let group = Self(group);
            fs::write(group.0.join(file), limit).ok()?;
            Some(group)
        });
        let group = groups.next();
        group.ok_or(Missing::Writable("/sys/fs/cgroup/cpu/cgroup.procs"))
    }

    /// Starts a program in the group.
    pub fn start(&self, program: &[&str]) -> Running {
        let procs = self.0.join("cgroup.procs");
        let script = format!("echo $$ > {} && exec \"$@\"", procs.display());
        let mut command = std::process::Command::new("sh");
        let running = start(command.args(["-c", &script, "sh"]).args(program));
        wait_until("the program is in its group", || {
            fs::read_to_string(&procs).is_ok_and(|pids| !pids.is_empty())
        });
        running
    }

    /// Returns the name of the group.
    pub fn name(&self) -> &str {
        self.0.file_name().and_then(|name| name.to_str()).unwrap()
    }
}

impl Drop for LimitedGroup {
    fn drop(&mut self) {
        // The kernel may need a moment to remove the last task.
        for _ in 0..100 {
            match fs::remove_dir(&self.0) {
                Ok(()) => return,
                Err(_) => sleep(Duration::from_millis(20)),
            }
        }
    }
}
