//! What can be asked for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::trace::Pid;

/// Profiles native, kernel and .NET code on Linux.
///
/// Options may be written with one dash or two, in any case: -pid 12, --pid=12, -PID 12.
#[derive(Debug, Parser)]
#[command(name = "perfcollect", version, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    Collect(CollectOptions),
    View(ViewOptions),
}

/// Sample the CPUs and write NAME.trace.zip (for PerfView) and NAME.flamegraph.svg (for any browser).
///
/// Without -pid and without a command: the whole machine. Ctrl-C, SIGTERM and -collectsec end the capture.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    perfcollect collect incident -collectsec 10\n  \
    perfcollect collect web -pid 1234\n  \
    perfcollect collect run -- dotnet app.dll")]
pub(super) struct CollectOptions {
    /// Name of the trace; may begin with a directory
    #[arg(value_name = "NAME")]
    pub(super) name: PathBuf,
    /// Sample these processes and all their children
    #[arg(
        long,
        value_name = "P[,P...]",
        value_delimiter = ',',
        value_parser = pid,
        conflicts_with = "command"
    )]
    pub(super) pid: Vec<Pid>,
    /// Stop after this many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) collectsec: Option<Duration>,
    /// Samples a second on each busy CPU
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 999,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    pub(super) freq: u32,
    /// Replace the files of an older trace with this name
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Run and sample this command
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Print the summary and the top methods of a trace.
#[derive(Args, Debug)]
pub(super) struct ViewOptions {
    /// The trace
    #[arg(value_name = "NAME.trace.zip")]
    pub(super) trace: PathBuf,
    /// Methods to print
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(super) top: usize,
}

fn pid(text: &str) -> Result<Pid, String> {
    match text.parse() {
        Ok(pid @ 1..) => Ok(Pid(pid)),
        _ => Err("not a process id: a number from 1 up is needed".into()),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|&seconds: &f64| seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            "not a time: a number of seconds above 0 is needed, such as 10 or 2.5".into()
        })
}
