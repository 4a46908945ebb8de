//! Reports as plain text, printed at the end of a capture and by `perfcollect view`.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use super::hot_path::Step;
use super::{code_rows, count, notices, roles, screen};
use crate::output::sanitize::{shell_word, terminal, truncate};
use crate::output::summary::{ModuleSummary, Summary};
use crate::trace::{
    Callers, CaptureInfo, DoubtfulCode, FunctionKind, Losses, NameCount, Nanos, ProcessEvents,
    Quality,
};

/// Maximum length of a name in a table, in bytes.
const MAX_NAME_BYTES: usize = 160;

/// Maximum number of listed modules without symbols.
const MAX_MISSING: usize = 10;
/// Maximum number of files in the line about stacks.
const MAX_DOUBTFUL: usize = 3;

/// Share of all samples (5 %) below which a callee ends the hot path.
const HOT_PER_MILLE: u128 = 50;

/// Prints the origin and quality of a trace, and the notices.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn summary(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let info = &summary.info;
    let seconds = info.end_ns.saturating_sub(info.start_ns) as f64 / 1e9;
    if let Some(warning) = summary.quality.losses.incomplete_warning() {
        writeln!(out, "{warning}")?;
    }
    let has_samples = !summary.has_only_events();
    if has_samples {
        writeln!(
            out,
            "{} of {} in {seconds:.1} s: {} in {}",
            count(summary.samples, "sample", "samples"),
            terminal(&info.event),
            match info.counts_time() {
                true => format!("{:.1} ms of CPU time", summary.cpu_ms),
                false => format!("no time, each counts as {} ms", info.period_ns as f64 / 1e6),
            },
            count(summary.process_count, "process", "processes")
        )?;
    } else {
        writeln!(out, "no samples, only events, in {seconds:.1} s")?;
    }
    writeln!(out, "  target   {}", short(&info.target))?;
    writeln!(
        out,
        "  machine  {}; perfcollect {}",
        machine(info),
        short(&info.version)
    )?;
    if has_samples {
        writeln!(out, "  stacks   {}", stacks(&summary.quality, info.callers))?;
        writeln!(out, "  names    {}", names(summary))?;
    }
    writeln!(out, "  lost     {}", losses(&summary.quality.losses, info))?;
    if let Some(events) = events(&summary.quality.events) {
        writeln!(out, "  events   {events}")?;
    }
    // A capture whose perfcollect was killed has no record of its cost.
    if info.collector_peak_kib > 0 {
        writeln!(
            out,
            "  cost     {:.2} s of CPU time while capturing, {:.1} MiB of memory",
            info.collector_cpu_ms / 1e3,
            info.collector_peak_kib as f64 / 1024.0
        )?;
    }
    notices::print(&summary.quality.notices, out)
}

/// Prints the first `top` processes.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn processes(summary: &Summary, top: usize, out: &mut impl Write) -> io::Result<()> {
    let counts_time = summary.info.counts_time();
    let column = if counts_time { "CPU ms" } else { "samples" };
    writeln!(out, "\n{column:>11}       %      pid  process")?;
    for process in summary.processes.iter().take(top) {
        writeln!(
            out,
            "{:>11} {:>7}  {:>7}  {}",
            match counts_time {
                true => format!("{:.1}", process.cpu_ms),
                false => process.samples.to_string(),
            },
            percent(process.samples, summary.samples),
            process.pid,
            match &*process.command_line {
                "" => short(&process.name),
                command_line => format!("{} - {}", short(&process.name), short(command_line)),
            }
        )?;
    }
    more(summary.process_count, summary.processes.len().min(top), out)
}

/// Prints the findings, most costly first, each with the command that shows more.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn findings(summary: &Summary, trace: Option<&Path>, out: &mut impl Write) -> io::Result<()> {
    let trace = trace.map(|path| shell_word(&path.to_string_lossy()));
    for (number, finding) in (1..).zip(&summary.findings) {
        writeln!(out, "{number:>3}. {}", terminal(&finding.text))?;
        let command = screen::command(finding, trace.as_deref());
        if let Some(command) = command {
            writeln!(out, "     -> {}", terminal(&command))?;
        }
    }
    match summary.findings.is_empty() {
        true => Ok(()),
        false => writeln!(out),
    }
}

/// Prints the first `top` methods of the user's code, and threads.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn shares(summary: &Summary, top: usize, out: &mut impl Write) -> io::Result<()> {
    let shares = &summary.shares;
    let tables = [
        ("your code, with what it calls", &shares.own_methods),
        ("threads", &shares.threads),
    ];
    for (title, rows) in tables {
        if rows.is_empty() {
            continue;
        }
        writeln!(out, "\n        %      pid  {title}")?;
        for row in rows.iter().take(top) {
            let module = match &*row.module {
                "" => String::new(),
                module => format!("{}!", short(module)),
            };
            let threads = match row.threads {
                0 | 1 => String::new(),
                threads => format!(" ({threads} threads)"),
            };
            let role = roles::of_thread(&row.name).filter(|_| row.threads > 0);
            let role = role.map_or_else(String::new, |role| format!(": {role}"));
            writeln!(
                out,
                "{:>9} {:>8}  {module}{}{threads}{role}",
                percent(row.samples, summary.samples),
                row.pid,
                short(&row.name)
            )?;
        }
        more(rows.len() as u64, rows.len().min(top), out)?;
    }
    Ok(())
}

