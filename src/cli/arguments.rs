//! The commands and their options.

use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser};
use clap::{ArgGroup, Args, Parser, Subcommand};

use super::diff::DiffOptions;
use super::event_options::EventOptions;
use super::formats::Formats;
use super::report::ReportOptions;
use super::selection_options::SelectionOptions;
use super::shell::{CompletionsOptions, ManOptions};
use super::stacks::StacksOptions;
use super::symbols_options::{SymbolsFrom, SymbolsOptions};
use super::symptom_options;
use super::top::TopOptions;
use super::values::{cpu_share, scaled, seconds};
use crate::capture::DiskBudget;
use crate::output::NameStyle;
use crate::output::file::FileOwner;
use crate::perf::CallGraph;
use crate::script::Fields;
use crate::symbolize;
use crate::trace::{Pid, Symptom};
use crate::view::events::{EventFilter, Viewer};

/// A sampling CPU profiler for Linux: kernel, native and .NET code in one stack.
///
/// Write long options with one dash or two, in upper or lower case: -pid 12, -PID 12 and --pid=12 are the same.
#[derive(Debug, Parser)]
#[command(name = "perfcollect", version, disable_help_subcommand = true)]
pub(super) struct Arguments {
    #[command(subcommand)]
    pub(super) action: Action,
}

#[derive(Debug, Subcommand)]
pub(super) enum Action {
    Collect(CollectOptions),
    /// Start a capture in the background; takes the options of `collect`
    ///
    /// Returns when the capture has started. `perfcollect stop NAME`, or -collectsec, stops the capture and writes the
    /// files that `collect` writes.
    #[command(help_template = EXAMPLES_FIRST, after_help = START_EXAMPLES)]
    Start(CollectOptions),
    /// Stop a background capture and write its trace, also if it was killed
    ///
    /// A capture that still runs is written with the options of `start`. The options below are for one that was killed.
    Stop(RecoverOptions),
    Recover(RecoverOptions),
    Convert(ConvertOptions),
    Script(ScriptOptions),
    View(ViewOptions),
    Report(ReportOptions),
    Diff(DiffOptions),
    Top(TopOptions),
    Stacks(StacksOptions),
    Ps(PsOptions),
    Symbols(SymbolsOptions),
    Completions(CompletionsOptions),
    Man(ManOptions),
    /// Runs the unprivileged part of `symbols`.
    #[command(hide = true)]
    SymbolsWorker,
}

/// Help of a command: the examples before the options.
pub(super) const EXAMPLES_FIRST: &str =
    "{about-with-newline}\n{usage-heading} {usage}{after-help}\n\n{all-args}";

/// Options of which some follow the waits of threads.
const FOLLOWS_WAITS: &str = "waits";

const START_EXAMPLES: &str = "EXAMPLES\n  \
    perfcollect start incident\n  \
    perfcollect start web -pid 1234 -collectsec 600\n  \
    perfcollect stop incident";

/// Capture CPU samples and .NET events; write a trace and a flame graph.
///
/// Writes NAME.trace.zip and NAME.nettrace for PerfView and NAME.flamegraph.svg for a browser. Samples the whole system
/// unless -pid or a command is given. Ctrl-C, SIGTERM, -collectsec or -maxsize stops the capture.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new(FOLLOWS_WAITS).multiple(true))]
#[command(help_template = EXAMPLES_FIRST, after_help = "EXAMPLES\n  \
    perfcollect collect incident -collectsec 10\n  \
    perfcollect collect web -pid 1234\n  \
    perfcollect collect web -pid 1234 -for slow-requests -collectsec 10\n  \
    perfcollect collect run -- dotnet app.dll")]
