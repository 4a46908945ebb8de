//! The events of .NET runtimes in a trace: one after the other, or as the tables that PerfView calls GCStats and JITStats.

mod archive;
mod columns;
mod fields;
mod gc;
mod jit;
mod list;
mod losses;

use std::io::{self, Write};
use std::path::Path;

use clap::ValueEnum;
use rustc_hash::{FxHashMap, FxHashSet};

pub use archive::CpuSample;
use archive::Events;

use super::ViewError;
use crate::nettrace::Value;
use crate::output::sanitize::{cut, terminal};
use crate::output::summary::Summary;
use crate::trace::{EventStreams, Nanos, Pid, RuntimeEvent};

/// Processes that are named where the wanted one is not there.
const LISTED: usize = 20;
/// Of a command line, what stands above a table, in bytes.
const MAX_COMMAND_LINE_BYTES: usize = 200;

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
    let processes = Processes::new(&summary);
    if let Some(wanted) = process
        && !processes
            .there(&streams)
            .any(|pid| processes.is_wanted(pid, process))
    {
        let there: Vec<_> = processes.there(&streams).take(LISTED).collect();
        let there = there
            .iter()
            .map(|&pid| format!("{pid} {}", processes.name(pid)));
        return Err(ViewError::NoProcess {
            wanted: wanted.into(),
            there: there.collect::<Vec<_>>().join(", "),
        });
    }
    let zero_ns = processes.zero_ns;
    let samples = |take: &mut dyn FnMut(CpuSample)| archive::each_sample(path, zero_ns, take);
    print(&streams, &summary, viewer, process, samples, out)
}

/// Prints events of a trace with this summary, behind what is missing of them. Its samples are handed out by `samples` if they
/// are needed; an error of theirs is printed, too.
///
/// # Errors
/// What `out` returns.
pub fn print(
    streams: &EventStreams,
    summary: &Summary,
    viewer: Viewer,
    process: Option<&str>,
    samples: impl FnOnce(&mut dyn FnMut(CpuSample)) -> Result<(), ViewError>,
    out: &mut impl Write,
) -> Result<(), ViewError> {
    let processes = Processes::new(summary);
    let told = summary.quality.events.iter();
    let told = told.map(|events| Pid(events.pid));
    // Of some the archive may have lost the stream.
    let there = processes.there(streams).chain(told);
    let pids: FxHashSet<Pid> = there
        .filter(|&pid| processes.is_wanted(pid, process))
        .collect();
    losses::print(streams, summary, &pids, out).map_err(ViewError::Print)?;
    let wanted = streams.iter().filter(|event| pids.contains(&event.process));
    match viewer {
        Viewer::Gc => {
            let mut heaps = gc::Heaps::read(wanted);
            if summary.samples > 0
                && let Err(error) = heaps.charge(samples)
            {
                losses::print_no_samples(&error, out).map_err(ViewError::Print)?;
            }
            heaps.print(&processes, out)
        }
        Viewer::Jit => jit::print(wanted, &processes, out),
        Viewer::Report | Viewer::Events => list::print(wanted, &processes, out),
    }
    .map_err(ViewError::Print)
}

/// What the processes are called, and from when PerfView counts.
struct Processes {
    names: FxHashMap<i32, Name>,
    zero_ns: i64,
}

struct Name {
    name: String,
    command_line: String,
    /// Milliseconds of CPU time.
    cpu_ms: f64,
}

impl Name {
    /// Whether it is called so: its name, or its program, which for `dotnet` is what it runs, with or without `.dll`. An
    /// argument is not what a process is called.
    fn is(&self, wanted: &str) -> bool {
        const HOST: &str = "dotnet";
        let is = |name: &str| name.eq_ignore_ascii_case(wanted);
        let mut files = self.command_line.split(' ').map(|word| {
            let file = word.rsplit('/').next();
            file.unwrap_or(word)
        });
        let program = files.next().unwrap_or_default();
        let hosted = files.find_map(|file| Some((file, file.strip_suffix(".dll")?)));
        let hosted = hosted.filter(|_| program == HOST);
        is(&self.name) || is(program) || hosted.is_some_and(|(file, name)| is(file) || is(name))
    }
}

impl Processes {
    fn new(summary: &Summary) -> Self {
        let processes = summary.processes.iter();
        Self {
            names: processes
                .map(|process| {
                    let name = Name {
                        name: process.name.clone(),
                        command_line: process.command_line.clone(),
                        cpu_ms: process.cpu_ms,
                    };
                    (process.pid, name)
                })
                .collect(),
            zero_ns: summary.time_zero_ns.unwrap_or(summary.info.start_ns as i64),
        }
    }

    fn name(&self, pid: Pid) -> &str {
        self.names.get(&pid.0).map_or("", |name| &name.name)
    }

    /// Milliseconds of CPU time that its samples stand for; `None`: it has none.
    fn cpu_ms(&self, pid: Pid) -> Option<f64> {
        let cpu_ms = self.names.get(&pid.0)?.cpu_ms;
        (cpu_ms > 0.0).then_some(cpu_ms)
    }

    /// Those with a stream.
    fn there(&self, streams: &EventStreams) -> impl Iterator<Item = Pid> {
        streams.streams().iter().map(|stream| stream.process)
    }

    fn is_wanted(&self, pid: Pid, wanted: Option<&str>) -> bool {
        wanted.is_none_or(|wanted| match wanted.parse() {
            Ok(id) => pid == Pid(id),
            Err(_) => self.names.get(&pid.0).is_some_and(|name| name.is(wanted)),
        })
    }

    /// Milliseconds since time zero, as PerfView shows them.
    fn ms(&self, time: Nanos) -> f64 {
        (i128::from(time.0) - i128::from(self.zero_ns)) as f64 / 1e6
    }

    /// The line above the table of a process.
    fn heading(&self, pid: Pid, out: &mut impl Write) -> io::Result<()> {
        let command_line = self.names.get(&pid.0).map_or("", |name| &name.command_line);
        let command_line = cut(command_line, MAX_COMMAND_LINE_BYTES);
        write!(out, "\nprocess {pid} {}", terminal(self.name(pid)))?;
        match command_line {
            "" => writeln!(out),
            command_line => writeln!(out, " - {}", terminal(command_line)),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_called_by_its_id_name_or_program() {
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
        };
        for (wanted, found) in [
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
            let is_wanted = |pid: &i32| processes.is_wanted(Pid(*pid), Some(wanted));
            let pids: Vec<i32> = [7, 8, 9].into_iter().filter(is_wanted).collect();
            assert_eq!(pids, found, "{wanted}");
        }
    }
}
