//! `perfcollect top`: short captures, one after the other; each screen is the first one of `collect`.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tempfile::TempDir;
use thiserror::Error;

use super::arguments::pid;
use super::background::failure_text;
use super::screen;
use super::values::seconds;
use crate::capture::Signals;
use crate::machine;
use crate::output::summary::Summary;
use crate::trace::Pid;
use crate::view::screen::Screen;

/// Moves the cursor to the start of the terminal and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";
/// Start of the error of a capture whose target did not run.
const NO_SAMPLES: &str = "no samples";
/// Start of what an error says of the samples.
const KEPT: &str = "; the samples are kept";
const END: &str = "Ctrl-C ends it.";
/// Findings of a screen: most of it is for methods.
const MAX_FINDINGS: usize = 2;
/// Interval of checks whether a capture has ended, and the time after which it has probably started.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const STARTED: Duration = Duration::from_millis(300);

/// Show the busiest processes and methods, again and again.
///
/// Each screen is that of a capture without .NET events, of which nothing is kept. Ctrl-C ends it.
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
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with = "pid"
    )]
    process_name: Option<String>,
    /// Time that a screen is about; it appears when the code is named
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = delay)]
    delay: Duration,
    /// Sampling frequency in Hz, per busy CPU
    #[arg(
        short = 'F',
        long,
        alias = "frequency",
        value_name = "HZ",
        default_value_t = 999
    )]
    freq: u32,
    #[command(flatten)]
    anyhow: TopAnyhow,
}

/// Longest time that a screen is about.
const MAX_DELAY: Duration = Duration::from_secs(3600);

fn delay(text: &str) -> Result<Duration, String> {
    let delay = seconds(text).map_err(|error| error.to_string())?;
    match delay <= MAX_DELAY {
        true => Ok(delay),
        false => Err("a screen is about at most an hour".into()),
    }
}

/// Options of `perf top` for what is done anyhow.
#[derive(Args, Clone, Copy, Debug)]
struct TopAnyhow {
    /// The whole machine is the default
    #[arg(short, long, hide = true, conflicts_with_all = ["pid", "process_name"])]
    all_cpus: bool,
    /// Samples have stacks
    #[arg(short = 'g', hide = true)]
    stacks: bool,
    /// Each screen is about its own time
    #[arg(short, long, hide = true)]
    zero: bool,
    /// As text
    #[arg(long, hide = true)]
    stdio: bool,
}

#[derive(Debug, Error)]
pub(super) enum TopError {
    #[error(
        "top needs a terminal; for a file or a script: `perfcollect collect NAME -collectsec 5`"
    )]
    NoTerminal,
    #[error("cannot handle signals: {0}")]
    Signals(io::Error),
    #[error("cannot write temporary files: {0}")]
    Temporary(io::Error),
    #[error("cannot start a capture: {0}")]
    Spawn(io::Error),
    #[error("{0}")]
    Failed(String),
    #[error("cannot read the summary of the capture: {0}")]
    Summary(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Write(io::Error),
}

/// What a capture has shown.
enum Shown {
    Samples(Box<Summary>),
    Idle,
    /// It failed, as its target has ended, for example.
    Failed(String),
    /// A signal has come.
    Stopped,
}

pub(super) fn run(options: &TopOptions) -> Result<(), TopError> {
    let terminal = || screen::of(io::stdout()).ok_or(TopError::NoTerminal);
    terminal()?;
    let top = Top {
        options,
        signals: Signals::install().map_err(TopError::Signals)?,
        directory: tempfile::Builder::new()
            .prefix("perfcollect-top-")
            .tempdir()
            .map_err(TopError::Temporary)?,
    };
    let mut pids = options.pid.clone();
    let mut screens = 0;
    loop {
        let shown = top.capture(&pids, screens == 0)?;
        let screen = terminal()?;
        let text = match shown {
            Shown::Samples(summary) => text(*summary, screen).map_err(TopError::Write)?,
            Shown::Idle => {
                let seconds = options.delay.as_secs_f64();
                let more = pids.first().map_or_else(String::new, |pid| {
                    format!(" `perfcollect stacks -p {pid}` shows what for.")
                });
                format!("No samples in {seconds} s: the target waits.{more}\n{END}\n").into_bytes()
            }
            Shown::Stopped => return Ok(()),
            Shown::Failed(why) => {
                let before = pids.len();
                pids.retain(|pid| machine::process_name(*pid).is_some());
                match screens > 0 && pids.len() < before {
                    true if pids.is_empty() => return Ok(()),
                    true => continue,
                    false => return Err(TopError::Failed(why)),
                }
            }
        };
        screens += 1;
        super::print(&[CLEAR.as_bytes(), &text].concat()).map_err(TopError::Write)?;
    }
}

