//! Where the diagnostics socket of a process is, or why there is none.
//!
//! `TMPDIR/dotnet-diagnostic-PID-KEY-socket`, all as the target sees it: its root directory, its pid namespace, and as key
//! when it started. Anybody may put a socket there; who listens is asked when connecting.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::machine::{self, ProcError, Root};
use crate::trace::Pid;

/// Sockets of other keys that are looked at.
const MAX_CANDIDATES: usize = 16;
/// Settings that switch the socket off when they are 0.
const SWITCHES: [&str; 4] = [
    "DOTNET_EnableDiagnostics",
    "COMPlus_EnableDiagnostics",
    "DOTNET_EnableDiagnostics_IPC",
    "COMPlus_EnableDiagnostics_IPC",
];
/// Settings that let a runtime wait at its start.
const SUSPEND: [&str; 2] = [
    "DOTNET_DefaultDiagnosticPortSuspend",
    "COMPlus_DefaultDiagnosticPortSuspend",
];
const PORTS: [&str; 2] = ["DOTNET_DiagnosticPorts", "COMPlus_DiagnosticPorts"];
/// A thread that a runtime has from before its first managed code on.
const RUNNING_THREAD: &[u8] = b".NET Finalizer";

/// Why a process has no diagnostics socket that could be connected to.
#[derive(Debug, Error)]
pub enum PortError {
    /// It has ended.
    #[error("the process has ended")]
    Gone,
    /// Another user's.
    #[error(
        "its settings cannot be read ({0}): run perfcollect as root, or as the user of the process"
    )]
    Environment(io::Error),
    /// Another user's.
    #[error(
        "its root directory cannot be entered ({0}): run perfcollect as root, or as the user of the process"
    )]
    Root(io::Error),
    /// By whoever started it.
    #[error("diagnostics are switched off by {0}")]
    SwitchedOff(String),
    /// Where the directory is not stated in full, only the target knows it.
    #[error("its TMPDIR is not an absolute path: {}", .0.display())]
    RelativeDirectory(PathBuf),
    /// Never made, removed, or named for another process.
    #[error("there is no diagnostics socket in its {}: {why}", .directory.display())]
    NoSocket {
        /// Its directory for temporary files.
        directory: PathBuf,
        /// What was found instead.
        why: io::Error,
    },
}

/// The diagnostics socket of a process.
#[derive(Debug)]
pub struct DiagnosticPort {
    socket: OwnedFd,
    pid: Pid,
    uid: u32,
    suspended: bool,
    has_key: bool,
}

impl DiagnosticPort {
    /// Finds the socket of a process. Connects to nothing.
    ///
    /// # Errors
    /// There is none, or it may not be seen.
    pub fn find(pid: Pid) -> Result<Self, PortError> {
        let gone = || PortError::Gone;
        let namespace_pid = machine::namespace_pid(pid).ok_or_else(gone)?;
        let uid = machine::effective_uid(pid).ok_or_else(gone)?;
        let started = machine::start_ticks(pid).ok_or_else(gone)?;
        let environment = machine::environment(pid);
        let environment = environment.map_err(|ProcError::Read { source, .. }| {
            // It ends: its memory is gone already.
            match source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
                true => PortError::Gone,
                false => PortError::Environment(source),
            }
        });
        let environment = Environment(environment?);
        let root = Root::of(pid).map_err(PortError::Root)?;
        let directory = environment.temporary_directory();
        if !directory.is_absolute() {
            return Err(PortError::RelativeDirectory(directory));
        }
        let found = find_socket(&root, &directory, namespace_pid, started);
        // Without the key it may be that of an earlier process with the same id.
        let (socket, has_key) = match (found, environment.switched_off()) {
            (Ok(found @ (_, true)), _) | (Ok(found), None) => found,
            (_, Some(switch)) => return Err(PortError::SwitchedOff(switch)),
            (Err(why), None) => return Err(PortError::NoSocket { directory, why }),
        };
        let suspended = environment.asks_to_suspend()
            && !machine::thread_names(pid)
                .iter()
                .any(|name| name == RUNNING_THREAD);
        // All of it was of one process only if that one still has the id.
        if machine::start_ticks(pid) != Some(started) {
            return Err(PortError::Gone);
        }
        Ok(Self {
            socket,
            pid,
            uid,
            suspended,
            has_key,
        })
    }

    /// Whether the socket has the key of the process. Else it may be that of an earlier one with the same id, as each first
    /// process of a container has.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Whether the runtime waits at its start until somebody lets it go on.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whose it is.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }
}

