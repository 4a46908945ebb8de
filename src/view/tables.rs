//! The tables of a summary.

use std::collections::HashMap;
use std::io::{self, Write};

use clap::ValueEnum;

use super::call_tree::TreeRow;
use super::table::{Cell, Table, TableFormat};
use super::{
    OpenTrace, Rows, ViewError, block_io, code_rows, counters, faults, quality, refusals, report,
    roles, runtime_tables, wakeups,
};
use crate::output::sanitize::json_text;
use crate::output::summary::{Share, Summary, TOP, TOP_OF_PROCESS};
use crate::output::variant_name;
use crate::trace::Symptom;

/// Part of the samples (0.1 %) that a frame of the call tree has at least.
const MIN_TREE_PART: f64 = 0.001;

/// Why there are no allocations.
const NO_ALLOCATIONS: &str = "no allocations were recorded: a capture with -gconly records them";

/// Why a selection has no threads.
const HIDDEN: &str = "what threads wait for is of the end of the capture: select by process only, without -from, \
                      -to, -thread and patterns";
/// Why there are no requests.
const NO_REQUESTS: &str =
    "no requests were recorded: a capture with -requests records those that start while it runs";

/// Why there are no steps of connections: in a capture that records them, and in others.
const NO_STEPS: &str = "no steps of connections: HttpClient made none while the capture ran, or took connections that were open already; \
                        -kind requests shows its requests";
const NO_NETWORK: &str =
    "no steps of connections were recorded: a capture with -for networking records them";

/// Why there are no threads.
const NOT_BLOCKED: &str = "what threads wait for is read at the end of a capture of processes (-pid, -n): \
    `perfcollect stacks -p PID` shows it now";

/// Why there are no page faults.
const NO_FAULTS: &str = "no page faults were sampled: a capture with -faults samples them";

/// Why there are no wake-ups.
const NO_WAKEUPS: &str = "no wake-ups were sampled: a capture with -wakeups samples them";

/// Why there are no garbage collections.
const NO_GC: &str =
    "no garbage collections: none ended while .NET processes were captured with their events";

/// Why there are no waits for locks.
const NO_CONTENTION: &str =
    "no waits for locks of .NET: none ended while .NET processes were captured with their events";

/// Why there are no times of threads.
const NO_THREAD_TIME: &str = "where threads spend the time without a CPU is not in the trace: a capture with -threadtime follows that";

/// What a report is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportKind {
    /// What is remarkable, most costly first.
    #[default]
    Findings,
    /// Origin, quality and losses of the trace; as JSON all that the trace has a table of.
    Summary,
    /// The user's code, with the libraries it calls.
    Own,
    /// Methods and functions by their own CPU time.
    Cpu,
    /// The call tree, callers before callees.
    #[value(name = "calltree", alias = "tree")]
    CallTree,
    /// Processes.
    Processes,
    /// Threads, by name.
    Threads,
    /// What the threads of the target did when the capture ended.
    #[value(alias = "waits", alias = "stacks")]
    Blocked,
    /// Where threads spent the time without a CPU; a capture with -threadtime follows that.
    #[value(
        name = "threadtime",
        alias = "offcpu",
        alias = "off-cpu",
        alias = "thread-time"
    )]
    ThreadTime,
    /// Functions by their page faults; a capture with -faults samples them.
    #[value(alias = "page-faults", alias = "pagefaults")]
    Faults,
    /// Who wakes whom, and in which function; a capture with -wakeups samples that.
    #[value(alias = "wake-ups", alias = "wakers")]
    Wakeups,
    /// Requests to disks by device and process; a capture with -io follows them.
    #[value(alias = "blockio", alias = "block-io", alias = "disk", alias = "disks")]
    Io,
    /// Modules by the CPU time of their own code.
    Modules,
    /// System calls.
    Syscalls,
    /// Garbage collections of each .NET process.
    Gc,
    /// Methods that the JIT compiler compiled, by tier.
    Jit,
    /// Exceptions by type and method.
    Exceptions,
    /// Waits for locks by method.
    Contention,
    /// Allocations by type and method; a capture with -gconly records them.
    Alloc,
    /// The thread pool of each .NET process.
    ThreadPool,
    /// Requests of ASP.NET Core and HttpClient; a capture with -requests records them.
    Requests,
    /// Steps of connections (names, connections, TLS); a capture with -for networking records them.
    #[value(alias = "networking")]
    Network,
    /// Events received from each .NET process, by kind.
    Events,
    /// Events received from each .NET process, and lost ones.
    EventLosses,
    /// Counted events of the CPU and the kernel (`-hwevents`, `-system`).
    Counters,
    /// Notices about the capture.
    Quality,
}

