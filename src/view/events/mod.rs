//! The events of .NET runtimes in a trace: as a list, or as PerfView's GCStats and JITStats tables.

mod archive;
mod columns;
mod fields;
mod gc;
mod jit;
mod list;
mod losses;
mod selection;

use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;
use rustc_hash::{FxHashMap, FxHashSet};

pub use crate::history::CpuSample;
use archive::Events;
pub use selection::{EventFilter, EventSelection};

use super::ViewError;
use crate::output::sanitize::{terminal, truncate};
use crate::output::summary::{Summary, is_program};
use crate::trace::{EventStreams, Nanos, Pid, Trace};

/// Maximum number of processes listed when the requested one is not found.
const MAX_LISTED: usize = 20;
/// Maximum length of a command line above a table, in bytes.
const MAX_COMMAND_LINE_BYTES: usize = 200;

/// View of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Viewer {
    /// Summary and top methods.
    #[default]
    #[value(alias = "perf")]
    Report,
    /// Callers with their callees.
    #[value(name = "calltree", alias = "tree")]
    CallTree,
    /// Each event of the runtimes.
    #[value(alias = "lttng")]
    Events,
    /// Garbage collections.
    Gc,
    /// Compiled methods.
    Jit,
}

/// Reads the event streams of the trace at `path`.
///
/// # Errors
/// Returns [`ViewError::NoEvents`] if it has none, and an error if it cannot be read.
pub fn streams(path: &Path) -> Result<EventStreams, ViewError> {
    archive::read(path).map(|events| events.streams)
}

/// What to print.
#[derive(Clone, Copy, Debug)]
pub struct EventView<'a> {
    /// Which view.
    pub viewer: Viewer,
    /// Name or id of the processes; `None` for all.
    pub process: Option<&'a str>,
    /// Which events a list shows.
    pub selection: &'a EventSelection,
}

/// Prints the events of the trace at `path`: those of all processes, or of those with a name or id.
///
/// # Errors
/// Returns an error if the trace has no such events or cannot be read, or `out` cannot be written
/// to.
pub fn view(path: &Path, wanted: EventView<'_>, out: &mut impl Write) -> Result<(), ViewError> {
    let Events { summary, streams } = archive::read(path)?;
    check_process(&summary, &streams, wanted.process)?;
    let zero_ns = Processes::new(&summary).zero_ns;
    let samples = |take: &mut dyn FnMut(CpuSample)| archive::each_sample(path, zero_ns, take);
    print(&streams, &summary, wanted, samples, out)
}

/// Returns the summary of a trace of an event stream. PerfView's views start at its session.
pub(super) fn summary(trace: &Trace) -> Summary {
    let mut summary = Summary::new(trace);
    summary.time_zero_ns = i64::try_from(trace.info.start_ns).ok();
    summary
}

/// Prints the events of an event stream.
///
/// # Errors
/// Returns an error if the stream is of another process, or `out` cannot be written to.
pub fn view_stream(
    trace: &Trace,
    wanted: EventView<'_>,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let summary = summary(trace);
    check_process(&summary, &trace.events, wanted.process)?;
    print(&trace.events, &summary, wanted, |_| Ok(()), out)
}

/// Fails if no process with this id or name has a stream.
pub(super) fn check_process(
    summary: &Summary,
    streams: &EventStreams,
    process: Option<&str>,
) -> Result<(), ViewError> {
    let Some(selector) = process else {
        return Ok(());
    };
    let processes = Processes::new(summary);
    let mut with_stream = processes.with_stream(streams);
    if with_stream.any(|pid| processes.is_selected(pid, process)) {
        return Ok(());
    }
    let available: Vec<_> = processes.with_stream(streams).take(MAX_LISTED).collect();
    let available = available
        .iter()
        .map(|&pid| format!("{pid} {}", processes.name(pid)));
    Err(ViewError::NoProcess {
        process: selector.into(),
        available: available.collect::<Vec<_>>().join(", "),
    })
}

/// Prints the losses of events, then the events of a trace with this summary.
///
/// `samples` passes the samples of the trace to its argument. It is called only if they are needed,
/// and its error is printed.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn print(
    streams: &EventStreams,
    summary: &Summary,
    wanted: EventView<'_>,
    samples: impl FnOnce(&mut dyn FnMut(CpuSample)) -> Result<(), ViewError>,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let EventView {
        viewer,
        process,
        selection,
    } = wanted;
    let processes = Processes::new(summary);
    let recorded = summary.quality.events.iter();
    let recorded = recorded.map(|events| Pid(events.pid));
    // The archive may lack the stream of a process.
    let available = processes.with_stream(streams).chain(recorded);
    let pids: FxHashSet<Pid> = available
        .filter(|&pid| processes.is_selected(pid, process))
        .collect();
    losses::print(streams, summary, &pids, out).map_err(ViewError::Print)?;
    let top = selection.top.unwrap_or(usize::MAX);
    let events = streams.iter().filter(|event| pids.contains(&event.process));
    match viewer {
        Viewer::Gc => {
            let mut heaps = gc::Heaps::read(events);
            if summary.samples > 0
                && summary.info.counts_time()
                && let Err(error) = heaps.charge(samples)
            {
                losses::print_no_samples(&error, out).map_err(ViewError::Print)?;
            }
            heaps.print(&processes, top, out)
        }
        Viewer::Jit => jit::print(events, &processes, top, out),
        Viewer::Report | Viewer::CallTree | Viewer::Events => {
            list::print(events, selection, &processes, out)
        }
    }
    .map_err(ViewError::Print)
}

