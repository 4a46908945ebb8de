//! The events of .NET runtimes in a trace: one after the other, or as the tables that PerfView calls GCStats and JITStats.

mod archive;
mod gc;
mod jit;
mod list;

use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;
use rustc_hash::FxHashMap;

use archive::Events;

use super::ViewError;
use crate::dotnet::nettrace::Value;
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::{EventStreams, Nanos, Pid, RuntimeEvent};

/// What is shown of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// Summary and top methods.
    #[default]
    #[value(alias = "perf")]
    Report,
    /// Each event of the runtimes.
    #[value(alias = "lttng")]
    Events,
    /// Garbage collections.
    Gc,
    /// Compiled methods.
    Jit,
}

/// Prints the events of the trace at `path`, of all processes or of those with this name or id.
///
/// # Errors
/// [`ViewError`]: the trace has none, cannot be read, or `out` not written to.
pub fn view(
    path: &Path,
    viewer: Viewer,
    process: Option<&str>,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let Events { summary, streams } = archive::read(path)?;
    print(&streams, &summary, viewer, process, out).map_err(ViewError::Print)
}

/// Prints events of a trace with this summary.
///
/// # Errors
/// What `out` returns.
pub fn print(
    streams: &EventStreams,
    summary: &Summary,
    viewer: Viewer,
    process: Option<&str>,
    out: &mut impl Write,
) -> io::Result<()> {
    let processes = Processes::new(summary);
    let wanted = streams
        .iter()
        .filter(|event| processes.is_wanted(event.process, process));
    match viewer {
        Viewer::Gc => gc::print(wanted, &processes, out),
        Viewer::Jit => jit::print(wanted, &processes, out),
        Viewer::Report | Viewer::Events => list::print(wanted, &processes, out),
    }
}

/// Names of the processes, and when the capture began.
struct Processes {
    names: FxHashMap<i32, String>,
    start_ns: u64,
}

impl Processes {
    fn new(summary: &Summary) -> Self {
        let processes = summary.processes.iter();
        Self {
            names: processes
                .map(|process| (process.pid, process.name.clone()))
                .collect(),
            start_ns: summary.info.start_ns,
        }
    }

    fn name(&self, pid: Pid) -> &str {
        self.names.get(&pid.0).map_or("", |name| name)
    }

    fn is_wanted(&self, pid: Pid, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| {
            pid.to_string() == wanted || self.name(pid).eq_ignore_ascii_case(wanted)
        })
    }

    /// Milliseconds since sampling began; events may have come before.
    fn ms(&self, time: Nanos) -> f64 {
        (i128::from(time.0) - i128::from(self.start_ns)) as f64 / 1e6
    }

    /// The line above the table of a process.
    fn heading(&self, pid: Pid, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\nprocess {pid} {}", terminal(self.name(pid)))
    }
}

/// A number in the payload of an event of the runtime, by the name of its field.
fn number(fields: &[(&str, Value<'_>)], name: &str) -> Option<u64> {
    fields.iter().find_map(|(field, value)| match value {
        Value::Unsigned(number) if *field == name => Some(*number),
        _ => None,
    })
}

/// Whether an event is one of the runtime itself while it runs.
fn is_of_runtime(event: &RuntimeEvent) -> bool {
    event.kind.provider == "Microsoft-Windows-DotNETRuntime"
}

/// Whoever sent the events chose the numbers.
fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}