pub(super) struct CollectOptions {
    /// Name of the files to write, optionally with a directory [default: PROGRAM_DATE_TIME]
    #[arg(value_name = "NAME")]
    pub(super) name: Option<PathBuf>,
    /// Command to run and sample; the capture ends with it
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
    /// Sample these processes and their children
    #[arg(
        short,
        long,
        alias = "process-id",
        value_name = "P[,P...]",
        value_delimiter = ',',
        value_parser = pid,
        conflicts_with = "command"
    )]
    pub(super) pid: Vec<Pid>,
    /// Sample the processes with this name or program, such as app.dll, and their children
    #[arg(
        short = 'n',
        long = "name",
        value_name = "PROCESS",
        value_parser = NonEmptyStringValueParser::new(),
        conflicts_with_all = ["command", "pid"]
    )]
    pub(super) process_name: Option<String>,
    /// Stop after this many seconds, or after 10s, 1m, 00:00:30
    #[arg(long, alias = "duration", value_name = "SECONDS", value_parser = seconds)]
    pub(super) collectsec: Option<Duration>,
    /// Choose what to record by a symptom: slow-requests, hang, memory-leak, ...
    #[arg(
        long = "for",
        value_name = "SYMPTOM",
        value_enum,
        ignore_case = true,
        hide_possible_values = true,
        long_help = symptom_options::long_help(),
        group = FOLLOWS_WAITS
    )]
    pub(super) symptom: Option<Symptom>,
    /// Same as NAME, spelled as in perf and dotnet-trace
    #[arg(short, long, value_name = "NAME", conflicts_with = "name")]
    pub(super) output: Option<PathBuf>,
    /// Stop before all files need SIZE, such as 2G; 0: no limit [default: half of the free space]
    ///
    /// Counts the temporary files and an estimate of the trace that is made of them, which is mostly smaller. A bare
    /// number is bytes.
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = file_size)]
    pub(super) maxsize: Option<u64>,
    /// Sampling frequency in Hz, per busy CPU
    #[arg(
        short = 'F',
        long,
        alias = "frequency",
        value_name = "HZ",
        default_value_t = 999,
        value_parser = clap::value_parser!(u32).range(1..=20_000)
    )]
    pub(super) freq: u32,
    /// Size of the ring buffer of each CPU, such as 4M; a larger one loses fewer samples
    ///
    /// Bytes with K, M or G, else pages. By default the buffer holds 200 ms of samples, with at most 512 MiB for all CPUs.
    #[arg(hide_short_help = true, long, value_name = "SIZE", value_parser = buffer_bytes)]
    pub(super) buffersize: Option<usize>,
    /// How to unwind user stacks, as perf's --call-graph
    ///
    /// auto: by unwind information in a copy of the stack, else by frame pointers. fp: by frame pointers only, which is
    /// cheapest but misses callers of code without them. dwarf[,BYTES]: by unwind information only, in a copy of at most
    /// BYTES.
    #[arg(hide_short_help = true, long, value_name = "auto|fp|dwarf[,BYTES]", default_value = "auto", value_parser = call_graph)]
    pub(super) callgraph: CallGraph,
    /// Count instructions, cache and branch misses; sample CPU cycles, if the CPU has the counters
    ///
    /// Counts are per process that -pid, -name or a command names, or of the whole system. A machine without counters,
    /// such as most virtual machines, gets a notice, and CPU time is sampled as always.
    #[arg(hide_short_help = true, long)]
    pub(super) hwevents: bool,
    /// Also follow where threads spend the time without a CPU: locks, sockets, files, sleep, ...
    #[arg(long, aliases = ["offcpu", "off-cpu", "wall"], group = FOLLOWS_WAITS)]
    pub(super) threadtime: bool,
    /// CPU time that -threadtime may take at most, in percent of a CPU: 0.1 to 100
    ///
    /// A larger one lets it look at more threads as often, every 2 ms on average: it is better known where they wait. The
    /// time that they wait is exact with any.
    #[arg(
        hide_short_help = true,
        long,
        value_name = "PERCENT",
        default_value = "2",
        requires = FOLLOWS_WAITS,
        value_parser = cpu_share
    )]
    pub(super) budget: f64,
    /// Also sample page faults: which code touches memory for the first time
    ///
    /// At most -freq samples a second on each CPU, each with the number of faults that it stands for: report -kind faults.
    /// Needs no privilege.
    #[arg(
        hide_short_help = true,
        long,
        aliases = ["page-faults", "pagefaults"],
        conflicts_with_all = ["noperf", "gccollectonly", "gconly", "gcwithheap"]
    )]
    pub(super) faults: bool,
    /// Also sample which code ends the waits of threads: who wakes whom; needs root
    ///
    /// At most -freq samples a second on each CPU, each with the number of wake-ups that it stands for: report -kind wakeups.
    #[arg(
        hide_short_help = true,
        long,
        aliases = ["wakeup", "wake-ups"],
        conflicts_with_all = ["noperf", "gccollectonly", "gconly", "gcwithheap"]
    )]
    pub(super) wakeups: bool,
    /// Also follow requests to disks: how many, how large, how long; needs root
    ///
    /// By device and by the process that issues them, with the median and the 99th percentile of their times: report -kind io.
    #[arg(hide_short_help = true, long, aliases = ["blockio", "block-io", "diskio"])]
    pub(super) io: bool,
    /// Also follow TCP connections: with whom, how much, how long they take to open, what is sent again
    ///
    /// By process and address: report -kind connections. Attempts to connect need root.
    #[arg(hide_short_help = true, long, aliases = ["network", "tcp", "connections"])]
    pub(super) net: bool,
    /// Count page faults, context switches and moves between CPUs
    #[arg(hide_short_help = true, long)]
    pub(super) system: bool,
    /// Set by `start`
    #[arg(long, hide = true)]
    pub(super) background: bool,
    /// Set by `top`: prints the summary as JSON, and writes nothing
    #[arg(long, hide = true)]
    pub(super) summary_only: bool,
    #[command(flatten)]
    pub(super) anyhow: AnyhowOptions,
    #[command(flatten)]
    pub(super) events: EventOptions,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
}

