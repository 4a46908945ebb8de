//! `perfcollect stacks`: what all threads of a process do at this moment.

use std::io;
use std::process::exit;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use thiserror::Error;

use super::arguments::{EXAMPLES_FIRST, pid};
use super::named::{self, NamedError};
use super::{sandbox, say, screen};
use crate::capture::{self, Activity, CaptureError, Signals, Snapshot, SnapshotThread};
use crate::machine::drop_capabilities;
use crate::output::file::FileOwner;
use crate::output::sanitize::json_text;
use crate::symbolize::{self, Cancelled};
use crate::trace::{Notice, NoticeKind, Pid, RIGHTS_TO_READ_THREADS};
use crate::view::{StackText, print_stacks};
use crate::waits::StackReport;

/// Interval of checks for a signal, and time after which it says why it takes so long.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(10);
/// Exit status after a signal.
const STOPPED: i32 = 1;

/// Show what all threads of a process do or wait for, at once and without stopping it.
///
/// Threads with the same stack are one group; `>` marks your code. Shows who has the lock that a thread waits for, and
/// deadlocks. What needs no thread is not there: requests and tasks that await, and goroutines.
#[derive(Args, Debug)]
#[command(
    visible_alias = "stack",
    alias = "pstack",
    help_template = EXAMPLES_FIRST,
    after_help = "EXAMPLES\n  \
    perfcollect stacks -p 1234\n  \
    perfcollect stacks -n app.dll -full\n  \
    perfcollect stacks -p 1234 -json"
)]
pub(super) struct StacksOptions {
    /// Same as -pid
    #[arg(value_name = "PID", value_parser = pid, conflicts_with_all = ["pid", "process_name"])]
    process: Option<Pid>,
    /// Show the threads of these processes
    #[arg(
        short,
        long,
        alias = "process-id",
        value_name = "P[,P...]",
        value_delimiter = ',',
        value_parser = pid,
        required_unless_present_any = ["process", "process_name"]
    )]
    pid: Vec<Pid>,
    /// Show those of the processes with this name or program, such as app.dll
    #[arg(
        short = 'n',
        long = "name",
        value_name = "PROCESS",
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with = "pid"
    )]
    process_name: Option<String>,
    /// Print all stacks whole, also to a terminal
    #[arg(long)]
    full: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "full")]
    json: bool,
}

#[derive(Debug, Error)]
pub(super) enum StacksError {
    #[error("cannot install signal handlers: {0}")]
    Signals(io::Error),
    #[error(transparent)]
    Named(#[from] NamedError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("cannot read the threads of {pid}: {why}; {RIGHTS_TO_READ_THREADS}")]
    Denied { pid: Pid, why: String },
    #[error("stopped")]
    Stopped,
    #[error("cannot write: {0}")]
    Json(#[from] serde_json::Error),
    #[error("cannot write: {0}")]
    Write(#[from] io::Error),
}

pub(super) fn run(options: &StacksOptions) -> Result<(), StacksError> {
    let signals = Arc::new(Signals::install().map_err(StacksError::Signals)?);
    let watched = Arc::clone(&signals);
    let watch = thread::Builder::new().name("watch".into());
    watch.spawn(move || end_on_signal(&watched))?;
    // From here on, it executes nothing and changes no user.
    let _ = sandbox::while_capturing();
    let mut pids = match &options.process_name {
        Some(name) => named::processes(name)?,
        None => options.pid.iter().copied().chain(options.process).collect(),
    };
    pids.sort_unstable();
    pids.dedup();
    let naming = symbolize::Options {
        inlined: true,
        symbol_directories: Vec::new(),
        invoking_user: FileOwner::invoking_user().map(|owner| owner.uid.as_raw()),
    };
    let symbolizer = Arc::new(symbolize::elf::unwind_symbolizer(&naming));
    let Snapshot {
        mut capture,
        threads,
        omitted,
        no_samples,
    } = capture::snapshot(&pids, &symbolizer, &signals)?;
    if let Some(denied) = denied(&threads) {
        return Err(denied);
    }
    // What it reads from here on are files of others.
    let _ = sandbox::enter(&[], &[]);
    capture.notices.extend(no_samples.map(|error| {
        let what = format!("the threads that run have no stacks: {error}");
        Notice::new(NoticeKind::NoSamples, what, "")
    }));
    let trace = symbolize::symbolize(capture, &naming, &|| signals.pending());
    let trace = trace.map_err(|Cancelled| StacksError::Stopped)?;
    let report = StackReport::new(&threads, &omitted, &trace);
    let mut text = Vec::new();
    if options.json {
        let json = serde_json::to_string_pretty(&report)?;
        text = format!("{}\n", json_text(&json)).into_bytes();
    } else {
        let form = StackText {
            screen: screen::of(io::stdout()),
            full: options.full,
            top: usize::MAX,
        };
        print_stacks(&report, form, &mut text)?;
    }
    Ok(super::print(&text)?)
}

/// Ends the program at the first signal: nothing is kept, and reading may wait for a process whose memory
/// is locked, by a file system that does not answer, for example.
fn end_on_signal(signals: &Signals) {
    drop_capabilities();
    let start = Instant::now();
    let mut is_said = false;
    while !signals.pending() {
        thread::sleep(POLL_INTERVAL);
        if !is_said && start.elapsed() > PATIENCE {
            say(
                "still reading; the kernel may wait for the memory of the process. Ctrl-C ends it.",
            );
            is_said = true;
        }
    }
    exit(STOPPED);
}

/// Returns the error if no thread may be read.
fn denied(threads: &[SnapshotThread]) -> Option<StacksError> {
    let mut denied = None;
    for thread in threads {
        match &thread.activity {
            Activity::Unreadable(why) => denied.get_or_insert((thread.pid, why)),
            _ => return None,
        };
    }
    let (pid, why) = denied?;
    Some(StacksError::Denied {
        pid,
        why: why.clone(),
    })
}
