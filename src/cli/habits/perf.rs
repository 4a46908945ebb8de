//! `perf record` and `perf report`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgAction, Parser};

use super::{Line, Translated, sentence};
use crate::output::file;

/// Events of `-e` that are CPU time, and those that are cycles.
const CPU_TIME: [&str; 2] = ["cpu-clock", "task-clock"];
const CYCLES: [&str; 2] = ["cycles", "cpu-cycles"];
/// Events that are counted with it, those that the kernel counts, and those that are sampled.
const HARDWARE: [&str; 6] = [
    "instructions",
    "branches",
    "branch-instructions",
    "branch-misses",
    "cache-references",
    "cache-misses",
];
const SYSTEM: [&str; 4] = ["context-switches", "cs", "cpu-migrations", "migrations"];
const FAULTS: [&str; 4] = ["page-faults", "faults", "minor-faults", "major-faults"];
/// Tracepoints of wake-ups, which are sampled.
const WAKEUPS: [&str; 2] = ["sched_waking", "sched_wakeup"];
/// Systems of tracepoints about the network.
const NETWORK: [&str; 5] = ["net", "sock", "tcp", "skb", "udp"];
/// Recording that perf reads by default.
const PERF_DATA: &str = "perf.data";
/// Words by which a report is recognized as one of perf.
const OF_REPORT: [&str; 30] = [
    "-i",
    "--input",
    "--stdio",
    "--stdio2",
    "--tui",
    "--gtk",
    "-s",
    "--sort",
    "-g",
    "--children",
    "--no-children",
    "-n",
    "--header",
    "--header-only",
    "--percent-limit",
    "-f",
    "--force",
    "-v",
    "--verbose",
    "-q",
    "--quiet",
    "--comm",
    "--comms",
    "--pid",
    "--tid",
    "--call-graph",
    "--max-stack",
    "--inline",
    "--dsos",
    "--symbols",
];
/// Keys of `--sort` that a table has.
const KEYS: [&str; 9] = [
    "overhead", "sym", "symbol", "symbols", "dso", "comm", "pid", "tid", "sample",
];

/// Options of `perf record`.
#[derive(Debug, Parser)]
#[command(
    name = "perfcollect record",
    no_binary_name = true,
    disable_version_flag = true
)]
struct Record {
    /// Processes to sample
    #[arg(short, long, value_name = "P[,P...]")]
    pid: Option<String>,
    /// Where threads wait, too
    #[arg(long)]
    off_cpu: bool,
    /// Whole machine, which is the default
    #[arg(short, long)]
    all_cpus: bool,
    /// Sampling frequency in Hz, or max
    #[arg(short = 'F', long, value_name = "HZ")]
    freq: Option<String>,
    /// With stacks, as always
    #[arg(short)]
    g: bool,
    /// How to unwind: fp, dwarf[,BYTES], lbr
    #[arg(long, value_name = "MODE")]
    call_graph: Option<String>,
    /// cpu-clock or cycles
    #[arg(short, long)]
    event: Vec<String>,
    /// Name of the trace
    #[arg(short, long, value_name = "NAME")]
    output: Option<PathBuf>,
    /// Size of the ring buffers
    #[arg(short, long, value_name = "SIZE")]
    mmap_pages: Option<String>,
    /// Print errors only
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    recorded_anyhow: RecordedAnyhow,
    /// Command to run and sample
    #[arg(trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Options of `perf record` without effect here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Recorded anyhow, or without effect")]
struct RecordedAnyhow {
    /// Times
    #[arg(short = 'T', long)]
    timestamp: bool,
    /// Periods
    #[arg(short = 'P', long)]
    period: bool,
    /// CPUs
    #[arg(long)]
    sample_cpu: bool,
    /// Counts of each thread
    #[arg(short, long)]
    stat: bool,
    /// Raw samples
    #[arg(short = 'R', long)]
    raw_samples: bool,
    /// Clock: perfcollect uses the monotonic one
    #[arg(short = 'k', long, value_name = "CLOCK")]
    clockid: Option<String>,
    /// Build ids
    #[arg(short = 'B', long)]
    no_buildid: bool,
    /// Build ids in the cache of perf
    #[arg(short = 'N', long)]
    no_buildid_cache: bool,
    /// Progress
    #[arg(short, long, action = ArgAction::Count)]
    verbose: u8,
    /// Compression: the trace is always compressed
    #[arg(short = 'z', long, value_name = "LEVEL", num_args = 0..=1, require_equals = true)]
    compression_level: Option<Option<u8>>,
}

/// Options of `perf report`.
#[derive(Debug, Parser)]
#[command(
    name = "perfcollect report",
    no_binary_name = true,
    disable_version_flag = true
)]
struct Report {
    /// Recording or trace
    file: Option<PathBuf>,
    /// Recording or trace
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,
    /// Key of the rows: sym, dso, comm, pid or tid
    #[arg(short, long, value_name = "KEY[,KEY...]")]
    sort: Option<String>,
    /// Callers and callees
    #[arg(short = 'g', long = "call-graph", value_name = "MODE", num_args = 0..=1)]
    call_graph: Option<Option<String>>,
    /// Process
    #[arg(short = 'c', long, value_name = "NAME", alias = "comms")]
    comm: Option<String>,
    /// Process
    #[arg(long, value_name = "PID")]
    pid: Option<String>,
    /// Thread
    #[arg(long, value_name = "TID")]
    tid: Option<String>,
    /// About the recording
    #[arg(long)]
    header_only: bool,
    #[command(flatten)]
    shown_anyhow: ShownAnyhow,
}

