//! The quality of a trace in words: stacks, names, losses, events.

use super::count;
use super::more::More;
use super::report::{percent, short};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::{
    Callers, CaptureInfo, DoubtfulCode, Losses, NameCount, Nanos, NoticeKind, ProcessEvents,
    Quality,
};

/// Maximum number of files in the line about stacks.
const MAX_DOUBTFUL: usize = 3;
/// Part of the frames (1 in 10) without a name from which on it is worth a line how to get these.
const MIN_UNRESOLVED: u64 = 10;

/// Returns the frames with and without a name, of all kinds of code.
fn frames(summary: &Summary) -> NameCount {
    let names = &summary.quality.names;
    let kinds = [
        names.kernel,
        names.native,
        names.jit,
        names.ready_to_run,
        names.unmapped,
    ];
    let sum = |count: fn(&NameCount) -> u64| kinds.iter().map(count).fold(0, u64::saturating_add);
    NameCount {
        named: sum(|kind| kind.named),
        unresolved: sum(|kind| kind.unresolved),
    }
}

/// Describes the quality of the trace in a line.
pub(super) fn in_short(summary: &Summary) -> String {
    let quality = &summary.quality;
    let stacks = &quality.stacks;
    let NameCount { named, unresolved } = frames(summary);
    let mut parts = Vec::new();
    if stacks.rooted > 0 || stacks.truncated() > 0 {
        let complete = percent(stacks.rooted, stacks.samples());
        parts.push(format!("{complete} of the stacks complete"));
    }
    if named.saturating_add(unresolved) > 0 {
        let part = percent(named, named.saturating_add(unresolved));
        parts.push(format!("{part} of the frames named"));
    }
    parts.push(format!("lost: {}", losses(&quality.losses, &summary.info)));
    if let Some(events) = events(&quality.events) {
        parts.push(format!("events: {events}"));
    }
    parts.join("; ")
}

/// Says that what a table counts is incomplete, because the kernel dropped records.
pub(super) fn dropped(losses: &Losses) -> Option<String> {
    let lost = losses.lost();
    (lost > 0).then(|| {
        let records = count(lost, "record", "records");
        format!("the numbers are too low: the kernel dropped {records} of the capture")
    })
}

/// Says how to get the names of a remarkable part of the frames, if servers may have them.
pub(super) fn how_to_name(summary: &Summary, more: &More) -> Option<String> {
    let mut notices = summary.quality.notices.iter();
    if notices.any(|notice| notice.kind == NoticeKind::NoDebugFile) {
        return None;
    }
    let modules = summary.modules.iter();
    let modules = modules.filter(|module| !module.has_symbols && module.build_id.is_some());
    let without = modules.map(|module| module.frames.unresolved);
    let without = without.fold(0, u64::saturating_add);
    let NameCount { named, unresolved } = frames(summary);
    let all = named.saturating_add(unresolved);
    let is_remarkable = without > 0 && without.saturating_mul(MIN_UNRESOLVED) >= all;
    let line = || format!("more names, from debug files: {}", more.symbols());
    is_remarkable.then(|| terminal(&line()).into_owned())
}

pub(super) fn stacks(quality: &Quality, callers: Callers) -> String {
    let stacks = &quality.stacks;
    let all = stacks.samples();
    let recorded = match callers {
        // `All` is possible too: the summary is untrusted.
        Callers::All | Callers::AsPrinted => "as in the text, which may lack callers",
        Callers::Kernel => "with callers in the kernel only",
        Callers::None => "without callers, which were not recorded",
    };
    let parts = [
        (stacks.as_recorded, recorded),
        (stacks.empty, "without an address"),
    ];
    let parts = nonzero(&parts, "");
    if stacks.rooted > 0 || stacks.truncated() > 0 || parts.is_none() {
        return parts
            .into_iter()
            .fold(completeness(quality, all), |start, part| {
                format!("{start}; {part}")
            });
    }
    parts.unwrap_or_default()
}

/// Returns the number of stacks that reach the root of their thread, and the reasons for the
/// others.
fn completeness(quality: &Quality, all: u64) -> String {
    let stacks = &quality.stacks;
    let causes = [
        (stacks.stack_copy_ended, "deeper than the stack copy"),
        (stacks.too_deep, "over the frame limit"),
        (stacks.unwind_failed, "unwinding failed"),
        (stacks.no_registers, "without user registers"),
        (stacks.absent_page, "beyond a stack page not in memory"),
        (stacks.other_stack, "on another stack"),
    ];
    let rooted = format!(
        "{} complete ({} of {all})",
        percent(stacks.rooted, all),
        stacks.rooted
    );
    let completeness = nonzero(&causes, &format!("{rooted}; truncated: ")).unwrap_or(rooted);
    let doubts = [
        (stacks.likely, "likely right"),
        (stacks.guessed, "by frame-pointer fallback, may be wrong"),
    ];
    let doubts = doubts.iter().filter(|(count, _)| *count > 0);
    let doubts = doubts.map(|(count, how)| format!("{} {how} ({count})", percent(*count, all)));
    let doubts: Vec<String> = doubts.collect();
    match doubts.is_empty() {
        true => completeness,
        false => {
            let doubts = doubts.join(", ");
            format!("{completeness}; {doubts}{}", doubtful(&quality.doubtful))
        }
    }
}

