//! What a table lacks, in words.

use super::{OpenTrace, ReportKind, block_io, connections, counters, faults, refusals, wakeups};
use crate::output::summary::{Share, Summary, TOP, TOP_OF_PROCESS};
use crate::trace::Symptom;

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
const NO_WAKEUPS: &str =
    "no wake-ups: the selected threads were not woken, or the capture was without -wakeups";

/// Why there are no garbage collections.
const NO_GC: &str =
    "no garbage collections: none ended while .NET processes were captured with their events";

/// Why there are no waits for locks.
const NO_CONTENTION: &str =
    "no waits for locks of .NET: none ended while .NET processes were captured with their events";

/// Why there are no awaits.
const NO_AWAITS: &str = "no asynchronous method began to wait for a task, or the capture was without -awaits: waits that began before are not seen";

/// Why there are no times of threads.
const NO_THREAD_TIME: &str = "where threads spend the time without a CPU is not in the trace: a capture with -threadtime follows that";

/// Returns why a table has no rows, if that follows from how the trace was captured.
pub(super) fn of_empty(summary: &Summary, kind: ReportKind) -> Option<&'static str> {
    Some(match kind {
        ReportKind::Alloc => NO_ALLOCATIONS,
        ReportKind::Requests => NO_REQUESTS,
        ReportKind::Network => no_network(summary),
        ReportKind::Counters => counters::NOT_COUNTED,
        ReportKind::Gc => NO_GC,
        ReportKind::Contention => NO_CONTENTION,
        ReportKind::Awaits => NO_AWAITS,
        _ => return None,
    })
}

fn no_network(summary: &Summary) -> &'static str {
    match summary.info.symptom {
        Some(Symptom::Networking) => NO_STEPS,
        _ => NO_NETWORK,
    }
}

/// Says that a trace has more rows than its summary keeps.
pub(super) fn of(trace: &OpenTrace, kind: ReportKind, full: bool) -> Option<String> {
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
        ReportKind::Connections => return connections::omitted(summary),
        ReportKind::Awaits => return lossy_awaits(summary),
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
        ReportKind::ThreadTime if !full => {
            "each with less than a thousandth of the time: blocked.folded in the trace has all"
                .to_owned()
        }
        _ => "summary.json does not have them".to_owned(),
    };
    let more = (more > 0).then(|| format!("... and {more} more: {all_of_it}"));
    let rest = match kind {
        ReportKind::Faults => [faults::few_samples(summary), faults::losses(summary)],
        ReportKind::Wakeups => [wakeups::few_samples(summary), refusals::of(summary, kind)],
        _ => [None, None],
    };
    let lines: Vec<String> = more.into_iter().chain(rest.into_iter().flatten()).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Says that it is not known which awaits had not ended, or that some are missing.
fn lossy_awaits(summary: &Summary) -> Option<String> {
    let awaits = summary
        .runtimes
        .iter()
        .filter_map(|runtime| runtime.awaits.as_ref());
    let is_lossy = awaits
        .clone()
        .any(|awaits| awaits.is_lossy || awaits.omitted > 0);
    is_lossy.then(|| {
        "events are lost, or there were too many awaits at once: awaits are missing, and it is not known which had not ended"
            .to_owned()
    })
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
