//! What can be asked for.

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
    /// Begin a capture in the background; the options are those of collect
    Start(CollectOptions),
    /// End the capture of this name and wait for its trace; one that was killed is recovered
    Stop(RecoverOptions),
    Recover(RecoverOptions),
    Convert(ConvertOptions),
    Script(ScriptOptions),
    View(ViewOptions),
    Ps(PsOptions),
    Symbols(SymbolsOptions),
    /// The part of `symbols` that has no privileges.
    #[command(hide = true)]
    SymbolsWorker,
}

/// Sample the CPUs, take the events of .NET runtimes, and write NAME.trace.zip and NAME.nettrace (for PerfView) and NAME.flamegraph.svg (for any browser).
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
    /// Size of each CPU's ring: pages, or bytes with K, M or G; by default it follows -freq
    #[arg(long, value_name = "SIZE", value_parser = buffer_bytes)]
    pub(super) buffersize: Option<usize>,
    /// Where callers come from: auto (a copy of the stack, then frame pointers), fp (frame pointers alone: cheapest, but
    /// callers may be missing) or dwarf[,BYTES] (a copy of the stack of at most BYTES)
    #[arg(long, value_name = "auto|fp|dwarf[,BYTES]", default_value = "auto", value_parser = call_graph)]
    pub(super) callgraph: CallGraph,
    /// Sample the CPU's cycles instead of its time, where it has a counter
    #[arg(long)]
    pub(super) hwevents: bool,
    /// As `start` starts it
    #[arg(long, hide = true)]
    pub(super) background: bool,
    #[command(flatten)]
    pub(super) events: EventOptions,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
    /// Run and sample this command
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// How functions get their names.
#[derive(Args, Clone, Debug)]
pub(super) struct SymbolOptions {
    /// Leave out functions that were inlined: show only the functions their code is in
    #[arg(long)]
    pub(super) noinline: bool,
    /// Look for debug files (FILE.debug, FILE.dbg, .build-id/ab/cdef.debug) in this directory first, or get those that are
    /// nowhere from servers before the trace is made, as `perfcollect symbols` does; may be given several times
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

/// What becomes of a trace.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct OutputOptions {
    /// Replace the files of an older trace with this name
    #[arg(long)]
    pub(super) force: bool,
    /// Print nothing but errors
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Call .NET methods Type.Method in the flame graph and the folded stacks
    #[arg(long)]
    pub(super) shortnames: bool,
    /// What to write beside the flame graph: zip (NAME.trace.zip), nettrace (NAME.nettrace: samples and events on one
    /// timeline) or both
    #[arg(long, value_name = "zip,nettrace", default_value = "zip,nettrace")]
    pub(super) format: Formats,
    /// Write NAME.perf.data, too, with the names of its functions in NAME.perf.symbols: for perf report and samply
    #[arg(long)]
    pub(super) perfdata: bool,
}

impl OutputOptions {
    /// How methods are called in pictures of stacks.
    pub(super) fn names(self) -> NameStyle {
        match self.shortnames {
            true => NameStyle::Short,
            false => NameStyle::Full,
        }
    }
}

/// Make the trace of a capture that was killed, from the spool it left beside its output.
#[derive(Args, Debug)]
pub(super) struct RecoverOptions {
    /// Name the capture was given
    #[arg(value_name = "NAME")]
    pub(super) name: PathBuf,
    /// Write the trace under this name instead, on another disk perhaps
    #[arg(short, long, value_name = "NAME")]
    pub(super) output: Option<PathBuf>,
    /// Do not keep the streams of events as they came (eventpipe/PID.nettrace) in the trace
    #[arg(long)]
    pub(super) noraw: bool,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
}

