//! `perfcollect top`: short captures, one after the other; each screen is that of `view`.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use clap::Args;
use thiserror::Error;

use super::arguments::pid;
use super::background::FAILED;
use super::screen;
use super::values::seconds;
use crate::capture::Signals;
use crate::output::summary::Summary;
use crate::trace::Pid;
use crate::view::screen::Screen;

/// Moves the cursor to the start of the terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Start of the error of a capture whose target did not run.
const NO_SAMPLES: &str = "no samples";

/// Show the busiest processes and methods, again and again.
///
/// Each screen is that of a capture without events, as `perfcollect collect NAME -nolttng -collectsec 2` prints it;
/// nothing is kept. Ctrl-C ends it.
#[derive(Args, Debug)]
pub(super) struct TopOptions {
    /// Show these processes and their children
    #[arg(short, long, alias = "process-id", value_name = "P[,P...]", value_delimiter = ',', value_parser = pid)]
    pid: Vec<Pid>,
    /// Show the processes with this name or program, such as app.dll, and their children
    #[arg(
        short = 'n',
        long = "name",
        value_name = "PROCESS",
        conflicts_with = "pid"
    )]
    process_name: Option<OsString>,
    /// Time of each screen
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    delay: Duration,
}

#[derive(Debug, Error)]
pub(super) enum TopError {
    #[error(
        "top needs a terminal; for a file or a script: `perfcollect collect NAME -collectsec 5`"
    )]
    NoTerminal,
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot make a directory for temporary files: {0}")]
    Directory(io::Error),
    #[error("cannot start a capture: {0}")]
    Spawn(io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("cannot read the summary of the capture: {0}")]
    Summary(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Write(io::Error),
}

pub(super) fn run(options: &TopOptions) -> Result<(), TopError> {
    let terminal = || screen::of(io::stdout()).ok_or(TopError::NoTerminal);
    let mut screen = terminal()?;
    let signals = Signals::install().map_err(TopError::Signals)?;
    let directory = tempfile::tempdir().map_err(TopError::Directory)?;
    let words = words(options, directory.path().join("top").as_os_str());
    let first = format!(
        "The first screen comes after {} s.\n",
        options.delay.as_secs_f64()
    );
    super::print(first.as_bytes()).map_err(TopError::Write)?;
    loop {
        let shown = shown(&words, screen)?;
        if signals.pending() {
            return Ok(());
        }
        let text = [CLEAR.as_bytes(), &shown].concat();
        super::print(&text).map_err(TopError::Write)?;
        // It may have been resized.
        screen = terminal()?;
    }
}

/// Returns the arguments of a capture.
fn words(options: &TopOptions, name: &OsStr) -> Vec<OsString> {
    let seconds = options.delay.as_secs_f64().to_string();
    let mut words: Vec<OsString> = vec!["collect".into(), name.into()];
    let fixed = ["-force", "-json", "-quiet", "-nolttng", "-format", "zip"];
    words.extend(fixed.map(OsString::from));
    words.extend(["-collectsec".into(), seconds.into()]);
    for pid in &options.pid {
        words.extend(["-pid".into(), pid.0.to_string().into()]);
    }
    if let Some(name) = &options.process_name {
        words.extend(["-n".into(), name.clone()]);
    }
    words
}

/// Captures once, and returns what to show.
///
/// A capture is a separate process: it drops the rights to start others before it reads files of other users.
fn shown(words: &[OsString], screen: Screen) -> Result<Vec<u8>, TopError> {
    let output = Command::new("/proc/self/exe")
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(TopError::Spawn)?;
    if output.stdout.is_empty() {
        let errors = String::from_utf8_lossy(&output.stderr);
        let last = errors.lines().last().unwrap_or_default();
        let why = last.strip_prefix(FAILED).unwrap_or(last);
        return match why.starts_with(NO_SAMPLES) {
            true => Ok(format!("{why}\n").into_bytes()),
            false => Err(TopError::Failed(why.to_owned())),
        };
    }
    let summary: Summary = serde_json::from_slice(&output.stdout)?;
    let mut text = Vec::new();
    crate::view::screen::print(&summary, None, "Ctrl-C ends it.", screen, &mut text)
        .map_err(TopError::Write)?;
    Ok(text)
}
