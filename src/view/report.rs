//! Reports as plain text, printed at the end of a capture and by `perfcollect view`.

use std::cmp::Reverse;
use std::io::{self, Write};

use super::call_tree::MAX_NAME_BYTES;
use super::code_rows::{self, CodeRow};
use super::more::More;
use super::{
    block_io, connections, count, counters, faults, notices, quality, requests, roles, screen,
    wakeups,
};
use crate::output::sanitize::{terminal, truncate};
use crate::output::summary::{ModuleSummary, Summary};
use crate::output::variant_name;
use crate::trace::{CaptureInfo, FunctionKind, NoticeKind};

/// Maximum number of listed modules without symbols.
const MAX_MISSING: usize = 10;
/// Part of all samples below which a callee ends the hot path.
pub(super) const HOT_PART: f64 = 0.05;
/// Part of all samples (95 %) with which a caller says nothing.
const CALLER_PERCENT: u64 = 95;

/// Prints the origin and quality of a trace, and the notices.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn summary(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let info = &summary.info;
    let seconds = info.seconds();
    if let Some(warning) = summary.quality.losses.incomplete_warning() {
        writeln!(out, "{warning}")?;
    }
    let has_samples = !summary.lacks_samples();
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
        writeln!(out, "{}", screen::no_samples(summary))?;
    }
    writeln!(out, "  target   {}", short(&info.target))?;
    if let Some(symptom) = info.symptom {
        writeln!(out, "  for      {}", variant_name(symptom))?;
    }
    writeln!(
        out,
        "  machine  {}; perfcollect {}",
        machine(info),
        short(&info.version)
    )?;
    if has_samples {
        writeln!(
            out,
            "  stacks   {}",
            quality::stacks(&summary.quality, info.callers)
        )?;
        writeln!(out, "  names    {}", quality::names(summary))?;
    }
    writeln!(
        out,
        "  lost     {}",
        quality::losses(&summary.quality.losses, info)
    )?;
    if let Some(events) = quality::events(&summary.quality.events) {
        writeln!(out, "  events   {events}")?;
    }
    if let Some(counted) = counters::in_short(summary) {
        writeln!(out, "  counted  {counted}")?;
    }
    let others = [
        faults::in_short(summary),
        wakeups::in_short(summary),
        block_io::in_short(summary),
        connections::in_short(summary),
    ];
    for line in others.into_iter().flatten() {
        writeln!(out, "  {line}")?;
    }
    for runtime in &summary.runtimes {
        if let Some(requests) = &runtime.requests {
            writeln!(out, "  requests {}", requests::totals(requests))?;
        }
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
pub fn findings(summary: &Summary, more: Option<&More>, out: &mut impl Write) -> io::Result<()> {
    for (number, finding) in (1..).zip(&summary.findings) {
        writeln!(out, "{number:>3}. {}", terminal(&finding.text))?;
        if let Some(command) = more.and_then(|more| more.about(finding)) {
            writeln!(out, "{}{}", screen::COMMAND, terminal(&command))?;
        }
    }
    match summary.findings.is_empty() {
        true => Ok(()),
        false => writeln!(out),
    }
}

/// Says that there are no findings.
pub(super) fn no_findings(summary: &Summary) -> &'static str {
    match lacks_events(summary) {
        false => "No findings: nothing exceeds a threshold.",
        true => {
            "No findings in the selected samples. Without -from, -to, -thread and patterns, there may \
             be some about GC, locks, exceptions, ..."
        }
    }
}

/// Returns whether a selection of samples left out what .NET processes reported.
pub(super) fn lacks_events(summary: &Summary) -> bool {
    let mut notices = summary.quality.notices.iter();
    notices.any(|notice| notice.kind == NoticeKind::Selection)
}

/// Prints the first `top` methods of the user's code, and threads.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn shares(summary: &Summary, top: usize, out: &mut impl Write) -> io::Result<()> {
    let shares = &summary.shares;
    let tables = [
        (
            "your code, with the libraries it calls",
            &shares.own_methods,
        ),
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
/// Unless the report is `full`, functions of a module without a name share a row, and callers of nearly
/// all samples have none by total samples.
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
    let mut callers = 0;
    for order in ["self", "total"] {
        writeln!(
            out,
            "\n   self %  total %  kind    method, by {order} {measure}"
        )?;
        if callers > 0 {
            let callers = count(callers as u64, "caller", "callers");
            writeln!(
                out,
                "{:>20}{callers} of at least {CALLER_PERCENT} % of the samples left out: -full",
                ""
            )?;
        }
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
        if !full {
            let with_callers = rows.len();
            rows.retain(|row| !is_caller_of_all(row, summary.samples));
            callers = with_callers - rows.len();
        }
    }
    Ok(())
}

/// Returns whether a row is in nearly all samples, and costs nearly nothing itself, as `main` does.
fn is_caller_of_all(row: &CodeRow, samples: u64) -> bool {
    let of_all = |part: u64| part.saturating_mul(100);
    of_all(row.total_samples) >= samples.saturating_mul(CALLER_PERCENT)
        && of_all(row.self_samples) < samples.saturating_mul(100 - CALLER_PERCENT)
}

/// Prints the ELF files without symbols, each with the command that gets its debug file.
///
/// `trace` is the archive that contains the summary, if there is one.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub fn missing_symbols(
    summary: &Summary,
    trace: Option<&More>,
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
    writeln!(
        out,
        "            all of them, and symbolize this trace: {}",
        terminal(&trace.symbols())
    )
}

/// Prints the path down the most sampled callees.
///
/// # Errors
/// Returns the error of a failed write to `out`.
pub(super) fn hot_path(path: &[(&str, u64)], samples: u64, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n  total %  hottest path")?;
    for (frame, in_frame) in path {
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

pub(super) fn kind(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::Kernel => "kernel",
        FunctionKind::Native => "native",
        FunctionKind::Jit => "JIT",
        FunctionKind::ReadyToRun => "R2R",
        FunctionKind::Unmapped => "-",
        FunctionKind::Marker | FunctionKind::Blocked => "",
        FunctionKind::Group => "group",
    }
}

pub(super) fn more(all: u64, shown: usize, out: &mut impl Write) -> io::Result<()> {
    match all.saturating_sub(shown as u64) {
        0 => Ok(()),
        hidden => writeln!(out, "           ... and {hidden} more"),
    }
}

/// Returns tenths of a percent, rounded, but only all of it is 100 %.
fn per_mille(part: u64, all: u64) -> u128 {
    let most = if part < all { 999 } else { u128::MAX };
    let (part, all) = (u128::from(part), u128::from(all));
    let rounded = (part * 2000 + all).checked_div(all * 2);
    rounded.unwrap_or(0).min(most)
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
