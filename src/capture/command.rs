//! The command of `collect NAME -- COMMAND`: started under the eyes of the sampler, never harmed.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid as OsPid, PidfdFlags};
use thiserror::Error;

use crate::trace::Pid;

/// Why the command does not run.
#[derive(Debug, Error)]
pub enum CommandError {
    /// No words.
    #[error("no command after `--`")]
    Empty,
    /// Not started.
    #[error("cannot run {program:?}: {source}")]
    Spawn {
        /// First word.
        program: OsString,
        /// Why.
        source: io::Error,
    },
}

/// The running command. Dropping it leaves it alone.
#[derive(Debug)]
pub struct Command {
    child: Child,
    end: Option<OwnedFd>,
}

impl Command {
    /// Starts it with our standard streams.
    pub fn spawn(words: &[OsString]) -> Result<Self, CommandError> {
        let (program, arguments) = words.split_first().ok_or(CommandError::Empty)?;
        let child = std::process::Command::new(program)
            .args(arguments)
            .spawn()
            .map_err(|source| CommandError::Spawn {
                program: program.clone(),
                source,
            })?;
        let end = OsPid::from_raw(child.id() as i32)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
        Ok(Self { child, end })
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid(self.child.id() as i32)
    }

    /// Becomes readable when it ends; `None` on kernels without pidfds (before 5.3).
    #[must_use]
    pub fn end_fd(&self) -> Option<BorrowedFd<'_>> {
        self.end.as_ref().map(AsFd::as_fd)
    }

    /// How it ended, if it has by then.
    pub fn ended_within(&mut self, limit: Duration) -> Option<String> {
        let begin = Instant::now();
        loop {
            let ended = self.ended();
            if ended.is_some() || begin.elapsed() >= limit {
                return ended;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// How it ended, once it has.
    pub fn ended(&mut self) -> Option<String> {
        self.child.try_wait().ok().flatten().map(describe)
    }
}

fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => status.to_string(),
    }
}
