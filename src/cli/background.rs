//! `perfcollect start NAME` and `perfcollect stop NAME`: a capture in the background.
//!
//! ```text
//! start ── spawns ──> collect --background, which writes its messages to a file
//!   returns when the capture has started or failed
//! stop ── SIGUSR1 ──> the process that holds the lock of the spool and has it open
//!   waits for the lock, then prints the messages
//! ```

use std::ffi::OsString;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid as OsPid, PidfdFlags, Signal};
use thiserror::Error;

use super::arguments::{CollectOptions, RecoverOptions};
use super::named;
use super::opened;
use super::outputs::status_of;
use super::progress::{Reporter, WORK};
use super::recover::{self, RecoverError};
use super::screen;
use super::{OneLine, say};
use crate::output::file::OutputError;
use crate::output::message_file::MessageFile;
use crate::output::sanitize::shell_word;
use crate::output::spool_file::{SpoolFile, SpoolFileError, spool_path};
use crate::selection::Selection;
use crate::view::screen::Screen;
use crate::view::{self, OpenTrace};

/// Interval of checks for the next state.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Prefixes of the first message of a capture, and of its error.
pub(super) const STARTED: &str = "Collection started";
pub(super) const FAILED: &str = "perfcollect: ";
/// Prefixes of the message before the report, and of its last line.
pub(super) const STOPPED: &str = "...STOPPED";
pub(super) const SAVED: &str = "Trace saved to ";

/// Starts of what a capture writes last if it has no memory, and of the lines before.
pub(super) const ENDED: &str = "it ended before its trace was written";
const CAUSES: [&str; 3] = [
    "memory allocation of",
    "failed to spawn thread",
    "panicked at",
];

#[derive(Debug, Error)]
pub(super) enum BackgroundError {
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("cannot start perfcollect again: {0}")]
    Spawn(io::Error),
    #[error("cannot read the messages of the capture: {0}")]
    Read(io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("cannot stop process {pid}: {source}")]
    Signal { pid: i32, source: io::Error },
    #[error("cannot identify the process that holds {}", .0.display())]
    UnknownHolder(std::path::PathBuf),
    #[error(transparent)]
    Spool(#[from] SpoolFileError),
    #[error(transparent)]
    Recover(#[from] RecoverError),
}

/// Starts the command line `words` as a separate capture and waits until it has started.
pub(super) fn start(options: &CollectOptions, words: &[OsString]) -> Result<(), BackgroundError> {
    let name = named::capture(options);
    if let Err(running @ SpoolFileError::Running { .. }) = SpoolFile::open(&name) {
        return Err(running.into());
    }
    let messages = MessageFile::create(&name)?;
    let is_given = options.name.is_some() || options.output.is_some();
    let made = (!is_given).then(|| format!("--output={}", name.display()));
    let writer = || messages.writer().map_err(BackgroundError::Spawn);
    let child = Command::new("/proc/self/exe")
        .args(["collect", "--background"])
        .args(made)
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
        let messages_so_far = messages.read().map_err(BackgroundError::Read)?;
        let mut lines = messages_so_far.lines();
        if let Some(at) = lines.position(|line| line.starts_with(STARTED)) {
            if !options.results.quiet {
                let name = shell_word(&name.to_string_lossy());
                let lines: Vec<&str> = messages_so_far.lines().take(at + 1).collect();
                let text = format!(
                    "{}\nThe capture runs in the background; stop it with `perfcollect stop {name}`.\n",
                    lines.join("\n")
                );
                let _ = super::print(text.as_bytes());
            }
            return Ok(());
        }
        if ended.is_some() {
            let _ = messages.remove();
            return Err(failure(&messages_so_far));
        }
        sleep(POLL_INTERVAL);
    }
}

/// Stops a capture and waits for its trace. Recovers a killed capture.
///
/// All stops of one capture wait and print the same: each has the messages open, which the first removes.
///
/// Returns the exit status.
pub(super) fn stop(options: &RecoverOptions) -> Result<u8, BackgroundError> {
    let reporter = Reporter::new(options.results.quiet || options.results.json);
    let messages = MessageFile::open(&options.name)?;
    let messages = messages.as_ref();
    let mut is_interrupted = false;
    let mut shown = String::new();
    loop {
        // Does not keep the lock: `recover` takes it.
        match SpoolFile::open(&options.name).map(drop) {
            Err(SpoolFileError::Running { path, collector }) => {
                if !is_interrupted {
                    let pid = collector.filter(|&pid| has_open(pid, &path));
                    interrupt(pid.ok_or(BackgroundError::UnknownHolder(path))?)?;
                    is_interrupted = true;
                }
                // It is not worth an error.
                let _ = show_work(messages, &reporter, &mut shown);
                sleep(POLL_INTERVAL);
            }
            Err(SpoolFileError::Missing { .. }) if is_interrupted || messages.is_some() => {
                reporter.clear();
                return relay(options, messages);
            }
            // The capture failed and wrote why.
            Ok(()) if is_interrupted && failure_of(messages)?.is_some() => {
                reporter.clear();
                return relay(options, messages);
            }
            // It was killed, or had no memory and wrote that.
            _ => {
                reporter.clear();
                if let Some(why) = failure_of(messages)? {
                    say(format_args!("the capture failed: {}", OneLine(&why)));
                }
                recover::run(options)?;
                if let Some(messages) = messages {
                    let _ = messages.remove();
                }
                return Ok(0);
            }
        }
    }
}