fn text(mut summary: Summary, screen: Screen) -> io::Result<Vec<u8>> {
    summary.findings.truncate(MAX_FINDINGS);
    // They would be the same on each screen.
    summary.quality.notices.clear();
    let mut text = Vec::new();
    crate::view::screen::print(&summary, None, END, screen, &mut text)?;
    Ok(text)
}

/// Returns what a child has written to a file that it shares.
fn written(file: &mut File) -> Result<Vec<u8>, TopError> {
    let mut content = Vec::new();
    file.rewind()
        .and_then(|()| file.read_to_end(&mut content))
        .map_err(TopError::Temporary)?;
    Ok(content)
}

struct Top<'a> {
    options: &'a TopOptions,
    signals: Signals,
    directory: TempDir,
}

impl Top<'_> {
    /// Captures once, as a separate process: it drops its rights before it reads files of other users.
    fn capture(&self, pids: &[Pid], is_first: bool) -> Result<Shown, TopError> {
        let file = || tempfile::tempfile().map_err(TopError::Temporary);
        let (mut summary, mut errors) = (file()?, file()?);
        let shared = |file: &File| file.try_clone().map_err(TopError::Temporary);
        let mut child = Command::new("/proc/self/exe")
            .args(self.words(pids))
            .stdin(Stdio::null())
            .stdout(shared(&summary)?)
            .stderr(shared(&errors)?)
            .spawn()
            .map_err(TopError::Spawn)?;
        let start = Instant::now();
        let mut is_said = !is_first;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(TopError::Spawn)? {
                break status;
            }
            if self.signals.pending() {
                // What it has captured is not kept.
                let _ = child.kill();
                let _ = child.wait();
                return Ok(Shown::Stopped);
            }
            if !is_said && start.elapsed() > STARTED {
                let text = format!(
                    "Sampling for {} s. {END}\n",
                    self.options.delay.as_secs_f64()
                );
                super::print(text.as_bytes()).map_err(TopError::Write)?;
                is_said = true;
            }
            sleep(POLL_INTERVAL);
        };
        let summary = written(&mut summary)?;
        if !summary.is_empty() {
            let summary: Summary = serde_json::from_slice(&summary)?;
            return Ok(Shown::Samples(Box::new(summary)));
        }
        let errors = written(&mut errors)?;
        if errors.is_empty() {
            return Ok(Shown::Failed(format!("the capture ended: {status}")));
        }
        let why = failure_text(&String::from_utf8_lossy(&errors));
        // Nothing is kept.
        let why = why.split(KEPT).next().unwrap_or_default();
        Ok(match why.starts_with(NO_SAMPLES) {
            true => Shown::Idle,
            false => Shown::Failed(why.to_owned()),
        })
    }

    /// Returns the arguments of a capture.
    fn words(&self, pids: &[Pid]) -> Vec<OsString> {
        let options = self.options;
        let name = self.directory.path().join("top");
        let mut words: Vec<OsString> = vec!["collect".into(), name.into()];
        let fixed = ["-summary-only", "-quiet", "-nolttng", "-noinline"];
        words.extend(fixed.map(OsString::from));
        let seconds = options.delay.as_secs_f64().to_string();
        words.extend(["-collectsec".into(), seconds.into()]);
        words.extend(["-freq".into(), options.freq.to_string().into()]);
        for pid in pids {
            words.extend(["-pid".into(), pid.0.to_string().into()]);
        }
        if let Some(name) = &options.process_name {
            words.extend(["-n".into(), name.into()]);
        }
        words
    }
}