/// The socket with the right key (`true`); else, as the clock of a time namespace makes another, the newest with the right
/// pid.
fn find_socket(
    root: &Root,
    directory: &Path,
    namespace_pid: Pid,
    started: u64,
) -> io::Result<(OwnedFd, bool)> {
    let prefix = format!("dotnet-diagnostic-{namespace_pid}-");
    let exact = root.find_socket(&directory.join(format!("{prefix}{started}-socket")));
    let why = match exact {
        Ok(socket) => return Ok((socket, true)),
        Err(why) => why,
    };
    let has_pid = |name: &[u8]| name.starts_with(prefix.as_bytes()) && name.ends_with(b"-socket");
    let others = root.names(directory, MAX_CANDIDATES, has_pid)?;
    let found = others
        .into_iter()
        .filter_map(|name| root.find_socket(&directory.join(name)).ok());
    let made = |socket: &OwnedFd| {
        rustix::fs::fstat(socket).map_or((0, 0), |stat| (stat.st_mtime, stat.st_mtime_nsec))
    };
    let newest = found.max_by_key(made).ok_or(why)?;
    Ok((newest, false))
}

/// The environment a process was started with.
struct Environment(Vec<u8>);

impl Environment {
    fn get(&self, name: &str) -> Option<&[u8]> {
        self.0
            .split(|&byte| byte == 0)
            .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
    }

    fn temporary_directory(&self) -> PathBuf {
        let set = self.get("TMPDIR").filter(|value| !value.is_empty());
        PathBuf::from(OsStr::from_bytes(set.unwrap_or(b"/tmp")))
    }

    fn switched_off(&self) -> Option<String> {
        let off = SWITCHES
            .into_iter()
            .find(|name| self.get(name).is_some_and(is_zero));
        off.map(|name| format!("{name}=0"))
    }

    /// Ports suspend unless they say that they do not.
    fn asks_to_suspend(&self) -> bool {
        let default = |name: &str| self.get(name).is_some_and(|value| !is_zero(value));
        let port = |name: &str| {
            let ports = self.get(name).unwrap_or_default();
            let mut ports = ports.split(|&byte| byte == b';');
            ports.any(|port| {
                let stays = |option: &[u8]| option.eq_ignore_ascii_case(b"nosuspend");
                !port.is_empty() && !port.split(|&byte| byte == b',').any(stays)
            })
        };
        SUSPEND.into_iter().any(default) || PORTS.into_iter().any(port)
    }
}

/// Settings are hexadecimal numbers.
fn is_zero(value: &[u8]) -> bool {
    !value.is_empty() && value.iter().all(|&digit| digit == b'0')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(entries: &[&str]) -> Environment {
        Environment(entries.join("\0").into_bytes())
    }

    #[test]
    fn settings_of_a_process() {
        let none = environment(&["PATH=/bin"]);
        assert_eq!(none.temporary_directory(), Path::new("/tmp"));
        assert_eq!(none.switched_off(), None);
        assert!(!none.asks_to_suspend());
        let set = environment(&[
            "XTMPDIR=/no",
            "TMPDIR=/var/tmp/",
            "COMPlus_EnableDiagnostics=0",
        ]);
        assert_eq!(set.temporary_directory(), Path::new("/var/tmp/"));
        assert_eq!(set.switched_off().unwrap(), "COMPlus_EnableDiagnostics=0");
        for suspends in [
            "DOTNET_DefaultDiagnosticPortSuspend=1",
            "DOTNET_DiagnosticPorts=/a.sock",
            "DOTNET_DiagnosticPorts=/a,nosuspend;/b,suspend",
        ] {
            assert!(environment(&[suspends]).asks_to_suspend(), "{suspends}");
        }
        for runs in [
            "DOTNET_DefaultDiagnosticPortSuspend=0",
            "DOTNET_DiagnosticPorts=/a.sock,nosuspend",
            "DOTNET_EnableDiagnostics=1",
        ] {
            let runs = environment(&[runs]);
            assert!(!runs.asks_to_suspend() && runs.switched_off().is_none());
        }
    }
}