/// Options of `perf report` without effect here.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Without effect")]
struct ShownAnyhow {
    /// As text, as always
    #[arg(long, alias = "stdio2", alias = "tui", alias = "gtk")]
    stdio: bool,
    /// With and without callees, as always
    #[arg(long)]
    children: bool,
    /// With and without callees, as always
    #[arg(long)]
    no_children: bool,
    /// Numbers of samples, as always
    #[arg(short = 'n', long)]
    show_nr_samples: bool,
    /// About the recording
    #[arg(long)]
    header: bool,
    /// Rows of less than this share
    #[arg(long, value_name = "PERCENT")]
    percent_limit: Option<String>,
    /// The owner of the recording
    #[arg(short, long)]
    force: bool,
    /// Verbosity
    #[arg(short, long)]
    verbose: bool,
    /// Progress
    #[arg(short, long)]
    quiet: bool,
}

/// Translates the words after `perf record`.
pub(super) fn record(words: &[OsString]) -> Translated {
    let wanted = match Record::try_parse_from(words) {
        Err(error) => return without_counterpart(error, "record", "collect"),
        Ok(wanted) => wanted,
    };
    if wanted.output.as_deref() == Some(Path::new("-")) {
        return sentence(
            "-o -: traces are files, not a stream: `perfcollect collect NAME`, then `perfcollect convert NAME.trace.zip`",
        );
    }
    let mut line = Line::new("collect");
    let (mut hardware, mut system, mut faults, mut wakeups) = (false, false, false, false);
    for event in wanted.event.iter().flat_map(|events| events.split(',')) {
        match event.split_once(':') {
            Some(("sched", name)) if WAKEUPS.contains(&name) => {
                wakeups = true;
                continue;
            }
            Some(("block", _)) => {
                return sentence(format!(
                    "-e {event}: `perfcollect collect NAME -io -collectsec 10` follows the requests to disks, without \
                     stacks; `perf record` records each of them, then `perfcollect convert perf.data`"
                ));
            }
            Some((of, _)) if NETWORK.contains(&of) => {
                return sentence(format!(
                    "-e {event}: `perfcollect collect NAME -net -collectsec 10` follows TCP connections, without stacks; \
                     `perf record` records each event, then `perfcollect convert perf.data`"
                ));
            }
            _ => {}
        }
        let (name, modifiers) = event.split_once(':').unwrap_or((event, ""));
        if modifiers.contains('u') != modifiers.contains('k') {
            return sentence(format!(
                "-e {event}: kernel and user code are sampled together; `perfcollect view NAME -exclude 'vmlinux!'` leaves \
                 out what ran in the kernel, `-include` the rest"
            ));
        }
        if CYCLES.contains(&name) || HARDWARE.contains(&name) {
            hardware = true;
        } else if SYSTEM.contains(&name) {
            system = true;
        } else if FAULTS.contains(&name) {
            faults = true;
        } else if !CPU_TIME.contains(&name) {
            return sentence(format!(
                "-e {event}: perfcollect samples CPU time (cpu-clock), or cycles if the CPU counts them; record other \
                 events with perf, then `perfcollect convert perf.data`"
            ));
        }
    }
    let options = [
        (hardware, "-hwevents"),
        (system, "-system"),
        (faults, "-faults"),
        (wakeups, "-wakeups"),
        (wanted.off_cpu, "-threadtime"),
    ];
    for (wanted, option) in options {
        if wanted {
            line.word(option);
        }
    }
    line.option_if("-o", wanted.output.as_deref().map(without_suffix));
    line.option_if("-pid", wanted.pid.as_ref());
    line.option_if("-freq", wanted.freq.as_deref().map(frequency));
    // The hardware's stacks are not used: `auto` does what it can.
    let unwinding = wanted.call_graph.as_deref().filter(|mode| *mode != "lbr");
    line.option_if("-callgraph", unwinding);
    line.option_if("-buffersize", wanted.mmap_pages.as_ref());
    if wanted.quiet {
        line.word("-quiet");
    }
    let is_other = wanted.pid.is_some() || wanted.all_cpus;
    match (is_other, &wanted.command[..]) {
        (_, []) => {}
        (true, [sleep, seconds]) if sleep == "sleep" => line.option("-collectsec", seconds),
        (true, _) => {
            return sentence(
                "a capture of the machine, or of -p PID, does not end with a command: end it with -collectsec SECONDS, or \
                 `perfcollect start NAME` before and `perfcollect stop NAME` after the command",
            );
        }
        (false, command) => {
            line.word("--");
            command.iter().for_each(|word| line.word(word));
        }
    }
    line.done()
}

