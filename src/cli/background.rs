//! `perfcollect start NAME` and `perfcollect stop NAME`: a capture in the background.
//!
//! ```text
//! start ── spawns ──> collect --background: says what it has to say in a file
//!   until it has begun, or says why not
//! stop ── SIGINT ───> whoever holds the lock of the spool and has it open
//!   until the lock is free, then what was said
//! ```

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid as OsPid, PidfdFlags, Signal};
use thiserror::Error;

use super::arguments::{CollectOptions, RecoverOptions};
use super::recover::{self, RecoverError};
use crate::output::file::OutputError;
use crate::output::message_file::MessageFile;
use crate::output::spool_file::{SpoolFile, SpoolFileError, spool_path};

/// How often it is looked whether something has changed.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// What a capture says first, and what it says when it has failed.
pub(super) const STARTED: &str = "Collection started";
pub(super) const FAILED: &str = "perfcollect: ";

#[derive(Debug, Error)]
pub(super) enum BackgroundError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot start perfcollect again: {0}")]
    Spawn(io::Error),
    #[error("cannot read what the capture says: {0}")]
    Read(io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("cannot stop process {pid}: {source}")]
    Signal { pid: i32, source: io::Error },
    #[error("{} is held by a process that cannot be told", .0.display())]
    NoCollector(std::path::PathBuf),
    #[error(transparent)]
    Spool(#[from] SpoolFileError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

/// Starts `words` (a whole command line) again as a capture of its own, and waits until it has begun.
pub(super) fn start(options: &CollectOptions, words: &[OsString]) -> Result<(), BackgroundError> {
    if let Err(running @ SpoolFileError::Running { .. }) = SpoolFile::open(&options.name) {
        return Err(running.into());
    }
    let messages = MessageFile::create(&options.name)?;
    let writer = || messages.writer().map_err(BackgroundError::Spawn);
    let child = Command::new("/proc/self/exe")
        .args(["collect", "--background"])
        .args(words.iter().skip(2))
        .stdin(Stdio::null())
        .stdout(writer()?)
        .stderr(writer()?)
        .spawn();
    let mut child = child.map_err(|error| {
        let _ = messages.remove();
        BackgroundError::Spawn(error)
    })?;
    loop {
        let ended = child.try_wait().map_err(BackgroundError::Spawn)?;
        let said = messages.read().map_err(BackgroundError::Read)?;
        if let Some(line) = said.lines().find(|line| line.starts_with(STARTED)) {
            if !options.results.quiet {
                let name = options.name.display();
                let text = format!(
                    "{line}\nIt runs in the background: `perfcollect stop {name}` ends it.\n"
                );
                let _ = super::print(text.as_bytes());
            }
            return Ok(());
        }
        if ended.is_some() {
            let _ = messages.remove();
            return Err(failure(&said));
        }
        sleep(POLL_INTERVAL);
    }
}

/// Ends the capture of a name and waits for its trace; one that was killed is recovered.
pub(super) fn stop(options: &RecoverOptions) -> Result<(), BackgroundError> {
    let mut is_asked = false;
    loop {
        // Without its lock, which whoever recovers it takes.
        match SpoolFile::open(&options.name).map(drop) {
            Err(SpoolFileError::Running { path, collector }) => {
                if !is_asked {
                    let pid = collector.filter(|&pid| has_open(pid, &path));
                    interrupt(pid.ok_or(BackgroundError::NoCollector(path))?)?;
                    is_asked = true;
                }
                sleep(POLL_INTERVAL);
            }
            Err(SpoolFileError::Missing { .. })
                if is_asked || MessageFile::open(&options.name)?.is_some() =>
            {
                return relay(options);
            }
            // It has failed, and says why; or it was killed.
            Ok(()) if is_asked => return relay(options),
            _ => {
                if let Some(messages) = MessageFile::open(&options.name)? {
                    let _ = messages.remove();
                }
                return Ok(recover::run(options)?);
            }
        }
    }
}

/// Prints what a capture in the background has said.
fn relay(options: &RecoverOptions) -> Result<(), BackgroundError> {
    // One in the foreground has said it there.
    let Some(messages) = MessageFile::open(&options.name)? else {
        return Ok(());
    };
    let said = messages.read().map_err(BackgroundError::Read)?;
    let _ = messages.remove();
    // An error is the last that is said.
    if last_line(&said).starts_with(FAILED) {
        return Err(failure(&said));
    }
    if !options.results.quiet {
        let _ = io::stdout().write_all(said.as_bytes());
    }
    Ok(())
}

fn failure(said: &str) -> BackgroundError {
    let line = match last_line(said) {
        "" => "the capture ended without a word",
        line => line,
    };
    BackgroundError::Failed(line.strip_prefix(FAILED).unwrap_or(line).to_owned())
}

fn last_line(said: &str) -> &str {
    let mut lines = said.lines().rev();
    lines.find(|line| !line.is_empty()).unwrap_or_default()
}

/// Whether a process has the file at `path` open: else the id is somebody else's now.
fn has_open(pid: i32, path: &Path) -> bool {
    let Ok(spool) = std::fs::symlink_metadata(spool_path(path)) else {
        return false;
    };
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let is_spool = |file: std::fs::DirEntry| {
        let file = std::fs::metadata(file.path());
        file.is_ok_and(|file| (file.dev(), file.ino()) == (spool.dev(), spool.ino()))
    };
    files.flatten().flatten().any(is_spool)
}

fn interrupt(pid: i32) -> Result<(), BackgroundError> {
    let failed = |errno: rustix::io::Errno| BackgroundError::Signal {
        pid,
        source: errno.into(),
    };
    let process = OsPid::from_raw(pid).ok_or_else(|| failed(rustix::io::Errno::SRCH))?;
    let sent = match rustix::process::pidfd_open(process, PidfdFlags::empty()) {
        Ok(process) => rustix::process::pidfd_send_signal(process, Signal::INT),
        // Before Linux 5.3.
        Err(rustix::io::Errno::NOSYS) => rustix::process::kill_process(process, Signal::INT),
        Err(errno) => Err(errno),
    };
    match sent {
        // It has ended meanwhile.
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}
