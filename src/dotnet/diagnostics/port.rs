//! Finds the IPC socket of a process's diagnostic port.
//!
//! The path is `TMPDIR/dotnet-diagnostic-PID-KEY-socket` from the target's view: in its root
//! directory and with the pid of its pid namespace. The key is the start time of the process. Any
//! user may create such a socket, so the connection verifies the listener.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use thiserror::Error;

use crate::dotnet::environment::Environment;
use crate::machine::{self, ProcError};
use crate::trace::Pid;
use perfcollect_symbols::process::Root;

/// Limit on the sockets with other keys.
const MAX_CANDIDATES: usize = 16;
/// Settings that disable the socket if they are 0.
const SWITCHES: [&str; 2] = ["EnableDiagnostics", "EnableDiagnostics_IPC"];
/// Setting that suspends a runtime at its start.
const SUSPEND: &str = "DefaultDiagnosticPortSuspend";
/// Setting with further ports.
const PORTS: &str = "DiagnosticPorts";
/// A thread that a runtime creates before its first managed code runs.
const RUNNING_THREAD: &[u8] = b".NET Finalizer";

/// The reason why a process has no accessible diagnostic port.
#[derive(Debug, Error)]
pub enum PortError {
    /// The process has ended.
    #[error("the process has ended")]
    Gone,
    /// The files of the process in /proc cannot be opened.
    #[error("cannot read its files in /proc: {0}")]
    Proc(io::Error),
    /// The environment of the process is not readable, usually because of its user.
    #[error(
        "cannot read its environment: {0}; run perfcollect as the user of the process, or as root with CAP_SYS_PTRACE"
    )]
    Environment(io::Error),
    /// The root directory of the process is not accessible, usually because of its user.
    #[error(
        "cannot open its root directory: {0}; run perfcollect as the user of the process, or as root with CAP_SYS_PTRACE"
    )]
    Root(io::Error),
    /// A setting in the environment disables the port.
    #[error("diagnostics are disabled by {0}")]
    SwitchedOff(String),
    /// The temporary directory is a relative path, which only the target can resolve.
    #[error("its TMPDIR is not an absolute path: {}", .0.display())]
    RelativeDirectory(PathBuf),
    /// The socket was never created, was removed, or belongs to another process.
    #[error("no diagnostic port in its {}: {cause}", .directory.display())]
    NoSocket {
        /// The temporary directory of the process.
        directory: PathBuf,
        /// The error of the lookup.
        cause: io::Error,
    },
}

/// The diagnostic port of a process.
#[derive(Debug)]
pub struct DiagnosticPort {
    socket: OwnedFd,
    pid: Pid,
    uid: u32,
    suspended: bool,
    has_key: bool,
}

