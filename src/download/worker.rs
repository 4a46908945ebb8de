//! The process that reads the network and files: this program once more, without privileges.
//!
//! It gets one open file as its standard input and one task; it answers in lines of JSON. Whatever it reads may take it over,
//! so its answers are bounded and believed no further than they reach: into the file it was given.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, ExitCode, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::client::{self, Limits};
use super::fetch_error::FetchError;
use super::inspect::{self, MissingDebugFiles};
use super::module::Module;
use super::privileges;

/// The action it is started with.
pub(super) const ACTION: &str = "symbols-worker";
/// Holds the task: a URL may hold a password, which arguments would show to everybody.
const TASK: &str = "PERFCOLLECT_SYMBOLS_TASK";
/// Time between two questions whether to go on.
const CANCEL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};
/// Longest answer: the modules of a trace.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What is to be done with the file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Task {
    /// Which debug files it asks for.
    Identify { path: PathBuf },
    /// Whether it is a module's debug file.
    Check { module: Module },
    /// To get it.
    Fetch {
        url: String,
        module: Module,
        limits: Limits,
    },
}

/// A line of the answer; all but the first are the last.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// Bytes there, and in all.
    Progress(u64, Option<u64>),
    /// The file is what it should be.
    Good,
    /// The server does not have it.
    Missing,
    /// Why not.
    Bad {
        why: String,
        /// What is there is worth keeping, to go on later.
        keep: bool,
        /// The server cannot be reached, or hardly, and it took its time.
        unreachable: bool,
    },
    /// What it asks for.
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

/// The process failed.
#[derive(Debug, Error)]
pub enum WorkerError {
    /// It could not be started.
    #[error("cannot start a process without privileges: {0}")]
    Start(io::Error),
    /// It ended without an answer: killed, or by resolving names, which in a static program may fail with some `nsswitch.conf`.
    #[error(
        "the process that reads the network ended ({0}); if names cannot be resolved, use a proxy or an IP address"
    )]
    Ended(ExitStatus),
    /// It answered nonsense.
    #[error("the process that reads the network answers nonsense: {0}")]
    Nonsense(io::Error),
    /// The file asks for nothing.
    #[error("{0}")]
    Unfit(String),
}

/// The debug files `file` asks for; `path` is what it is called.
///
/// # Errors
/// See [`WorkerError`].
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

/// The output of the process, as long as it is wanted.
struct WorkerOutput<'a> {
    output: ChildStdout,
    stop: &'a dyn Fn() -> bool,
}

impl Read for WorkerOutput<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.stop)() {
                return Err(io::Error::other("given up"));
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

/// Has a task done on `file` and gives the last line of the answer; kills the process once `stop` says so.
pub(super) fn run(
    task: &Task,
    file: &File,
    mut progress: impl FnMut(u64, Option<u64>),
    stop: &dyn Fn() -> bool,
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
        let mut answer = BufReader::new(WorkerOutput { output, stop });
        last = loop {
            match next(&mut answer) {
                Ok(Some(Reply::Progress(bytes, total))) => progress(bytes, total),
                other => break other,
            }
        };
    }
    if last.is_err() {
        // It may have ended by itself.
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

/// The process itself: gives up its privileges, does its task, answers.
#[must_use]
pub fn serve() -> ExitCode {
    let served = privileges::drop_privileges()
        .map_err(|errno| format!("cannot give up privileges: {errno}"))
        .and_then(|()| {
            let task =
                std::env::var(TASK).map_err(|_| "it is not to be started by hand".to_owned())?;
            let task = serde_json::from_str(&task).map_err(|error| error.to_string())?;
            let file = io::stdin()
                .as_fd()
                .try_clone_to_owned()
                .map_err(|error| error.to_string())?;
            Ok(perform(&task, &file.into()))
        });
    match served.and_then(|reply| answer(&reply).map_err(|error| error.to_string())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("perfcollect {ACTION}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn answer(reply: &Reply) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    io::stdout().write_all(&line)
}

fn perform(task: &Task, file: &File) -> Reply {
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

fn fetch(url: &str, module: &Module, file: &File, limits: Limits) -> Reply {
    let mut progress = |bytes, total| {
        // Without a reader there is nobody to tell; the parent's end is this process's.
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
            // The beginning may have been another file's.
            Err(_) if had_some && file.set_len(0).is_ok() => {}
            Err(why) => return Reply::bad(why),
        }
    }
}