/// Prints the first `top` methods by self samples, then by total samples.
///
/// Functions of a module without a name share a row, unless the report is `full`.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn methods(summary: &Summary, top: usize, full: bool, out: &mut impl Write) -> io::Result<()> {
    let mut rows = code_rows::of(summary, full);
    let grouped = summary.unnamed.iter().filter(|_| !full);
    let grouped = grouped.map(|module| module.functions.saturating_sub(1));
    let grouped = grouped.fold(0, u64::saturating_add);
    let all = summary.method_count.saturating_sub(grouped);
    let measure = match summary.info.counts_time() {
        true => "CPU time",
        false => "samples",
    };
    for order in ["self", "total"] {
        writeln!(
            out,
            "\n   self %  total %  kind    method, by {order} {measure}"
        )?;
        for row in rows.iter().take(top) {
            writeln!(
                out,
                "{:>9}{:>9}  {:<6}  {}",
                percent(row.self_samples, summary.samples),
                percent(row.total_samples, summary.samples),
                kind(row.kind),
                row.name
            )?;
        }
        more(all, rows.len().min(top), out)?;
        rows.sort_by_key(|row| Reverse(row.total_samples));
    }
    Ok(())
}

/// Describes the quality of the trace in a line.
pub(super) fn quality_in_short(summary: &Summary) -> String {
    let quality = &summary.quality;
    let stacks = &quality.stacks;
    let names = &quality.names;
    let kinds = [
        names.kernel,
        names.native,
        names.jit,
        names.ready_to_run,
        names.unmapped,
    ];
    let named = kinds
        .iter()
        .map(|count| count.named)
        .fold(0, u64::saturating_add);
    let unresolved = kinds.iter().map(|count| count.unresolved);
    let unresolved = unresolved.fold(0, u64::saturating_add);
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

/// Prints the ELF files without symbols, each with the command that gets its debug file.
///
/// `trace` is the archive that contains the summary, if there is one.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn missing_symbols(
    summary: &Summary,
    trace: Option<&Path>,
    out: &mut impl Write,
) -> io::Result<()> {
    let lacks_symbols =
        |module: &&ModuleSummary| !module.has_symbols && module.frames.unresolved > 0;
    let mut modules: Vec<&ModuleSummary> = summary.modules.iter().filter(lacks_symbols).collect();
    if modules.is_empty() {
        return Ok(());
    }
    modules.sort_by_key(|module| Reverse(module.frames.unresolved));
    writeln!(
        out,
        "\nunresolved  module without symbols, and how to get its debug file"
    )?;
    for module in modules.iter().take(MAX_MISSING) {
        let name = module.path.rsplit('/').next().unwrap_or_default();
        let command = match &module.build_id {
            Some(id) => format!("perfcollect symbols {id}"),
            None => "no build id: servers cannot find its debug file".to_owned(),
        };
        writeln!(
            out,
            "{:>10}  {:<24}  {command}",
            module.frames.unresolved,
            short(name)
        )?;
    }
    more(modules.len() as u64, modules.len().min(MAX_MISSING), out)?;
    let has_build_id = modules.iter().any(|module| module.build_id.is_some());
    let Some(trace) = trace.filter(|_| has_build_id) else {
        return Ok(());
    };
    let trace = shell_word(&trace.to_string_lossy());
    writeln!(
        out,
        "            all of them, and symbolize this trace: perfcollect symbols {}",
        terminal(&trace)
    )
}

/// Prints the path down the most sampled callees.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn hot_path(path: &[Step], samples: u64, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n  total %  hottest path")?;
    for (frame, in_frame) in path {
        if per_mille(*in_frame, samples) < HOT_PER_MILLE {
            break;
        }
        writeln!(out, "{:>9}  {}", percent(*in_frame, samples), short(frame))?;
    }
    Ok(())
}

/// Describes the sampled system. A perf.data recording may lack its properties.
fn machine(info: &CaptureInfo) -> String {
    let kernel = match &*info.kernel {
        "" => "Linux".into(),
        kernel => format!("Linux {}", short(kernel)),
    };
    let machine = (!info.arch.is_empty()).then(|| short(&info.arch));
    let cpus = (info.cpus > 0).then(|| count(info.cpus.into(), "CPU", "CPUs"));
    let parts = [Some(kernel), machine, cpus];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    parts.join(", ")
}

fn stacks(quality: &Quality, callers: Callers) -> String {
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

fn names(summary: &Summary) -> String {
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

fn losses(losses: &Losses, info: &CaptureInfo) -> String {
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
fn events(processes: &[ProcessEvents]) -> Option<String> {
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

pub(super) fn kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "kernel",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "JIT",
        FunctionKind::ReadyToRun => "R2R",
        FunctionKind::Unmapped => "-",
        FunctionKind::Marker => "",
    }
}

fn more(all: u64, shown: usize, out: &mut impl Write) -> io::Result<()> {
    match all.saturating_sub(shown as u64) {
        0 => Ok(()),
        hidden => writeln!(out, "           ... and {hidden} more"),
    }
}

/// Returns tenths of a percent, rounded down so that only all of it is 100 %.
fn per_mille(part: u64, all: u64) -> u128 {
    (u128::from(part) * 1000)
        .checked_div(all.into())
        .unwrap_or(0)
}

pub(super) fn percent(part: u64, all: u64) -> String {
    let tenths = per_mille(part, all);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

pub(super) fn short(name: &str) -> String {
    let kept = truncate(name, MAX_NAME_BYTES);
    let more = if kept.len() < name.len() { "..." } else { "" };
    format!("{}{more}", terminal(kept))
}