impl DiagnosticPort {
    /// Finds the socket of a process. Does not connect.
    ///
    /// # Errors
    /// The process has no socket, or the user may not access it.
    pub fn find(pid: Pid) -> Result<Self, PortError> {
        let gone = || machine::why_unreadable(pid).map_or(PortError::Gone, PortError::Proc);
        let namespace_pid = machine::namespace_pid(pid).ok_or_else(gone)?;
        let uid = machine::file_owner(pid).ok_or_else(gone)?;
        let started = machine::start_ticks(pid).ok_or_else(gone)?;
        let environment = Environment::of(pid).map_err(|ProcError::Read { source, .. }| {
            // The process is exiting and has already released its memory.
            match source.raw_os_error() == Some(Errno::SRCH.raw_os_error()) {
                true => PortError::Gone,
                false => PortError::Environment(source),
            }
        });
        let environment = environment?;
        let root = Root::of(pid.0).map_err(PortError::Root)?;
        let directory = temporary_directory(&environment);
        if !directory.is_absolute() {
            return Err(PortError::RelativeDirectory(directory));
        }
        let socket = find_socket(&root, &directory, (pid, namespace_pid), started);
        // A socket with another key may belong to an earlier process with the same id.
        let (socket, has_key) = match (socket, environment.zero_setting(&SWITCHES)) {
            (Ok(socket @ (_, true)), _) | (Ok(socket), None) => socket,
            (_, Some(setting)) => return Err(PortError::SwitchedOff(setting)),
            (Err(cause), None) => return Err(PortError::NoSocket { directory, cause }),
        };
        let suspended = suspends_at_start(&environment)
            && !machine::thread_names(pid)
                .iter()
                .any(|name| name == RUNNING_THREAD);
        // An unchanged start time verifies that all reads were from one process.
        if machine::start_ticks(pid).ok_or_else(gone)? != started {
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

    /// Returns whether the socket has the key of the process.
    ///
    /// Otherwise the process is in a time namespace, and the socket may belong to an earlier process
    /// with the same id. For example, the first process of each container has the same id.
    #[must_use]
    pub fn has_key(&self) -> bool {
        self.has_key
    }

    /// Returns whether the runtime is suspended at its start until a tool resumes it.
    #[must_use]
    pub fn is_suspended(&self) -> bool {
        self.suspended
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Returns the process that the port belongs to.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.pid
    }

    pub(super) fn uid(&self) -> u32 {
        self.uid
    }
}

/// Finds the socket with the right key (`true`).
///
/// In a time namespace the target computes another key: there also the newest with the right pid.
/// Elsewhere that is a leftover of a killed process with the same id, or a trap.
fn find_socket(
    root: &Root,
    directory: &Path,
    (pid, namespace_pid): (Pid, Pid),
    started: u64,
) -> io::Result<(OwnedFd, bool)> {
    let prefix = format!("dotnet-diagnostic-{namespace_pid}-");
    let exact = root.find_socket(&directory.join(format!("{prefix}{started}-socket")));
    let error = match exact {
        Ok(socket) => return Ok((socket, true)),
        Err(error) if !machine::has_other_clock(pid) => return Err(error),
        Err(error) => error,
    };
    let has_pid = |name: &[u8]| name.starts_with(prefix.as_bytes()) && name.ends_with(b"-socket");
    let others = root.names(directory, MAX_CANDIDATES, has_pid)?;
    let sockets = others
        .into_iter()
        .filter_map(|name| root.find_socket(&directory.join(name)).ok());
    let modified = |socket: &OwnedFd| {
        rustix::fs::fstat(socket).map_or((0, 0), |stat| (stat.st_mtime, stat.st_mtime_nsec))
    };
    let newest = sockets.max_by_key(modified).ok_or(error)?;
    Ok((newest, false))
}

fn temporary_directory(environment: &Environment) -> PathBuf {
    let value = environment.get("TMPDIR").filter(|value| !value.is_empty());
    PathBuf::from(OsStr::from_bytes(value.unwrap_or(b"/tmp")))
}

/// Returns whether a setting suspends the runtime. Ports suspend unless they have `nosuspend`.
fn suspends_at_start(environment: &Environment) -> bool {
    let has_suspending_port = |ports: &[u8]| {
        let mut ports = ports.split(|&byte| byte == b';');
        ports.any(|port| {
            let is_nosuspend = |option: &[u8]| option.eq_ignore_ascii_case(b"nosuspend");
            !port.is_empty() && !port.split(|&byte| byte == b',').any(is_nosuspend)
        })
    };
    let mut ports = environment.settings(PORTS);
    environment.switch(SUSPEND) == Some(true) || ports.any(|(_, ports)| has_suspending_port(ports))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_from_environment() {
        let default = Environment::from_entries(&["PATH=/bin"]);
        assert_eq!(temporary_directory(&default), Path::new("/tmp"));
        assert_eq!(default.zero_setting(&SWITCHES), None);
        assert!(!suspends_at_start(&default));
        let disabled = Environment::from_entries(&[
            "XTMPDIR=/no",
            "TMPDIR=/var/tmp/",
            "COMPlus_EnableDiagnostics=0",
        ]);
        assert_eq!(temporary_directory(&disabled), Path::new("/var/tmp/"));
        assert_eq!(
            disabled.zero_setting(&SWITCHES).unwrap(),
            "COMPlus_EnableDiagnostics=0"
        );
        for suspending in [
            "DOTNET_DefaultDiagnosticPortSuspend=1",
            "DOTNET_DiagnosticPorts=/a.sock",
            "DOTNET_DiagnosticPorts=/a,nosuspend;/b,suspend",
        ] {
            assert!(
                suspends_at_start(&Environment::from_entries(&[suspending])),
                "{suspending}"
            );
        }
        for running in [
            "DOTNET_DefaultDiagnosticPortSuspend=0",
            "DOTNET_DiagnosticPorts=/a.sock,nosuspend",
            "DOTNET_EnableDiagnostics=1",
        ] {
            let running = Environment::from_entries(&[running]);
            assert!(!suspends_at_start(&running) && running.zero_setting(&SWITCHES).is_none());
        }
    }
}