impl ReportKind {
    /// Returns whether it is what .NET processes reported.
    fn is_of_runtimes(self) -> bool {
        use ReportKind::{
            Alloc, Contention, Events, Exceptions, Gc, Jit, Network, Requests, ThreadPool,
        };
        matches!(
            self,
            Gc | Jit | Exceptions | Contention | Alloc | ThreadPool | Requests | Network | Events
        )
    }
}

/// Prints a table of a trace. Text fits into `width` columns, if there is a limit. Returns what the table
/// lacks, unless it is in the text.
///
/// # Errors
/// Returns an error if the trace cannot be read, or `out` cannot be written to.
pub fn print_table(
    trace: &OpenTrace,
    kind: ReportKind,
    format: TableFormat,
    rows: Rows,
    width: Option<usize>,
    out: &mut impl Write,
) -> Result<Option<String>, ViewError> {
    let mut table = match (kind, format) {
        (ReportKind::Summary | ReportKind::Findings, TableFormat::Text)
        | (ReportKind::Summary, TableFormat::Json) => {
            let printed = print_whole(trace, kind, format, out);
            return printed.map(|()| None).map_err(ViewError::Print);
        }
        (kind, _) => table(trace, kind, rows)?,
    };
    let is_hidden = match kind {
        ReportKind::Io => trace.hides_block_io,
        kind => report::lacks_events(&trace.summary) && kind.is_of_runtimes(),
    };
    if is_hidden {
        return Err(ViewError::NotSelected { table: table.kind });
    }
    let shown = table.rows.len();
    table.rows.truncate(rows.top);
    if let Some(width) = width.filter(|_| format == TableFormat::Text) {
        if kind == ReportKind::Io {
            table.drop_columns(width, &block_io::OPTIONAL_COLUMNS);
        }
        table.fit(width);
    }
    table.write(format, out).map_err(ViewError::Print)?;
    let omitted = match table.rows.is_empty() {
        true if kind == ReportKind::Alloc => Some(NO_ALLOCATIONS.to_owned()),
        true if kind == ReportKind::Requests => Some(NO_REQUESTS.to_owned()),
        true if kind == ReportKind::Network => Some(no_network(&trace.summary).to_owned()),
        true if kind == ReportKind::Counters => Some(counters::NOT_COUNTED.to_owned()),
        true if kind == ReportKind::Gc => Some(NO_GC.to_owned()),
        true if kind == ReportKind::Contention => Some(NO_CONTENTION.to_owned()),
        _ => omitted(trace, kind, rows.full).filter(|_| table.rows.len() == shown),
    };
    let is_refused = table.rows.is_empty() && !trace.hides_threads;
    let refusal = is_refused.then(|| refusals::of(&trace.summary, kind));
    let omitted = match (omitted, refusal.flatten()) {
        (Some(omitted), Some(refusal)) => {
            Some(format!("{omitted}; a notice of the capture: {refusal}"))
        }
        (omitted, refusal) => omitted.or(refusal),
    };
    match omitted {
        Some(omitted) if format == TableFormat::Text => {
            writeln!(out, "{omitted}").map_err(ViewError::Print)?;
            Ok(None)
        }
        omitted => Ok(omitted),
    }
}

fn no_network(summary: &Summary) -> &'static str {
    match summary.info.symptom {
        Some(Symptom::Networking) => NO_STEPS,
        _ => NO_NETWORK,
    }
}