/// Names an option of perf that has no counterpart.
fn without_counterpart(error: clap::Error, command: &str, own: &str) -> Translated {
    match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option))
            if error.kind() == ErrorKind::UnknownArgument && option.starts_with('-') =>
        {
            sentence(format!(
                "{option} of perf {command} has no counterpart: `perfcollect {own} --help` lists what has; a recording of \
                 perf is read, too: `perfcollect convert perf.data`"
            ))
        }
        _ => Err(error),
    }
}

/// Returns what `perf report` reads by default: perf.data, or if there is none the newest trace in the current
/// directory.
fn newest() -> PathBuf {
    let perf_data = PathBuf::from(PERF_DATA);
    if perf_data.exists() {
        return perf_data;
    }
    let entries = std::fs::read_dir(".").into_iter().flatten().flatten();
    let traces = entries.filter(|entry| file::is_trace(Path::new(&entry.file_name())));
    let newest = traces.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).ok());
    newest.map_or(perf_data, |entry| entry.file_name().into())
}

/// Returns the name of the trace for the name of a recording.
fn without_suffix(name: &Path) -> PathBuf {
    match name.extension() {
        Some(suffix) if suffix == "data" => name.with_extension(""),
        _ => name.to_owned(),
    }
}

fn frequency(text: &str) -> &str {
    match text {
        "max" => "20000",
        text => text,
    }
}

/// Translates the words after `perf report`. Returns `None` if they are of perfcollect.
pub(super) fn report(words: &[OsString]) -> Option<Translated> {
    let is_of_perf = |word: &OsString| {
        let text = word.to_str().unwrap_or_default();
        let name = text.split_once('=').map_or(text, |(name, _)| name);
        OF_REPORT.contains(&name)
    };
    (words.is_empty() || words.iter().any(is_of_perf)).then(|| translated(words))
}

fn translated(words: &[OsString]) -> Translated {
    let wanted = match Report::try_parse_from(words) {
        Err(error) => return without_counterpart(error, "report", "report"),
        Ok(wanted) => wanted,
    };
    let mut line = Line::new("report");
    let file = wanted.input.or(wanted.file);
    line.word(file.unwrap_or_else(newest));
    let keys: Vec<&str> = wanted
        .sort
        .iter()
        .flat_map(|keys| keys.split(','))
        .collect();
    if let Some(other) = keys.iter().find(|key| !KEYS.contains(key)) {
        return sentence(format!(
            "--sort {other}: the tables are by sym, dso, comm, pid or tid; `perfcollect report FILE -kind` has others"
        ));
    }
    let kind = match keys.as_slice() {
        _ if wanted.header_only => "summary",
        _ if wanted.call_graph.is_some() => "calltree",
        keys if keys
            .iter()
            .all(|key| key.starts_with("sym") || ["overhead", "sample"].contains(key)) =>
        {
            "cpu"
        }
        keys if keys.iter().any(|key| key.starts_with("sym")) => "cpu",
        keys if keys.contains(&"dso") => "modules",
        keys if keys.contains(&"tid") => "threads",
        _ => "processes",
    };
    line.option("-kind", kind);
    line.option_if("-process", wanted.comm.or(wanted.pid));
    line.option_if("-thread", wanted.tid);
    line.done()
}
