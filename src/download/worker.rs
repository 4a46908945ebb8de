//! The worker process, which reads the network and files without privileges.
//!
//! The parent executes perfcollect again, with one task and one open file as standard input. The
//! worker replies in lines of JSON. Untrusted input could take control of the worker. Therefore the
//! parent limits the size of replies, and the worker can modify only the given file.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitCode, ExitStatus, Stdio};
use std::sync::Arc;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::client::{self, Limits};
use super::fetch_error::FetchError;
use super::inspect::{self, MissingDebugFiles};
use super::module::Module;
use super::privileges;

/// Name of the action that starts the worker.
pub(super) const ACTION: &str = "symbols-worker";
/// Environment variable with the task. A URL may contain a password, and all users can read
/// arguments.
const TASK: &str = "PERFCOLLECT_SYMBOLS_TASK";
/// Interval at which the parent checks for cancellation.
const CANCEL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Maximum size of a reply. The longest one lists the modules of a trace.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// Task of a worker process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// List the debug files that the file lacks.
    Identify { path: PathBuf },
    /// Check that the file is a module's debug file.
    Check { module: Module },
    /// Download a module's debug file into the file.
    Fetch {
        url: String,
        module: Module,
        limits: Limits,
    },
}

/// A line of the reply. [`Reply::Progress`] may repeat; any other line is the last one.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Received bytes, and the total size if it is known.
    Progress(u64, Option<u64>),
    /// The file is the requested debug file.
    Good,
    /// The server does not have the file.
    Missing,
    /// The task failed.
    Bad {
        why: String,
        /// Whether to keep the received bytes, to resume later.
        keep: bool,
        /// Whether the server cannot be reached or is too slow.
        unreachable: bool,
    },
    /// The debug files that the file lacks.
    Wanted(MissingDebugFiles),
}

impl Reply {
    fn bad(why: String) -> Self {
        Self::Bad {
            why,
            keep: false,
            unreachable: false,
        }
    }
}

/// The worker process failed.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// The process could not be started.
    #[error("cannot start the download process: {0}")]
    Start(io::Error),
    /// The process ended without a reply.
    ///
    /// It was killed, or it failed to resolve a host name: with some `nsswitch.conf` files, name
    /// resolution fails in a static program.
    #[error(
        "the download process ended unexpectedly ({0}); if host names cannot be resolved, use a proxy or an IP address"
    )]
    Ended(ExitStatus),
    /// The reply is malformed.
    #[error("cannot parse the reply of the download process: {0}")]
    Nonsense(io::Error),
    /// The file is neither a usable trace nor a usable ELF file.
    #[error("{0}")]
    Unfit(String),
}

/// Returns the debug files that the file at `path` lacks.
///
/// # Errors
/// Returns an error if the worker process fails or the file cannot be used.
pub fn identify(path: &Path, file: &File) -> Result<MissingDebugFiles, WorkerError> {
    let path = path.to_owned();
    match run(&Task::Identify { path }, file, |_, _| {}, &|| false)? {
        Reply::Wanted(wanted) => Ok(wanted),
        Reply::Bad { why, .. } => Err(WorkerError::Unfit(why)),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(reply: &Reply) -> WorkerError {
    WorkerError::Nonsense(io::Error::other(format!("{reply:?}")))
}

/// The output of the worker process, until `cancel` returns true.
struct WorkerOutput<'a> {
    output: ChildStdout,
    cancel: &'a dyn Fn() -> bool,
}

impl Read for WorkerOutput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.cancel)() {
                return Err(io::Error::other("cancelled"));
            }
            let mut polled = [PollFd::new(&self.output, PollFlags::IN)];
            match poll(&mut polled, Some(&CANCEL_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return self.output.read(buffer),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Runs a task on `file` in a worker process and returns the last line of the reply.
///
/// Kills the process once `cancel` returns true.
pub(super) fn run(
    task: &Task,
    file: &File,
    mut progress: impl FnMut(u64, Option<u64>),
    cancel: &dyn Fn() -> bool,
) -> Result<Reply, WorkerError> {
    let start = |error: io::Error| WorkerError::Start(error);
    let task = serde_json::to_string(task).map_err(|error| start(error.into()))?;
    let mut child = Command::new("/proc/self/exe")
        .arg(ACTION)
        .env(TASK, task)
        .stdin(file.try_clone().map_err(start)?)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(start)?;
    let mut last = Ok(None);
    if let Some(output) = child.stdout.take() {
        let mut answer = BufReader::new(WorkerOutput { output, cancel });
        last = loop {
            match next(&mut answer) {
                Ok(Some(Reply::Progress(bytes, total))) => progress(bytes, total),
                other => break other,
            }
        };
    }
    if last.is_err() {
        // The process may already have ended.
        let _ = child.kill();
    }
    let status = child.wait().map_err(start)?;
    match last.map_err(WorkerError::Nonsense)? {
        Some(reply) if status.success() => Ok(reply),
        _ => Err(WorkerError::Ended(status)),
    }
}

fn next(answer: &mut impl BufRead) -> io::Result<Option<Reply>> {
    let mut line = Vec::new();
    answer.take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
    match line.is_empty() {
        true => Ok(None),
        false => Ok(Some(serde_json::from_slice(&line)?)),
    }
}

/// Runs the worker process: drops privileges, performs the task and replies.
#[must_use]
pub fn serve() -> ExitCode {
    // The parent may have blocked signals, which a program inherits.
    let _ = SigSet::all().thread_unblock();
    let served = privileges::drop_privileges()
        .map_err(|errno| format!("cannot drop privileges: {errno}"))
        .and_then(|()| {
            let task = std::env::var(TASK)
                .map_err(|_| "internal action: use `perfcollect symbols`".to_owned())?;
            let task = serde_json::from_str(&task).map_err(|error| error.to_string())?;
            let file = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| error.to_string())?;
            Ok(perform(&task, &Arc::new(file.into())))
        });
    match served.and_then(|reply| answer(&reply).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            let _ = writeln!(io::stderr(), "perfcollect {ACTION}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn answer(reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

fn perform(task: &Task, file: &Arc<File>) -> Reply {
    match task {
        Task::Identify { path } => {
            inspect::wanted(path, file).map_or_else(Reply::bad, Reply::Wanted)
        }
        Task::Check { module } => {
            inspect::check(file, module).map_or_else(Reply::bad, |()| Reply::Good)
        }
        Task::Fetch {
            url,
            module,
            limits,
        } => fetch(url, module, file, *limits),
    }
}

fn fetch(url: &str, module: &Module, file: &Arc<File>, limits: Limits) -> Reply {
    let mut progress = |bytes, total| {
        // A write fails only if the parent has ended, which kills this process.
        let _ = answer(&Reply::Progress(bytes, total));
    };
    loop {
        let had_some = file.metadata().is_ok_and(|metadata| metadata.len() > 0);
        match client::get(url, file, limits, &mut progress) {
            Ok(()) => {}
            Err(FetchError::Missing) => return Reply::Missing,
            Err(error) => {
                let keep = !matches!(error, FetchError::TooLarge(_) | FetchError::Write(_));
                return Reply::Bad {
                    why: error.to_string(),
                    keep,
                    unreachable: matches!(
                        error,
                        FetchError::Silent(_)
                            | FetchError::Slow { .. }
                            | FetchError::Unreachable(_)
                    ),
                };
            }
        }
        match inspect::check(file, module) {
            Ok(()) => return Reply::Good,
            // The bytes of an earlier download may be of another file: start again from scratch.
            Err(_) if had_some && file.set_len(0).is_ok() => {}
            Err(why) => return Reply::bad(why),
        }
    }
}