/// Prints the progress of the work after a capture, if it is new.
fn show_work(
    messages: Option<&MessageFile>,
    reporter: &Reporter,
    shown: &mut String,
) -> Result<(), BackgroundError> {
    let Some(messages) = messages else {
        return Ok(());
    };
    let text = messages.read_end().map_err(BackgroundError::Read)?;
    // The last line may be incomplete.
    let complete = text.rsplit_once('\n').unwrap_or_default().0;
    let last = complete
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(WORK));
    if let Some(last) = last.filter(|last| last != shown) {
        reporter.status(last);
        last.clone_into(shown);
    }
    Ok(())
}

/// Returns the error of a background capture, if that is its last message.
fn failure_of(messages: Option<&MessageFile>) -> Result<Option<String>, BackgroundError> {
    let Some(messages) = messages else {
        return Ok(None);
    };
    let text = messages.read().map_err(BackgroundError::Read)?;
    let has_failed = last_line(&text).starts_with(FAILED);
    Ok(has_failed.then(|| failure_text(&text)))
}

/// Prints the messages of a background capture. Returns the exit status.
fn relay(options: &RecoverOptions, messages: Option<&MessageFile>) -> Result<u8, BackgroundError> {
    // A foreground capture has printed them itself.
    let Some(messages) = messages else {
        return Ok(0);
    };
    let text = messages.read().map_err(BackgroundError::Read)?;
    let _ = messages.remove();
    // An error is the last message.
    if last_line(&text).starts_with(FAILED) {
        return Err(failure(&text));
    }
    // There is none if only the event stream was wanted.
    let trace = opened::open(&options.name, &Selection::default()).ok();
    if !options.results.quiet {
        let text = without_work(&text);
        let shown = screen::of(io::stdout())
            .zip(trace.as_ref())
            .and_then(|(screen, trace)| on_screen(trace, &text, screen));
        let _ = super::print(shown.as_deref().unwrap_or(text.as_bytes()));
    }
    Ok(trace.map_or(0, |trace| status_of(&trace.summary.quality)))
}

/// Returns the messages with the first screen in place of the report. `None` if they have no report.
fn on_screen(trace: &OpenTrace, messages: &str, screen: Screen) -> Option<Vec<u8>> {
    let stopped = messages.find(STOPPED)?;
    let (before, report) = messages.split_at(stopped + messages[stopped..].find('\n')? + 1);
    let saved = report.lines().rev().find(|line| line.starts_with(SAVED))?;
    let mut text = before.as_bytes().to_vec();
    view::view_screen(trace, saved, screen, &mut text).ok()?;
    Some(text)
}

/// Removes the lines of progress, each with the line end before it.
fn without_work(messages: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    for line in messages.split_inclusive('\n') {
        match line.starts_with(WORK) {
            true => drop(kept.pop_if(|before| *before == "\n")),
            false => kept.push(line),
        }
    }
    kept.concat()
}

fn failure(messages: &str) -> BackgroundError {
    BackgroundError::Failed(failure_text(messages))
}

/// Returns the last line, after what the standard library wrote before: the failed allocation or the
/// panic.
pub(super) fn failure_text(messages: &str) -> String {
    let line = match last_line(messages) {
        "" => "the capture ended without a message",
        line => line,
    };
    let line = line.strip_prefix(FAILED).unwrap_or(line);
    match line.starts_with(ENDED) {
        true => {
            let is_cause = |line: &&str| CAUSES.iter().any(|cause| line.starts_with(cause));
            let causes = messages.lines().filter(is_cause);
            causes.chain([line]).collect::<Vec<_>>().join("; ")
        }
        false => line.to_owned(),
    }
}

fn last_line(text: &str) -> &str {
    let mut lines = text.lines().rev();
    lines
        .find(|line| !line.is_empty() && !line.starts_with(WORK))
        .unwrap_or_default()
}

/// Returns whether a process has the file at `path` open. Otherwise the pid was reused.
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
        Ok(process) => rustix::process::pidfd_send_signal(process, Signal::USR1),
        // Before Linux 5.3.
        Err(rustix::io::Errno::NOSYS) => rustix::process::kill_process(process, Signal::USR1),
        Err(errno) => Err(errno),
    };
    match sent {
        // The process has just ended.
        Err(rustix::io::Errno::SRCH) | Ok(()) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_not_part_of_the_messages() {
        let messages = format!("started\n\n{WORK}1 %\nout\n{WORK}2 %\n\n\n{WORK}3 %\nend\n");
        assert_eq!(without_work(&messages), "started\nout\n\nend\n");
    }

    #[test]
    fn a_failure_has_its_cause() {
        let messages = format!(
            "{STARTED}\n\nmemory allocation of 5 bytes failed\nstack backtrace:\n{FAILED}{ENDED}: x\n"
        );
        let text = failure_text(&messages);
        assert_eq!(
            text,
            format!("memory allocation of 5 bytes failed; {ENDED}: x")
        );
        let failed = failure_text(&format!("...STOPPED.\n{FAILED}no samples\n"));
        assert_eq!(failed, "no samples");
    }
}
