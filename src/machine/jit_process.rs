//! Processes with JIT code, and the files with the symbols of that code.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use perfcollect_symbols::process::Root;
use perfcollect_symbols::symbolizer::JitSource;

use super::proc_fs;
use crate::trace::Pid;
use crate::trace::spool::JitProcessRow;

/// A process with JIT code, and the location of its perf map and jitdump.
#[derive(Debug)]
pub struct JitProcess {
    /// The files.
    pub source: JitSource,
    /// Id in its own pid namespace, which file names contain.
    pub namespace_pid: Pid,
    /// Start time in clock ticks since boot; 0 in a recording.
    pub start_ticks: u64,
}

impl JitProcess {
    /// Finds the files of a running process.
    pub(super) fn of(pid: Pid, dump: Option<PathBuf>) -> io::Result<Self> {
        let ended = || {
            let why = proc_fs::why_unreadable(pid);
            why.unwrap_or_else(|| io::Error::other("the process has ended"))
        };
        Ok(Self {
            source: JitSource::of_process(pid.0, dump)?,
            namespace_pid: proc_fs::namespace_pid(pid).ok_or_else(ended)?,
            start_ticks: proc_fs::start_ticks(pid).ok_or_else(ended)?,
        })
    }

    /// Replaces the descriptor of the root directory by one of the same directory.
    pub(super) fn with_root(self, root: Arc<Root>) -> Self {
        let source = JitSource {
            root,
            ..self.source
        };
        Self { source, ..self }
    }

    /// Creates the entry of a process in a recording.
    pub(super) fn recorded(pid: Pid, source: JitSource) -> Self {
        Self {
            source,
            namespace_pid: pid,
            start_ticks: 0,
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
        let (root_device, root_inode) = self.source.root.identity().ok()?;
        let dump = self.source.dump.as_ref();
        Some(JitProcessRow {
            namespace_pid: self.namespace_pid,
            uid: self.source.uid,
            start_ticks: self.start_ticks,
            root_device,
            root_inode,
            dump: dump.map_or_else(Box::default, |dump| dump.as_os_str().as_bytes().into()),
        })
    }
}

/// Returns whether a path has the name of a jitdump, `jit-PID.dump`.
pub(super) fn is_jit_dump(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let pid = name
        .strip_prefix(b"jit-")
        .and_then(|rest| rest.strip_suffix(b".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.iter().all(u8::is_ascii_digit))
}
