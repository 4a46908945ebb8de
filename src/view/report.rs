//! Reports as plain text: the end of a capture and `perfcollect view` print the same.

use std::cmp::Reverse;
use std::io::{self, Write};
use std::path::Path;

use super::count;
use super::hot_path::Step;
use crate::output::label;
use crate::output::sanitize::{cut, shell_word, terminal};
use crate::output::summary::{MethodSummary, ModuleSummary, Summary};
use crate::trace::{
    Callers, CaptureInfo, FunctionKind, Losses, NameCount, Nanos, ProcessEvents, StackQuality,
};

/// Longest name in a table, in bytes.
const MAX_NAME_BYTES: usize = 160;

/// Most modules listed that have no symbols.
const MAX_MISSING: usize = 10;

/// A callee with less than this of all samples (5 %) ends the hot path.
const HOT_PER_MILLE: u128 = 50;

/// Prints what was sampled, how good it is and what to do about what is missing.
///
/// # Errors
/// What `out` returns.
pub fn summary(summary: &Summary, out: &mut impl Write) -> io::Result<()> {
    let info = &summary.info;
    let seconds = info.end_ns.saturating_sub(info.start_ns) as f64 / 1e9;
    if let Some(mark) = summary.quality.losses.mark() {
        writeln!(out, "{mark}")?;
    }
    let has_samples = !summary.has_only_events();
    if has_samples {
        writeln!(
            out,
            "{} of {} in {seconds:.1} s: {} in {}",
            count(summary.samples, "sample", "samples"),
            terminal(&info.event),
            match info.is_of_time() {
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
        writeln!(
            out,
            "  stacks   {}",
            stacks(&summary.quality.stacks, info.callers)
        )?;
        writeln!(out, "  names    {}", names(summary))?;
    }
    writeln!(out, "  lost     {}", losses(&summary.quality.losses, info))?;
    if let Some(events) = events(&summary.quality.events) {
        writeln!(out, "  events   {events}")?;
    }
    // A collector that was killed could not tell.
    if info.collector_peak_kib > 0 {
        writeln!(
            out,
            "  cost     {:.2} s of CPU time while capturing, {:.1} MiB of memory",
            info.collector_cpu_ms / 1e3,
            info.collector_peak_kib as f64 / 1024.0
        )?;
    }
    for notice in &summary.quality.notices {
        writeln!(out, "  notice   {}", terminal(&notice.what))?;
        if !notice.remedy.is_empty() {
            writeln!(out, "           {}", terminal(&notice.remedy))?;
        }
    }
    Ok(())
}

/// Prints the `top` processes.
///
/// # Errors
/// What `out` returns.
pub fn processes(summary: &Summary, top: usize, out: &mut impl Write) -> io::Result<()> {
    let is_of_time = summary.info.is_of_time();
    let column = if is_of_time { "CPU ms" } else { "samples" };
    writeln!(out, "\n{column:>11}       %      pid  process")?;
    for process in summary.processes.iter().take(top) {
        writeln!(
            out,
            "{:>11} {:>7}  {:>7}  {}",
            match is_of_time {
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

/// Prints the `top` methods by their own samples, then by all they are in.
///
/// # Errors
/// What `out` returns.
pub fn methods(summary: &Summary, top: usize, out: &mut impl Write) -> io::Result<()> {
    let mut methods: Vec<&MethodSummary> = summary.methods.iter().collect();
    let measure = match summary.info.is_of_time() {
        true => "CPU time",
        false => "samples",
    };
    for order in ["itself", "with its callees"] {
        writeln!(
            out,
            "\n   self %  total %  kind    method, by {measure} {order}"
        )?;
        for method in methods.iter().take(top) {
            writeln!(
                out,
                "{:>9}{:>9}  {:<6}  {}",
                percent(method.self_samples, summary.samples),
                percent(method.total_samples, summary.samples),
                kind(method.kind),
                spelled(method)
            )?;
        }
        more(summary.method_count, methods.len().min(top), out)?;
        methods.sort_by_key(|method| Reverse(method.total_samples));
    }
    Ok(())
}

/// Prints the ELF files whose functions have no names for want of symbols, each with the command that gets its debug file;
/// `trace` is the archive the summary is of, if there is one.
///
/// # Errors
/// What `out` returns.
pub fn missing_symbols(
    summary: &Summary,
    trace: Option<&Path>,
    out: &mut impl Write,
) -> io::Result<()> {
    let wanting = |module: &&ModuleSummary| !module.has_symbols && module.frames.unnamed > 0;
    let mut modules: Vec<&ModuleSummary> = summary.modules.iter().filter(wanting).collect();
    if modules.is_empty() {
        return Ok(());
    }
    modules.sort_by_key(|module| Reverse(module.frames.unnamed));
    writeln!(
        out,
        "\n   unnamed  module without symbols, and how to get its debug file"
    )?;
    for module in modules.iter().take(MAX_MISSING) {
        let name = module.path.rsplit('/').next().unwrap_or_default();
        let how = match &module.build_id {
            Some(id) => format!("perfcollect symbols {id}"),
            None => "no build id: servers cannot know it".to_owned(),
        };
        writeln!(
            out,
            "{:>10}  {:<24}  {how}",
            module.frames.unnamed,
            short(name)
        )?;
    }
    more(modules.len() as u64, modules.len().min(MAX_MISSING), out)?;
    let can_be_asked_for = modules.iter().any(|module| module.build_id.is_some());
    let Some(trace) = trace.filter(|_| can_be_asked_for) else {
        return Ok(());
    };
    let trace = shell_word(&trace.to_string_lossy());
    writeln!(
        out,
        "            all of them: perfcollect symbols {}",
        terminal(&trace)
    )
}

/// `module!name`, `module!name_[i]` if it was always inlined, `module+0x1230` where there is no name.
fn spelled(method: &MethodSummary) -> String {
    let joint = if method.is_offset { '+' } else { '!' };
    let mark = if method.inlined { label::INLINED } else { "" };
    let (module, name) = (short(&method.module), short(&method.name));
    format!("{module}{joint}{name}{mark}")
}

/// Prints the path down the most sampled callees.
///
/// # Errors
/// What `out` returns.
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

/// What is known of the machine: a recording of perf's may tell nothing.
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

fn stacks(stacks: &StackQuality, callers: Callers) -> String {
    let all = stacks.samples();
    let recorded = match callers {
        // A file from outside may say anything.
        Callers::All | Callers::AsPrinted => {
            "as in the text, which does not tell whether they are complete"
        }
        Callers::Kernel => "with callers in the kernel only",
        Callers::None => "without callers, which were not recorded",
    };
    let parts = [
        (stacks.as_recorded, recorded),
        (stacks.empty, "without an address"),
    ];
    let parts = nonzero(&parts, "");
    if stacks.rooted + stacks.truncated() > 0 || parts.is_none() {
        return parts
            .into_iter()
            .fold(reach(stacks, all), |reach, part| format!("{reach}; {part}"));
    }
    parts.unwrap_or_default()
}

/// How many stacks reach the root of their thread, and why others do not.
fn reach(stacks: &StackQuality, all: u64) -> String {
    let causes = [
        (stacks.stack_copy_ended, "deeper than the copied stack"),
        (stacks.too_deep, "over the frame limit"),
        (stacks.lost_track, "lost track"),
        (stacks.no_registers, "without user registers"),
    ];
    let rooted = format!(
        "{} complete ({} of {all})",
        percent(stacks.rooted, all),
        stacks.rooted
    );
    let completeness = nonzero(&causes, &format!("{rooted}; cut: ")).unwrap_or(rooted);
    match stacks.fp_fallback {
        0 => completeness,
        guessed => format!(
            "{completeness}; {guessed} with a caller guessed by the frame pointer ({} may be wrong)",
            percent(guessed, all)
        ),
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
        .filter(|(_, NameCount { named, unnamed })| named + unnamed > 0);
    let parts = seen.map(|(kind, NameCount { named, unnamed })| {
        format!(
            "{kind} {} ({unnamed} unnamed)",
            percent(*named, named + unnamed)
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
    let counts = [
        (losses.lost_records, RECORDS, "dropped by the kernel"),
        (losses.lost_samples, SAMPLES, "dropped by the kernel"),
        (losses.unattributed, SAMPLES, "of unknown processes"),
        (losses.malformed_records, RECORDS, "malformed"),
        (losses.late_records, RECORDS, "late"),
    ];
    let counts = counts.into_iter().filter(|(number, ..)| *number > 0);
    let counts = counts.map(|(number, [one, many], what)| {
        let number = count(number, one, many);
        format!("{number} {what}")
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
        true if info.callers == Callers::AsPrinted => "the text does not tell".to_owned(),
        true => "nothing".to_owned(),
        false => parts.join(", "),
    }
}

/// How many events came of how many runtimes, and what did not come.
fn events(processes: &[ProcessEvents]) -> Option<String> {
    let sum = |of: fn(&ProcessEvents) -> u64| processes.iter().map(of).sum::<u64>();
    let lost = [
        (sum(|process| process.dropped), "dropped by their runtime"),
        (sum(|process| process.unknown), "unreadable"),
        (sum(|process| process.without_stack), "without their stack"),
    ];
    let cut = processes.iter().filter(|process| !process.cut.is_empty());
    let cut = cut.count() as u64;
    let cut = (cut > 0).then(|| count(cut, "stream ends early", "streams end early"));
    let missing: Vec<String> = nonzero(&lost, "").into_iter().chain(cut).collect();
    (!processes.is_empty()).then(|| {
        format!(
            "{} of {}; {}",
            sum(|process| process.events),
            count(processes.len() as u64, ".NET process", ".NET processes"),
            match missing.is_empty() {
                true if sum(|process| process.events) == 0 => "none came".to_owned(),
                true => "none lost".to_owned(),
                false => missing.join(", "),
            }
        )
    })
}

/// The counts above zero after `prefix`, or `None` if there are none.
fn nonzero(counts: &[(u64, &str)], prefix: &str) -> Option<String> {
    let parts = counts.iter().filter(|(count, _)| *count > 0);
    let parts: Vec<String> = parts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    (!parts.is_empty()).then(|| prefix.to_owned() + &parts.join(", "))
}

fn kind(kind: FunctionKind) -> &'static str {
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

/// Tenths of a percent, rounded down: 100 % is all of it.
fn per_mille(part: u64, all: u64) -> u128 {
    (u128::from(part) * 1000)
        .checked_div(all.into())
        .unwrap_or(0)
}

fn percent(part: u64, all: u64) -> String {
    let tenths = per_mille(part, all);
    format!("{}.{} %", tenths / 10, tenths % 10)
}

fn short(name: &str) -> String {
    let kept = cut(name, MAX_NAME_BYTES);
    let more = if kept.len() < name.len() { "..." } else { "" };
    format!("{}{more}", terminal(kept))
}