/// Options of perf and dotnet-trace for what is done anyhow.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct AnyhowOptions {
    /// The whole machine is the default
    #[arg(short, long, hide = true, conflicts_with_all = ["pid", "process_name", "command"])]
    all_cpus: bool,
    /// Samples have stacks
    #[arg(short = 'g', hide = true)]
    stacks: bool,
    /// A command has the terminal
    #[arg(long, hide = true)]
    show_child_io: bool,
}

/// How addresses are symbolized.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Symbols")]
pub(super) struct SymbolOptions {
    /// Count inlined functions as part of the functions that contain them
    #[arg(hide_short_help = true, long)]
    pub(super) noinline: bool,
    /// Search DIR first for debug files, or `download` missing ones from servers; repeatable
    #[arg(long, value_name = "DIR|download", value_parser = PathBufValueParser::new().try_map(SymbolsFrom::parse))]
    pub(super) symbols: Vec<SymbolsFrom>,
}

impl SymbolOptions {
    pub(super) fn naming(&self) -> symbolize::Options {
        let directories = self.symbols.iter().filter_map(SymbolsFrom::directory);
        symbolize::Options {
            inlined: !self.noinline,
            symbol_directories: directories.cloned().collect(),
            invoking_user: FileOwner::invoking_user().map(|owner| owner.uid.as_raw()),
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
    /// Show .NET methods as Type.Method, without namespace and parameters, in the flame graph
    ///
    /// The entry stacks.folded of the trace has the short names, too. The summary keeps the full names.
    #[arg(hide_short_help = true, long)]
    pub(super) shortnames: bool,
    /// Trace files to write, and files for other viewers: speedscope, pprof, firefox, chromium, folded, csv
    ///
    /// zip is NAME.trace.zip, nettrace is NAME.nettrace. Without either in the list, both are written. The others are
    /// named as `convert` names them: NAME.speedscope.json, NAME.pb.gz, ...
    #[arg(
        hide_short_help = true,
        long,
        value_name = "F[,F...]",
        default_value = "zip,nettrace"
    )]
    pub(super) format: Formats,
    /// Also write NAME.perf.data and NAME.perf.symbols for perf report and samply
    #[arg(hide_short_help = true, long)]
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

/// Write the trace of a capture that was killed.
///
/// While a capture runs, its samples are in a temporary file, .NAME.trace.spool. The file remains if perfcollect is
/// killed, the machine restarts or the disk is full. `recover` makes the trace from it.
#[derive(Args, Debug)]
pub(super) struct RecoverOptions {
    /// NAME given to `collect` or `start`
    #[arg(value_name = "NAME")]
    pub(super) name: PathBuf,
    /// Write the trace under this name instead, for example on another disk
    #[arg(short, long, value_name = "NAME")]
    pub(super) output: Option<PathBuf>,
    /// Leave the raw event streams out of NAME.trace.zip: smaller, but `view` has no events
    ///
    /// They are the entries eventpipe/PID.nettrace, one or two per .NET process. NAME.nettrace still has the events.
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
    /// Recording to read, or - for standard input
    #[arg(value_name = "FILE", default_value = "perf.data")]
    pub(super) recording: PathBuf,
    /// Directory with the files of the recorded machine, as perf's --symfs
    #[arg(long, value_name = "DIR")]
    pub(super) sysroot: Option<PathBuf>,
    /// Copy of /proc/kallsyms of the recorded machine
    #[arg(long, value_name = "FILE")]
    pub(super) kallsyms: Option<PathBuf>,
}

/// Convert a perf.data recording, from this machine or another, to a trace.
#[derive(Args, Clone, Debug)]
#[command(mut_arg("recording", |recording| recording.long_help(
    "Recording to read, or - for standard input\n\n\
     A perf.data file or directory, the NAME.trace.zip of Microsoft's perfcollect script, the text that \
     `perf script` printed, or a NAME.trace.zip of perfcollect, to write its files in other formats."
)))]
pub(super) struct ConvertOptions {
    #[command(flatten)]
    pub(super) source: RecordingOptions,
    /// Name of the trace [default: the name of the recording], or one file for another viewer
    ///
    /// The suffix of the file says which: .speedscope.json, .pb.gz or .pprof (pprof), .firefox.json or .profile.json
    /// (Firefox Profiler, Perfetto), .folded, .svg (flame graph), .chromium.json (as of dotnet-trace), .csv (functions).
    /// Those of JSON and .folded may end in .gz.
    #[arg(short, long, value_name = "NAME|FILE")]
    pub(super) output: Option<PathBuf>,
    /// Tell threads apart by name, in .svg and .folded
    #[arg(long)]
    pub(super) threads: bool,
    /// Event whose samples to import [default: the one that best measures CPU time]
    #[arg(long, value_name = "EVENT")]
    pub(super) event: Option<String>,
    #[command(flatten)]
    pub(super) names: SymbolOptions,
    #[command(flatten)]
    pub(super) results: OutputOptions,
    #[command(flatten)]
    pub(super) selection: SelectionOptions,
}

