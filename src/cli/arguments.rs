//! The commands and their options.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use super::event_options::EventOptions;
use super::formats::Formats;
use super::symbols_options::{SymbolsFrom, SymbolsOptions};
use super::values::{scaled, seconds};
use crate::output::NameStyle;
use crate::perf::CallGraph;
use crate::script::Fields;
use crate::symbolize;
use crate::trace::Pid;
use crate::view::events::Viewer;

/// A sampling CPU profiler for Linux: kernel, native and .NET code in one stack.
///
/// Options take one dash or two, in any case: -pid 12, --pid=12, -PID 12.
#[derive(Debug, Parser)]
#[command(name = "perfcollect", version, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    Collect(CollectOptions),
    /// Start a capture in the background; takes the options of collect
    Start(CollectOptions),
    /// Stop a background capture and write its trace; recovers a killed one
    Stop(RecoverOptions),
    Recover(RecoverOptions),
    Convert(ConvertOptions),
    Script(ScriptOptions),
    View(ViewOptions),
    Ps(PsOptions),
    Symbols(SymbolsOptions),
    /// Runs the unprivileged part of `symbols`.
    #[command(hide = true)]
    SymbolsWorker,
}

/// Capture CPU samples and .NET events; write a trace and a flame graph.
///
/// Writes NAME.trace.zip and NAME.nettrace for PerfView and NAME.flamegraph.svg for a browser. Samples the whole system
/// unless -pid or a command is given. Ctrl-C, SIGTERM or -collectsec stops the capture.
#[derive(Args, Debug)]
#[command(after_help = "EXAMPLES\n  \
    perfcollect collect incident -collectsec 10\n  \
    perfcollect collect web -pid 1234\n  \
    perfcollect collect run -- dotnet app.dll")]
pub(super) struct CollectOptions {
    /// Name of the trace, optionally with a directory
    #[arg(value_name = "NAME")]
    pub(super) name: PathBuf,
    /// Sample these processes and their children
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
    /// Sampling frequency in Hz, per busy CPU
    #[arg(
        long,
        value_name = "HZ",
        default_value_t = 999,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    pub(super) freq: u32,
    /// Ring buffer per CPU: pages, or bytes with K, M or G [default: by -freq]
    #[arg(long, value_name = "SIZE", value_parser = buffer_bytes)]
    pub(super) buffersize: Option<usize>,
    /// How to unwind user stacks
    ///
    /// auto: from a stack copy, else by frame pointers. fp: by frame pointers only, which is cheapest and may miss callers.
    /// dwarf[,BYTES]: from a stack copy of at most BYTES.
    #[arg(long, value_name = "auto|fp|dwarf[,BYTES]", default_value = "auto", value_parser = call_graph)]
    pub(super) callgraph: CallGraph,
    /// Sample CPU cycles instead of CPU time, if the CPU has the counter
    #[arg(long)]
    pub(super) hwevents: bool,
    /// Set by `start`
    #[arg(long, hide = true)]
    pub(super) background: bool,
    #[command(flatten)]
    pub(super) events: EventOptions,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
    /// Command to run and sample
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// How addresses are symbolized.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Symbols")]
pub(super) struct SymbolOptions {
    /// Do not resolve inlined functions
    #[arg(long)]
    pub(super) noinline: bool,
    /// Search DIR for debug files first, or `download` missing ones; repeatable
    #[arg(long, value_name = "DIR|download", value_parser = PathBufValueParser::new().try_map(SymbolsFrom::parse))]
    pub(super) symbols: Vec<SymbolsFrom>,
}

impl SymbolOptions {
    pub(super) fn naming(&self) -> symbolize::Options {
        let directories = self.symbols.iter().filter_map(SymbolsFrom::directory);
        symbolize::Options {
            inlined: !self.noinline,
            symbol_directories: directories.cloned().collect(),
        }
    }