/// Names of the processes, and the time zero of PerfView's views.
struct Processes {
    names: FxHashMap<i32, Name>,
    zero_ns: i64,
    /// Start of the capture, on the clock of the trace.
    start_ns: u64,
}

struct Name {
    name: String,
    command_line: String,
    /// CPU time in milliseconds.
    cpu_ms: f64,
}

impl Processes {
    fn new(summary: &Summary) -> Self {
        let processes = summary.processes.iter();
        let counts_time = summary.info.counts_time();
        Self {
            names: processes
                .map(|process| {
                    let name = Name {
                        name: process.name.clone(),
                        command_line: process.command_line.clone(),
                        cpu_ms: if counts_time { process.cpu_ms } else { 0.0 },
                    };
                    (process.pid, name)
                })
                .collect(),
            zero_ns: summary.time_zero_ns.unwrap_or(summary.info.start_ns as i64),
            start_ns: summary.info.start_ns,
        }
    }

    fn name(&self, pid: Pid) -> &str {
        self.names.get(&pid.0).map_or("", |name| &name.name)
    }

    /// Returns the CPU time of the process in milliseconds, or `None` if the process has no
    /// samples.
    fn cpu_ms(&self, pid: Pid) -> Option<f64> {
        let cpu_ms = self.names.get(&pid.0)?.cpu_ms;
        (cpu_ms > 0.0).then_some(cpu_ms)
    }

    /// Returns the processes that have a stream.
    fn with_stream(&self, streams: &EventStreams) -> impl Iterator<Item = Pid> {
        streams.streams().iter().map(|stream| stream.name.process)
    }

    fn is_selected(&self, pid: Pid, selector: Option<&str>) -> bool {
        selector.is_none_or(|selector| match selector.parse() {
            Ok(id) => pid == Pid(id),
            Err(_) => self
                .names
                .get(&pid.0)
                .is_some_and(|name| is_program(&name.name, &name.command_line, selector)),
        })
    }

    /// Returns the milliseconds since time zero, as PerfView shows them.
    fn ms(&self, time: Nanos) -> f64 {
        (i128::from(time.0) - i128::from(self.zero_ns)) as f64 / 1e6
    }

    /// Returns the milliseconds since the start of the capture.
    fn ms_of_capture(&self, time: Nanos) -> f64 {
        (i128::from(time.0) - i128::from(self.start_ns)) as f64 / 1e6
    }

    /// Prints the heading above the table of a process.
    fn heading(&self, pid: Pid, out: &mut impl Write) -> io::Result<()> {
        let command_line = self.names.get(&pid.0).map_or("", |name| &name.command_line);
        let command_line = truncate(command_line, MAX_COMMAND_LINE_BYTES);
        write!(out, "\nprocess {pid} {}", terminal(self.name(pid)))?;
        match command_line {
            "" => writeln!(out),
            command_line => writeln!(out, " - {}", terminal(command_line)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_process_by_id_name_or_program() {
        let names = [
            (
                7,
                "dotnet",
                "/usr/bin/dotnet exec /srv/Shop.dll --port 8 other.dll",
            ),
            (8, ".NET TP Worker", "/srv/Bill --shop Shop"),
            (9, "cat", "cat dotnet Shop.dll"),
        ];
        let name = |(pid, name, command_line): (i32, &str, &str)| {
            let name = Name {
                name: name.to_owned(),
                command_line: command_line.to_owned(),
                cpu_ms: 0.0,
            };
            (pid, name)
        };
        let processes = Processes {
            names: names.map(name).into_iter().collect(),
            zero_ns: 0,
            start_ns: 0,
        };
        for (selector, expected) in [
            ("7", &[7][..]),
            ("8", &[8]),
            ("shop", &[7]),
            ("Shop.dll", &[7]),
            ("dotnet", &[7]),
            ("bill", &[8]),
            (".NET TP Worker", &[8]),
            ("other", &[]),
            ("--port", &[]),
            ("cat", &[9]),
        ] {
            let is_selected = |pid: &i32| processes.is_selected(Pid(*pid), Some(selector));
            let pids: Vec<i32> = [7, 8, 9].into_iter().filter(is_selected).collect();
            assert_eq!(pids, expected, "{selector}");
        }
    }
}