/// Returns the code with most of the doubtful callers.
fn doubtful(code: &[DoubtfulCode]) -> String {
    let names = code.iter().take(MAX_DOUBTFUL).map(|code| short(&code.name));
    let names: Vec<String> = names.collect();
    let more = if code.len() > MAX_DOUBTFUL {
        ", ..."
    } else {
        ""
    };
    match names.is_empty() {
        true => String::new(),
        false => format!(", in callers of {}{more}", names.join(", ")),
    }
}

pub(super) fn names(summary: &Summary) -> String {
    let names = &summary.quality.names;
    let kinds = [
        ("kernel", names.kernel),
        ("native", names.native),
        ("JIT", names.jit),
        ("ReadyToRun", names.ready_to_run),
        ("unmapped", names.unmapped),
    ];
    let seen = kinds
        .iter()
        .filter(|(_, NameCount { named, unresolved })| *named > 0 || *unresolved > 0);
    let parts = seen.map(|(kind, NameCount { named, unresolved })| {
        format!(
            "{kind} {} ({unresolved} unresolved)",
            percent(*named, named.saturating_add(*unresolved))
        )
    });
    let parts: Vec<String> = parts.collect();
    if parts.is_empty() {
        "no frames".to_owned()
    } else {
        parts.join(", ")
    }
}

pub(super) fn losses(losses: &Losses, info: &CaptureInfo) -> String {
    const RECORDS: [&str; 2] = ["record", "records"];
    const SAMPLES: [&str; 2] = ["sample", "samples"];
    // A notice says that the others are outside the pid namespace.
    let is_outside = losses.misses_processes() && info.system_wide;
    let unattributed = if is_outside { 0 } else { losses.unattributed };
    let counts = [
        (losses.lost_records, RECORDS, "dropped by the kernel"),
        (losses.lost_samples, SAMPLES, "dropped by the kernel"),
        (unattributed, SAMPLES, "of unknown processes"),
        (losses.malformed_records, RECORDS, "malformed"),
        (losses.late_records, RECORDS, "late"),
    ];
    let counts = counts.into_iter().filter(|(total, ..)| *total > 0);
    let counts = counts.map(|(total, [one, many], what)| {
        let total = count(total, one, many);
        format!("{total} {what}")
    });
    let pauses = losses.pauses.range().map(|(first, last)| {
        let seconds = |time: Nanos| time.0.saturating_sub(info.start_ns) as f64 / 1e9;
        format!(
            "{:.2} s of all CPUs, throttled {} from +{:.1} s to +{:.1} s",
            losses.pauses.paused_ns() as f64 / 1e9,
            count(losses.pauses.times(), "time", "times"),
            seconds(first),
            seconds(last)
        )
    });
    let parts: Vec<String> = counts.chain(pauses).collect();
    match parts.is_empty() {
        true if info.callers == Callers::AsPrinted => {
            "unknown, as the text does not contain it".to_owned()
        }
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}

/// Returns the number of events and of their processes, and the losses.
pub(super) fn events(processes: &[ProcessEvents]) -> Option<String> {
    let sum = |field: fn(&ProcessEvents) -> u64| {
        let counts = processes.iter().map(field);
        counts.fold(0, u64::saturating_add)
    };
    let lost = [
        (sum(|process| process.dropped), "dropped by their runtime"),
        (sum(|process| process.unknown), "unreadable"),
        (sum(|process| process.without_stack), "without their stack"),
    ];
    let truncated = processes
        .iter()
        .filter(|process| !process.truncated.is_empty());
    let truncated = truncated.count() as u64;
    let truncated =
        (truncated > 0).then(|| count(truncated, "stream ends early", "streams end early"));
    let missing: Vec<String> = nonzero(&lost, "").into_iter().chain(truncated).collect();
    (!processes.is_empty()).then(|| {
        format!(
            "{} from {}; {}",
            sum(|process| process.events),
            count(processes.len() as u64, ".NET process", ".NET processes"),
            match missing.is_empty() {
                true if sum(|process| process.events) == 0 => "none received".to_owned(),
                true => "none lost".to_owned(),
                false => missing.join(", "),
            }
        )
    })
}

/// Joins the counts above zero after `prefix`. Returns `None` if there are none.
fn nonzero(counts: &[(u64, &str)], prefix: &str) -> Option<String> {
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| prefix.to_owned() + &parts.join(", "))
}