    pub(super) fn download(&self) -> bool {
        self.symbols.contains(&SymbolsFrom::Download)
    }
}

/// Which files are written, and what is printed.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputOptions {
    /// Replace an existing trace of this name
    #[arg(long)]
    pub(super) force: bool,
    /// Print errors only
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Show .NET methods as Type.Method in flame graph and folded stacks
    #[arg(long)]
    pub(super) shortnames: bool,
    /// Trace files to write: zip (NAME.trace.zip), nettrace (NAME.nettrace)
    #[arg(long, value_name = "zip,nettrace", default_value = "zip,nettrace")]
    pub(super) format: Formats,
    /// Also write NAME.perf.data and NAME.perf.symbols for perf report and samply
    #[arg(long)]
    pub(super) perfdata: bool,
}

impl OutputOptions {
    /// Returns how flame graph and folded stacks show method names.
    pub(super) fn names(self) -> NameStyle {
        match self.shortnames {
            true => NameStyle::Short,
            false => NameStyle::Full,
        }
    }
}

/// Write the trace of a killed capture from its spool.
#[derive(Args, Debug)]
pub(super) struct RecoverOptions {
    /// Name of the capture
    #[arg(value_name = "NAME")]
    pub(super) name: PathBuf,
    /// Write the trace under this name instead, for example on another disk
    #[arg(short, long, value_name = "NAME")]
    pub(super) output: Option<PathBuf>,
    /// Leave raw event streams (eventpipe/PID.nettrace) out of the trace
    #[arg(long)]
    pub(super) noraw: bool,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
}

/// A perf.data recording, and where its files and kernel symbols are.
#[derive(Args, Clone, Debug)]
pub(super) struct RecordingOptions {
    /// Recording, or - for standard input
    ///
    /// A perf.data file, or the archive that the perfcollect script made of one. `convert` also reads the output of
    /// `perf script`.
    #[arg(value_name = "FILE", default_value = "perf.data")]
    pub(super) recording: PathBuf,
    /// Directory with the recorded host's files, as perf's --symfs
    #[arg(long, value_name = "DIR")]
    pub(super) sysroot: Option<PathBuf>,
    /// Copy of the recorded kernel's /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub(super) kallsyms: Option<PathBuf>,
}

/// Convert a perf.data recording, of this host or another, to a trace.
#[derive(Args, Debug)]
pub(super) struct ConvertOptions {
    #[command(flatten)]
    pub(super) source: RecordingOptions,
    /// Name of the trace [default: the name of the recording]
    #[arg(short, long, value_name = "NAME")]
    pub(super) output: Option<PathBuf>,
    /// Event to import [default: the one that best measures CPU time]
    #[arg(long, value_name = "EVENT")]
    pub(super) event: Option<String>,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
}

/// Print the samples of a perf.data as `perf script` does.
#[derive(Args, Debug)]
pub(super) struct ScriptOptions {
    #[command(flatten)]
    pub(super) source: RecordingOptions,
    /// Recording, as for perf script
    #[arg(short, long, value_name = "FILE", conflicts_with = "recording")]
    pub(super) input: Option<PathBuf>,
    /// Fields to print; +FIELD adds to the default (all), -FIELD removes
    #[arg(short = 'F', long, value_name = "FIELD[,FIELD...]", value_parser = Fields::from_str, allow_hyphen_values = true)]
    pub(super) fields: Option<Fields>,
    /// Do not show inlined functions (shown for --call-graph dwarf)
    #[arg(long)]
    pub(super) no_inline: bool,
    #[command(flatten)]
    pub(super) ignored: IgnoredOptions,
}

/// Options of perf script that are accepted and have no effect.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct IgnoredOptions {
    /// Accepted and ignored: the owner of the recording is not checked
    #[arg(short, long)]
    pub(super) force: bool,
    /// Accepted and ignored: no header is printed
    #[arg(long)]
    pub(super) header: bool,
}

