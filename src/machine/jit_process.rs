//! Processes with JIT code, and the files with the symbols of that code.

use std::io;
use std::path::PathBuf;

use super::proc_fs;
use super::root::Root;
use crate::trace::Pid;
use crate::trace::spool::JitProcessRow;

/// A process with JIT code, and the location of its perf map and jitdump.
#[derive(Debug)]
pub struct JitProcess {
    /// Root directory of the process.
    pub root: Root,
    /// Id in its own pid namespace, which file names contain.
    pub namespace_pid: Pid,
    /// User of the process. perfcollect trusts only files of this user and root.
    pub uid: u32,
    /// Path of its perf map below `root`.
    pub map: PathBuf,
    /// Path of the mapped jitdump. A runtime announces a jitdump by mapping it.
    pub dump: Option<Box<[u8]>>,
    /// Start time in clock ticks since boot; 0 in a recording.
    pub start_ticks: u64,
    /// Latest trusted modification time of its files, in seconds since 1970.
    ///
    /// Set if the process has ended, as its pid may have been reused since.
    pub until: Option<i64>,
}

impl JitProcess {
    /// Finds the files of a running process.
    pub(super) fn of(pid: Pid, dump: Option<Box<[u8]>>) -> io::Result<Self> {
        let ended = || io::Error::other("the process has ended");
        let namespace_pid = proc_fs::namespace_pid(pid).ok_or_else(ended)?;
        Ok(Self {
            dump,
            root: Root::of(pid)?,
            namespace_pid,
            map: perf_map(namespace_pid),
            uid: rustix::fs::stat(format!("/proc/{pid}"))?.st_uid,
            start_ticks: proc_fs::start_ticks(pid).ok_or_else(ended)?,
            until: None,
        })
    }

    /// Creates the entry of a process in a recording, whose files must belong to `uid` or root.
    pub(super) fn recorded(
        pid: Pid,
        uid: u32,
        root: Root,
        map: PathBuf,
        dump: Option<Box<[u8]>>,
    ) -> Self {
        Self {
            root,
            namespace_pid: pid,
            uid,
            map,
            dump,
            start_ticks: 0,
            until: None,
        }
    }

    /// Returns whether the process belongs to a recording.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.start_ticks == 0
    }

    /// Returns the row for recovery, or `None` if the root directory is unreadable.
    #[must_use]
    pub fn describe(&self) -> Option<JitProcessRow> {
        let (root_device, root_inode) = self.root.identity().ok()?;
        Some(JitProcessRow {
            namespace_pid: self.namespace_pid,
            uid: self.uid,
            start_ticks: self.start_ticks,
            root_device,
            root_inode,
            dump: self.dump.clone().unwrap_or_default(),
        })
    }
}

/// Returns the path to which a process writes its perf map.
pub(super) fn perf_map(namespace_pid: Pid) -> PathBuf {
    format!("/tmp/perf-{namespace_pid}.map").into()
}

/// Returns whether a path has the name of a jitdump, `jit-PID.dump`.
pub(super) fn is_jit_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let pid = name
        .strip_prefix(b"jit-")
        .and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}
