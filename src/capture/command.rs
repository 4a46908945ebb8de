//! The command of `collect NAME -- COMMAND`: perfcollect starts it, samples it, and never kills it.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid as OsPid, PidfdFlags};
use thiserror::Error;

use super::Signals;
use crate::trace::Pid;

/// Reason why the command does not run.
#[derive(Debug, Error)]
pub enum CommandError {
    /// The command line is empty.
    #[error("no command after `--`")]
    Empty,
    /// The program cannot be started.
    #[error("cannot run {program:?}: {source}")]
    Spawn {
        /// Program: the first word of the command line.
        program: OsString,
        /// Cause.
        source: io::Error,
    },
}

/// The running command. Dropping this does not end it.
#[derive(Debug)]
pub struct Command {
    child: Child,
    end: Option<OwnedFd>,
}

impl Command {
    /// Starts the command with perfcollect's standard streams.
    ///
    /// # Errors
    /// Returns an error if `words` is empty or the program cannot be started.
    pub fn spawn(words: &[OsString], signals: &Signals) -> Result<Self, CommandError> {
        let (program, arguments) = words.split_first().ok_or(CommandError::Empty)?;
        let child = signals
            .spawn(std::process::Command::new(program).args(arguments))
            .map_err(|source| CommandError::Spawn {
                program: program.clone(),
                source,
            })?;
        let end = OsPid::from_raw(child.id() as i32)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self { child, end })
    }

    /// Returns the process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.child.id() as i32)
    }

    /// Returns a descriptor that becomes readable when the command ends.
    ///
    /// Returns `None` on kernels without pidfds (before 5.3).
    #[must_use]
    pub fn end_fd(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(AsFd::as_fd)
    }

    /// Waits up to `limit` for the end of the command. Returns how it ended, if it did.
    pub fn ended_within(&mut self, limit: Duration) -> Option<CommandEnd> {
        let start = Instant::now();
        loop {
            let ended = self.ended();
            if ended.is_some() || start.elapsed() >= limit {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns how the command ended, if it did.
    pub fn ended(&mut self) -> Option<CommandEnd> {
        match self.child.try_wait() {
            Ok(status) => status.map(|status| CommandEnd::new(Some(status))),
            // perfcollect was started with SIGCHLD ignored, so the kernel keeps no status.
            Err(_) => Some(CommandEnd::new(None)),
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandEnd {
    /// `None` if it is unknown.
    status: Option<ExitStatus>,
    /// Whether the capture ended before, by a signal or its limit.
    is_after_capture: bool,
}

impl CommandEnd {
    fn new(status: Option<ExitStatus>) -> Self {
        Self {
            status,
            is_after_capture: false,
        }
    }

    /// Returns the same for a command that ended when the capture did, such as by the same Ctrl-C.
    pub(super) fn after_capture(self) -> Self {
        Self {
            is_after_capture: true,
            ..self
        }
    }

    /// Returns the exit status as a shell does: 128 and the number of the signal that killed the command. It
    /// is 0 if it is unknown, or if the capture ended before.
    #[must_use]
    pub fn exit_status(self) -> u8 {
        let status = self.status.filter(|_| !self.is_after_capture);
        let status = status.unwrap_or_default();
        let signal = status.signal().map(|signal| 128 + signal);
        let code = status.code().or(signal).unwrap_or_default();
        u8::try_from(code).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for CommandEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(status) = self.status else {
            return f.write_str("exit status unknown");
        };
        match (status.code(), status.signal()) {
            (Some(code), _) => write!(f, "exit status {code}"),
            (None, Some(signal)) => write!(f, "killed by signal {signal}"),
            (None, None) => status.fmt(f),
        }
    }
}