/// Print the summary and top methods of a trace, or its .NET events.
#[derive(Args, Debug)]
pub(super) struct ViewOptions {
    /// Trace to read
    #[arg(value_name = "NAME.trace.zip")]
    pub(super) trace: PathBuf,
    /// Methods to print [default: 20]
    #[arg(long, value_name = "N")]
    pub(super) top: Option<usize>,
    /// What to print: report, events (each event), gc or jit (tables)
    #[arg(
        long,
        value_enum,
        default_value_t,
        ignore_case = true,
        hide_possible_values = true
    )]
    pub(super) viewer: Viewer,
    /// Print events of one process: id, name, or program (with or without .dll)
    #[arg(long, value_name = "NAME|PID")]
    pub(super) processfilter: Option<String>,
}

impl ViewOptions {
    /// Returns an error message if an option does not apply to the viewer.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        match self.viewer {
            Viewer::Report => self
                .processfilter
                .is_some()
                .then_some("-processfilter is for events: it needs -viewer events, gc or jit"),
            _ => self
                .top
                .is_some()
                .then_some("-top is for the methods of the report, not for this -viewer"),
        }
    }
}

/// List .NET processes in all containers and the state of their diagnostic ports.
#[derive(Args, Debug)]
pub(super) struct PsOptions {
    /// Print the list as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Valid sizes of the stack copy, in bytes.
const COPY_BYTES: RangeInclusive<u32> = 8..=CallGraph::MAX_STACK_BYTES;

fn pid(text: &str) -> Result<Pid, String> {
    match text.parse() {
        Ok(pid @ 1..) => Ok(Pid(pid)),
        _ => Err("not a process id: expected a number of 1 or more".into()),
    }
}

fn call_graph(text: &str) -> Result<CallGraph, String> {
    let (kind, bytes) = match text.split_once(',') {
        Some((kind, bytes)) => (kind, Some(bytes)),
        None => (text, None),
    };
    let copied = |bytes: &str| {
        bytes
            .parse()
            .ok()
            .filter(|bytes| COPY_BYTES.contains(bytes))
    };
    match (kind.to_ascii_lowercase().as_str(), bytes) {
        ("auto", None) => Ok(CallGraph::Auto),
        ("fp", None) => Ok(CallGraph::FramePointers),
        ("dwarf", None) => Ok(CallGraph::StackCopy {
            bytes: *COPY_BYTES.end(),
        }),
        ("dwarf", Some(bytes)) => copied(bytes)
            .map(|bytes| CallGraph::StackCopy { bytes })
            .ok_or_else(|| {
                format!(
                    "not a stack copy size: expected {} to {} bytes",
                    COPY_BYTES.start(),
                    COPY_BYTES.end()
                )
            }),
        _ => Err("expected auto, fp, dwarf or dwarf,BYTES".into()),
    }
}

/// Parses a size as perf's `--mmap-pages`: a bare number counts pages.
fn buffer_bytes(text: &str) -> Result<usize, String> {
    let bytes =
        scaled(text, rustix::param::page_size() as u64).and_then(|b| usize::try_from(b).ok());
    bytes.ok_or_else(|| {
        "not a size: expected a number of pages, or bytes such as 512K, 16M or 1G".into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_sizes_with_units() {
        assert_eq!(buffer_bytes("16m"), Ok(16 << 20));
        assert_eq!(buffer_bytes("512K"), Ok(512 << 10));
        assert_eq!(buffer_bytes("4"), Ok(4 * rustix::param::page_size()));
        for bad in [
            "",
            "M",
            "0",
            "-1",
            "1T",
            "99999999999999999999",
            "99999999999999G",
        ] {
            assert!(buffer_bytes(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn call_graphs_have_names_and_sizes() {
        assert_eq!(call_graph("auto"), Ok(CallGraph::Auto));
        assert_eq!(call_graph("FP"), Ok(CallGraph::FramePointers));
        assert_eq!(
            call_graph("dwarf,4096"),
            Ok(CallGraph::StackCopy { bytes: 4096 })
        );
        assert_eq!(call_graph("dwarf").map(CallGraph::stack_bytes), Ok(61_440));
        for bad in [
            "",
            "lbr",
            "auto,1",
            "fp,8",
            "dwarf,",
            "dwarf,7",
            "dwarf,61441",
            "dwarf,8,8",
        ] {
            assert!(call_graph(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
