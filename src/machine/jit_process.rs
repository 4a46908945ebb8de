//! Processes that make code at run time, and where they tell of it.

use std::io;
use std::path::PathBuf;

use super::proc_fs;
use super::root::Root;
use crate::trace::Pid;
use crate::trace::spool::JitProcessRow;

/// Where a process that makes code at run time keeps the names of that code.
#[derive(Debug)]
pub struct JitProcess {
    /// Its root directory.
    pub root: Root,
    /// Its id in its own pid namespace, which is the one in file names.
    pub namespace_pid: Pid,
    /// Its user, whose files may speak for it.
    pub uid: u32,
    /// Path of its perf map below `root`.
    pub map: PathBuf,
    /// Path of the jitdump it has mapped, which is how a runtime announces one.
    pub dump: Option<Box<[u8]>>,
    /// When it started, in ticks since the start of the machine.
    pub start_ticks: u64,
    /// Where the process is gone, and its pid perhaps another's: files that changed later do not speak for it (seconds
    /// since 1970).
    pub until: Option<i64>,
}

impl JitProcess {
    pub(super) fn of(pid: Pid, dump: Option<Box<[u8]>>) -> io::Result<Self> {
        let gone = || io::Error::other("the process is gone");
        let namespace_pid = proc_fs::namespace_pid(pid).ok_or_else(gone)?;
        Ok(Self {
            dump,
            root: Root::of(pid)?,
            namespace_pid,
            map: perf_map(namespace_pid),
            uid: rustix::fs::stat(format!("/proc/{pid}"))?.st_uid,
            start_ticks: proc_fs::start_ticks(pid).ok_or_else(gone)?,
            until: None,
        })
    }

    /// That of a process of a recording: its files must be of this user, or root's.
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

    /// Whether it is that of a recording, which had no part in what the process wrote.
    #[must_use]
    pub fn is_recorded(&self) -> bool {
        self.start_ticks == 0
    }

    /// What finds it again.
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

/// Where a process writes its perf map.
pub(super) fn perf_map(namespace_pid: Pid) -> PathBuf {
    format!("/tmp/perf-{namespace_pid}.map").into()
}

/// Whether a file is called `jit-PID.dump`.
pub(super) fn is_jit_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let pid = name
        .strip_prefix(b"jit-")
        .and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}