/// Print the samples of a perf.data recording as `perf script` does.
#[derive(Args, Debug)]
#[command(mut_arg("recording", |recording| recording.long_help(
    "Recording to read, or - for standard input\n\n\
     A perf.data file or directory, or the NAME.trace.zip of Microsoft's perfcollect script."
)))]
pub(super) struct ScriptOptions {
    #[command(flatten)]
    pub(super) source: RecordingOptions,
    /// Same as FILE, spelled as in perf script
    #[arg(short, long, value_name = "FILE", conflicts_with = "recording")]
    pub(super) input: Option<PathBuf>,
    /// Fields to print, or -FIELD for all but this one [default: all]
    ///
    /// Fields: comm,pid,tid,cpu,time,period,event,ip,sym,dso,trace. `-F sym,dso` prints two fields, `-F -period` all but
    /// one. +FIELD is accepted as in perf.
    #[arg(short = 'F', long, value_name = "FIELD[,FIELD...]", value_parser = Fields::from_str, allow_hyphen_values = true)]
    pub(super) fields: Option<Fields>,
    /// Leave out inlined functions, which only recordings with --call-graph dwarf show
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

/// Print the summary and top methods of a trace or a recording of perf, or the .NET events of a trace.
#[derive(Args, Debug)]
pub(super) struct ViewOptions {
    /// Trace to print, perf.data, or a stream of dotnet-trace
    #[arg(value_name = "NAME.trace.zip")]
    pub(super) trace: PathBuf,
    /// Number of rows of each table, or of events [default: 20; of events, those of a screen, or all]
    #[arg(long, value_name = "N")]
    pub(super) top: Option<usize>,
    /// Print all tables and rows to a terminal too, each function without a name in a row
    #[arg(long)]
    pub(super) full: bool,
    /// Print the callers and callees of the methods whose names contain PATTERN
    #[arg(long, value_name = "PATTERN", conflicts_with = "full")]
    pub(super) method: Option<String>,
    /// What to print: report, calltree, events (each one), gc or jit (tables)
    #[arg(
        long,
        value_enum,
        default_value_t,
        ignore_case = true,
        hide_possible_values = true
    )]
    pub(super) viewer: Viewer,
    /// With -viewer events: only events with FILTER in Provider/Name, or with FIELD=VALUE
    ///
    /// Repeatable: an event must match all filters, in any case. VALUE is as printed; text may be a part of it, and flags
    /// one of several: -filter ExceptionThrown -filter ExceptionType=IOException.
    #[arg(long, value_name = "FILTER", value_parser = EventFilter::from_str)]
    pub(super) filter: Vec<EventFilter>,
    #[command(flatten)]
    pub(super) selection: SelectionOptions,
}