/// Where a recording of perf's is, and what names its code.
#[derive(Args, Clone, Debug)]
pub(super) struct RecordingOptions {
    /// What `perf record` wrote (- for standard input), or the archive that the original perfcollect made of it; for `convert` also what `perf script` printed
    #[arg(value_name = "FILE", default_value = "perf.data")]
    pub(super) recording: PathBuf,
    /// Take the recorded machine's files from below this directory
    #[arg(long, value_name = "DIR")]
    pub(super) sysroot: Option<PathBuf>,
    /// Take the kernel's functions from this copy of its /proc/kallsyms
    #[arg(long, value_name = "FILE")]
    pub(super) kallsyms: Option<PathBuf>,
}

/// Make the trace of a perf.data that perf has recorded, here or elsewhere.
#[derive(Args, Debug)]
pub(super) struct ConvertOptions {
    #[command(flatten)]
    pub(super) source: RecordingOptions,
    /// Name of the trace; by default that of the recording
    #[arg(short, long, value_name = "NAME")]
    pub(super) output: Option<PathBuf>,
    /// Take the samples of this event; by default those that tell best where time went
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
    /// The recording, as perf script takes it
    #[arg(short, long, value_name = "FILE", conflicts_with = "recording")]
    pub(super) input: Option<PathBuf>,
    /// What to print; +FIELD adds to what is printed by default (all), -FIELD leaves out
    #[arg(short = 'F', long, value_name = "FIELD[,FIELD...]", value_parser = Fields::from_str, allow_hyphen_values = true)]
    pub(super) fields: Option<Fields>,
    /// Leave out the functions that were inlined (shown in stacks of --call-graph dwarf)
    #[arg(long)]
    pub(super) no_inline: bool,
    #[command(flatten)]
    pub(super) ignored: IgnoredOptions,
}

/// Options of perf script that change nothing here.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct IgnoredOptions {
    /// As perf script has it: whose the recording is does not matter
    #[arg(short, long)]
    pub(super) force: bool,
    /// As perf script has it: no header is shown
    #[arg(long)]
    pub(super) header: bool,
}

/// Print what is in a trace: the summary and the top methods, or the events of its .NET runtimes.
#[derive(Args, Debug)]
pub(super) struct ViewOptions {
    /// The trace
    #[arg(value_name = "NAME.trace.zip")]
    pub(super) trace: PathBuf,
    /// Methods to print [default: 20]
    #[arg(long, value_name = "N")]
    pub(super) top: Option<usize>,
    /// What to print: the report, each event, or the tables of garbage collections and compiled methods
    #[arg(long, value_enum, default_value_t, ignore_case = true)]
    pub(super) viewer: Viewer,
    /// Events of this process only: its id, its name, or its program with or without .dll
    #[arg(long, value_name = "NAME|PID")]
    pub(super) processfilter: Option<String>,
}

impl ViewOptions {
    /// What is asked for besides that the viewer does not have.
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

/// List the .NET processes of the machine, in all containers, and say why one cannot be asked for its events.
#[derive(Args, Debug)]
pub(super) struct PsOptions {
    /// Print the list as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Bytes of stack that can be copied.
const COPY_BYTES: RangeInclusive<u32> = 8..=CallGraph::MAX_STACK_BYTES;

fn pid(text: &str) -> Result<Pid, String> {
    match text.parse() {
        Ok(pid @ 1..) => Ok(Pid(pid)),
        _ => Err("not a process id: a number from 1 up is needed".into()),
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
                    "not a size of a stack copy: {} to {} bytes are possible",
                    COPY_BYTES.start(),
                    COPY_BYTES.end()
                )
            }),
        _ => Err("auto, fp, dwarf or dwarf,BYTES is needed".into()),
    }
}

/// As perf's --mmap-pages: a bare number counts pages.
fn buffer_bytes(text: &str) -> Result<usize, String> {
    let bytes =
        scaled(text, rustix::param::page_size() as u64).and_then(|b| usize::try_from(b).ok());
    bytes
        .ok_or_else(|| "not a size: a number of pages, or such as 512K, 16M or 1G is needed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
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