/// Says that a trace has more rows than its summary keeps.
fn omitted(trace: &OpenTrace, kind: ReportKind, full: bool) -> Option<String> {
    let summary = &trace.summary;
    let shares = &summary.shares;
    let (all, kept) = match kind {
        ReportKind::Processes => (summary.process_count, summary.processes.len()),
        ReportKind::Cpu => (summary.method_count, summary.methods.len()),
        ReportKind::Own => return shares_omitted(&shares.own_methods),
        ReportKind::Blocked => match &summary.blocked {
            Some(blocked) => (blocked.group_count, blocked.groups.len()),
            None if trace.hides_threads => return Some(HIDDEN.to_owned()),
            None => return Some(NOT_BLOCKED.to_owned()),
        },
        ReportKind::ThreadTime if full => {
            return summary
                .thread_time
                .is_none()
                .then(|| NO_THREAD_TIME.to_owned());
        }
        ReportKind::ThreadTime => match &summary.thread_time {
            Some(times) => (times.place_count, times.places.len()),
            None => return Some(NO_THREAD_TIME.to_owned()),
        },
        ReportKind::Faults => match &summary.faults {
            Some(faults) => (faults.method_count, faults.methods.len()),
            None => return Some(NO_FAULTS.to_owned()),
        },
        ReportKind::Wakeups => match &summary.wakeups {
            Some(wakeups) => (wakeups.row_count, wakeups.rows.len()),
            None => return Some(NO_WAKEUPS.to_owned()),
        },
        ReportKind::Io => return block_io::omitted(summary),
        ReportKind::Modules => return shares_omitted(&shares.modules),
        ReportKind::Syscalls => return shares_omitted(&shares.syscalls),
        ReportKind::Threads if !full => return shares_omitted(&shares.threads),
        _ => return None,
    };
    let more = all.saturating_sub(kept as u64);
    let all_of_it = match kind {
        ReportKind::Cpu => format!("{} has all", trace.more.functions()),
        ReportKind::Blocked => "threads.json has all".to_owned(),
        ReportKind::Faults => "faults.folded in the trace has all".to_owned(),
        ReportKind::Wakeups => "wakeups.folded in the trace has all".to_owned(),
        _ => "summary.json does not have them".to_owned(),
    };
    let more = (more > 0).then(|| format!("... and {more} more: {all_of_it}"));
    let rest = match kind {
        ReportKind::Faults => [faults::few_samples(summary), faults::losses(summary)],
        ReportKind::Wakeups => [quality::dropped(&summary.quality.losses), None],
        _ => [None, None],
    };
    let lines: Vec<String> = more.into_iter().chain(rest.into_iter().flatten()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn shares_omitted(rows: &[Share]) -> Option<String> {
    let (of_process, of_all) = (TOP_OF_PROCESS, TOP);
    let is_full =
        |row: &Share| rows.iter().filter(|other| other.pid == row.pid).count() >= of_process;
    let may_lack = rows.len() >= of_all || rows.iter().any(is_full);
    may_lack.then(|| {
        format!("summary.json has {of_process} rows of a process and {of_all} in all, at most")
    })
}

/// Prints a report that is more than a table.
fn print_whole(
    trace: &OpenTrace,
    kind: ReportKind,
    format: TableFormat,
    out: &mut impl Write,
) -> io::Result<()> {
    let summary = &trace.summary;
    match (kind, format) {
        (_, TableFormat::Json) => {
            let json = serde_json::to_string_pretty(summary)?;
            writeln!(out, "{}", json_text(&json))
        }
        (ReportKind::Summary, _) => report::summary(summary, out),
        _ => {
            report::findings(summary, Some(&trace.more), out)?;
            match summary.findings.is_empty() {
                true => writeln!(out, "{}", report::no_findings(summary)),
                false => Ok(()),
            }
        }
    }
}

/// Returns the rows of the call tree.
fn call_tree(summary: &Summary, rows: &[TreeRow<'_>]) -> Table {
    let rows = rows.iter().map(|row| {
        let [total, own] = [row.samples, row.own].map(|samples| percent(summary, samples));
        [
            total,
            own,
            row.samples.into(),
            (row.depth as u64).into(),
            row.frame.into(),
        ]
    });
    let columns = ["total_percent", "self_percent", "samples", "depth", "frame"];
    Table::new("calltree", columns, rows)
}

/// Returns the table of a kind, with all its rows, or those of a call tree that are wanted.
fn table(
    trace: &OpenTrace,
    kind: ReportKind,
    Rows { top, full }: Rows,
) -> Result<Table, ViewError> {
    let summary = &trace.summary;
    let shares = &summary.shares;
    Ok(match kind {
        ReportKind::Findings => findings(summary),
        ReportKind::CallTree => call_tree(summary, &trace.call_tree(MIN_TREE_PART)?.rows(top)),
        ReportKind::Summary => totals(summary),
        ReportKind::Own => {
            let rows = shares.own_methods.iter().map(|row| {
                let module: Cell = (&*row.module).into();
                let name: Cell = (&*row.name).into();
                [
                    percent(summary, row.samples),
                    row.samples.into(),
                    row.pid.into(),
                    module,
                    name,
                ]
            });
            Table::new(
                "own",
                ["cpu_percent", "samples", "pid", "module", "method"],
                rows,
            )
        }
        ReportKind::Cpu => {
            let rows = code_rows::of(summary, full).into_iter().map(|row| {
                let parts = [row.self_samples, row.total_samples];
                let [own, total] = parts.map(|samples| percent(summary, samples));
                [
                    own,
                    total,
                    row.self_samples.into(),
                    report::kind(row.kind).into(),
                    row.name.into(),
                ]
            });
            let columns = [
                "self_percent",
                "total_percent",
                "self_samples",
                "kind",
                "method",
            ];
            Table::new("cpu", columns, rows)
        }
        ReportKind::Processes => processes(summary),
        ReportKind::Threads if full => each_thread(summary),
        ReportKind::Threads => {
            let rows = shares.threads.iter().map(|row| {
                let role = roles::of_thread(&row.name).unwrap_or_default();
                let part = percent(summary, row.samples);
                [
                    part,
                    row.samples.into(),
                    row.pid.into(),
                    row.threads.into(),
                    role.into(),
                    (&*row.name).into(),
                ]
            });
            let columns = ["cpu_percent", "samples", "pid", "threads", "role", "name"];
            Table::new("threads", columns, rows)
        }
        ReportKind::Blocked => blocked(summary),
        ReportKind::ThreadTime if full => thread_times(summary),
        ReportKind::ThreadTime => places(summary),
        ReportKind::Faults => faults::table(summary),
        ReportKind::Wakeups => wakeups::table(summary),
        ReportKind::Io => block_io::table(summary),
        ReportKind::Modules => parts("modules", summary, &shares.modules),
        ReportKind::Syscalls => parts("syscalls", summary, &shares.syscalls),
        ReportKind::Gc => runtime_tables::gc(summary),
        ReportKind::Jit => runtime_tables::jit(summary),
        ReportKind::Exceptions => runtime_tables::exceptions(summary),
        ReportKind::Contention => runtime_tables::contention(summary),
        ReportKind::Alloc => runtime_tables::allocations(summary),
        ReportKind::ThreadPool => runtime_tables::thread_pool(summary),
        ReportKind::Requests if full => runtime_tables::slowest_requests(summary),
        ReportKind::Requests => runtime_tables::requests(summary),
        ReportKind::Network => runtime_tables::network(summary),
        ReportKind::Events => runtime_tables::events(summary),
        ReportKind::EventLosses => {
            let rows = summary.quality.events.iter().map(|row| {
                let truncated = (&*row.truncated).into();
                [
                    row.pid.into(),
                    row.events.into(),
                    row.dropped.into(),
                    row.unknown.into(),
                    row.without_stack.into(),
                    truncated,
                ]
            });
            let columns = [
                "pid",
                "events",
                "dropped",
                "unreadable",
                "without_stack",
                "ends_early",
            ];
            Table::new("event-losses", columns, rows)
        }
        ReportKind::Counters => counters::table(summary),
        ReportKind::Quality => {
            let rows = summary.quality.notices.iter().map(|notice| {
                let text = |text: &str| Cell::from(text);
                [
                    text(&variant_name(notice.kind)),
                    notice.count.into(),
                    text(&notice.subject),
                    text(&notice.what),
                    text(&notice.remedy),
                ]
            });
            Table::new(
                "quality",
                ["kind", "count", "subject", "what", "remedy"],
                rows,
            )
        }
    })
}

fn percent(summary: &Summary, samples: u64) -> Cell {
    Cell::Number(samples as f64 * 100.0 / summary.samples.max(1) as f64)
}

fn findings(summary: &Summary) -> Table {
    let rows = summary.findings.iter().map(|finding| {
        let pid = finding.pid.map_or(Cell::None, Cell::from);
        let text = |text: &str| Cell::from(text);
        [
            text(&finding.rule),
            finding.cost_cpus.into(),
            pid,
            text(&finding.subject),
            text(&finding.text),
        ]
    });
    Table::new(
        "findings",
        ["rule", "cost_cpus", "pid", "subject", "text"],
        rows,
    )
}

fn totals(summary: &Summary) -> Table {
    let info = &summary.info;
    let seconds = info.seconds();
    let rows = [
        ("seconds", seconds.into()),
        ("samples", summary.samples.into()),
        ("cpu_ms", summary.cpu_ms.into()),
        ("processes", summary.process_count.into()),
        ("methods", summary.method_count.into()),
        ("target", Cell::from(&*info.target)),
        ("kernel", Cell::from(&*info.kernel)),
        ("cpus", u64::from(info.cpus).into()),
    ];
    let rows = rows.into_iter().map(|(name, value)| [name.into(), value]);
    Table::new("summary", ["name", "value"], rows)
}

fn processes(summary: &Summary) -> Table {
    let pressure = summary.info.cpu_pressure.as_ref();
    let waits = pressure.map_or(&[][..], |pressure| &pressure.processes);
    let rows = summary.processes.iter().map(|row| {
        let text = |text: &str| Cell::from(text);
        let waits = waits.iter().find(|waits| waits.pid == row.pid);
        [
            percent(summary, row.samples),
            row.cpu_ms.into(),
            row.samples.into(),
            waits.map_or(Cell::None, |waits| waits.waited_ms.into()),
            row.pid.into(),
            text(row.program()),
            text(&row.command_line),
        ]
    });
    let columns = [
        "cpu_percent",
        "cpu_ms",
        "samples",
        "waited_ms",
        "pid",
        "program",
        "command_line",
    ];
    Table::new("processes", columns, rows)
}

fn each_thread(summary: &Summary) -> Table {
    let rows = summary.threads.iter().map(|row| {
        let role = roles::of_thread(&row.name).unwrap_or_default();
        [
            percent(summary, row.samples),
            row.samples.into(),
            row.pid.into(),
            row.tid.into(),
            role.into(),
            (&*row.name).into(),
        ]
    });
    let columns = ["cpu_percent", "samples", "pid", "tid", "role", "name"];
    Table::new("threads", columns, rows)
}

/// Returns the places where threads had no CPU.
fn places(summary: &Summary) -> Table {
    let all = summary.thread_time.as_ref().map_or(0.0, |times| times.ms);
    let places = summary.thread_time.iter().flat_map(|times| &times.places);
    let rows = places.map(|place| {
        [
            Cell::Number(place.ms * 100.0 / all),
            Cell::Number(place.ms),
            (&*place.reason).into(),
            place.threads.into(),
            place.pid.into(),
            (&*place.module).into(),
            (&*place.method).into(),
        ]
    });
    let columns = [
        "percent", "ms", "reason", "threads", "pid", "module", "method",
    ];
    Table::new("threadtime", columns, rows)
}

/// Returns where the time of each thread went.
fn thread_times(summary: &Summary) -> Table {
    let threads = summary.thread_time.iter().flat_map(|times| &times.threads);
    let rows = threads.map(|thread| {
        let reasons = thread.reasons.iter();
        let reasons = reasons.map(|row| format!("{} {:.0} ms", row.reason, row.ms));
        let reasons: Vec<String> = reasons.collect();
        [
            Cell::Number(thread.cpu_ms),
            Cell::Number(thread.ms),
            thread.pid.into(),
            thread.tid.into(),
            (&*thread.name).into(),
            (&*reasons.join(", ")).into(),
        ]
    });
    let columns = ["cpu_ms", "waiting_ms", "pid", "tid", "name", "reasons"];
    Table::new("threadtime", columns, rows)
}

/// Returns the groups of threads when the capture ended.
fn blocked(summary: &Summary) -> Table {
    let processes = summary
        .blocked
        .iter()
        .flat_map(|blocked| &blocked.processes);
    let processes: HashMap<i32, &str> = processes.map(|row| (row.pid, &*row.name)).collect();
    let groups = summary.blocked.iter().flat_map(|blocked| &blocked.groups);
    let rows = groups.map(|group| {
        let [least, most] = match group.since_s {
            Some(times) => times.map(Cell::Number),
            None => [Cell::None, Cell::None],
        };
        let text = |text: &str| Cell::from(text);
        let tids: Vec<String> = group.tids.iter().map(ToString::to_string).collect();
        let process = processes.get(&group.pid).copied().unwrap_or_default();
        [
            group.threads.into(),
            text(&group.reason),
            least,
            most,
            group.pid.into(),
            text(process),
            text(&tids.join(" ")),
            group.owner.map_or(Cell::None, Cell::from),
            text(&group.name),
            text(&group.waits_for),
            text(&group.module),
            text(&group.method),
        ]
    });
    let columns = [
        "threads",
        "reason",
        "least_s",
        "most_s",
        "pid",
        "process",
        "tids",
        "owner",
        "name",
        "waits_for",
        "module",
        "method",
    ];
    Table::new("blocked", columns, rows)
}

fn parts(kind: &'static str, summary: &Summary, shares: &[Share]) -> Table {
    let rows = shares.iter().map(|row| {
        let part = percent(summary, row.samples);
        [
            part,
            row.samples.into(),
            row.pid.into(),
            (&*row.name).into(),
        ]
    });
    Table::new(kind, ["cpu_percent", "samples", "pid", "name"], rows)
}