impl CollectOptions {
    /// Returns an error message if the name is one of several process ids, as `-p $(pgrep app)` gives.
    pub(super) fn pid_as_name(&self) -> Option<String> {
        let name = self.name.as_ref()?.to_str()?;
        let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
        (is_number && !self.pid.is_empty()).then(|| {
            format!(
                "the NAME {name} looks like a process id: several are -pid A,B, as of `pgrep -d, app`; for a capture of this \
                 name, -o {name}"
            )
        })
    }
}

impl ViewOptions {
    /// Returns an error message if an option does not apply to the viewer.
    pub(super) fn conflict(&self) -> Option<&'static str> {
        match self.viewer {
            Viewer::Report | Viewer::CallTree | Viewer::Gc | Viewer::Jit
                if !self.filter.is_empty() =>
            {
                Some("-filter is for events: it needs -viewer events")
            }
            Viewer::Report => None,
            Viewer::CallTree => self.method.is_some().then_some(
                "-method is for the report; -include selects the samples of a method in the call tree",
            ),
            _ if self.method.is_some() => Some("-method is for the report, not for this -viewer"),
            Viewer::Events if !self.selection.selects_samples() => None,
            _ => self.selection.selection().selects_samples_only().then_some(
                "this -viewer shows events: only -process selects from them, and for -viewer events -from and -to",
            ),
        }
    }
}

/// List the .NET processes of this machine and its containers, and whether they can send events.
///
/// The column DIAGNOSTICS shows the state of the diagnostic port, through which a process sends events. Lines below the
/// table give the reason if it is not ready. Run as root to see the processes of all users.
#[derive(Args, Debug)]
pub(super) struct PsOptions {
    /// Print the list as JSON
    #[arg(long)]
    pub(super) json: bool,
}

/// Valid sizes of the stack copy, in bytes.
const COPY_BYTES: RangeInclusive<u32> = 8..=CallGraph::MAX_STACK_BYTES;

pub(super) fn pid(text: &str) -> Result<Pid, String> {
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

/// Parses a limit on the size of all files; 0 is none.
fn file_size(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    let bytes =
        scaled(text, 1).ok_or("not a size: expected 0, or a number with K, M or G, such as 2G")?;
    match bytes >= DiskBudget::MIN_BYTES {
        true => Ok(bytes),
        false => Err("too small: expected 1M or more, or 0 for no limit".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_parts_of_a_cpu() {
        for (text, share) in [("2", 0.02), ("0.1", 0.001), ("12.5%", 0.125), ("100", 1.0)] {
            let parsed = cpu_share(text).unwrap();
            assert!((parsed - share).abs() < 1e-9, "{text}: {parsed}");
        }
        for bad in [
            "", "%", "0", "0.09", "100.1", "-2", "inf", "NaN", "2 %", "two",
        ] {
            let error = cpu_share(bad).unwrap_err();
            assert!(error.contains("from 0.1 to 100"), "{bad}: {error}");
        }
    }

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
