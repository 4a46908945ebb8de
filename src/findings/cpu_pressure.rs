//! Threads are ready and wait for a CPU: too few CPUs, or a limit of a control group.

use std::collections::BTreeMap;

use super::scene::{Scene, percent, process_name, shown};
use crate::output::summary::{Finding, ProcessSummary, TRACE};
use crate::trace::ProcessWaits;

/// Share of the capture in which a thread waits for a CPU, and share of the CPU time that must be
/// used then, below which it is not remarkable.
const MIN_WAITING: f64 = 0.3;
const MIN_BUSY: f64 = 0.8;
/// CPUs that a program waited for on average, and the share of its waiting and running time, below which
/// waiting is not remarkable.
const MIN_MISSING: f64 = 0.25;
const MIN_MISSING_SHARE: f64 = 0.2;
/// Times as long as with a free CPU, from which on the number says nothing.
const MAX_TIMES: f64 = 100.0;
/// Throttled time per time of the capture below which it is not remarkable.
const MIN_THROTTLED: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let summary = scene.summary;
    let Some(pressure) = &summary.info.cpu_pressure else {
        return Vec::new();
    };
    let part = |ms: f64| ms / 1e3 / scene.seconds;
    let mut findings = Vec::new();
    let waiting = part(pressure.waiting_ms);
    let busy = summary.cpu_ms / 1e3 / scene.seconds / scene.cpus;
    if summary.info.system_wide && waiting >= MIN_WAITING && busy >= MIN_BUSY && waiting.is_finite()
    {
        let text = format!(
            "the {} CPUs are not enough: they are {} busy, and threads wait for one in {} of the time",
            scene.cpus,
            percent(busy),
            percent(waiting.min(1.0))
        );
        findings.push(
            Finding::new("run-queue", text)
                .from("info.cpu_pressure")
                .figure("waiting_percent", waiting * 100.0)
                .figure("busy_percent", busy * 100.0)
                .more(&["report", TRACE, "-kind", "processes"])
                .costing(waiting.min(1.0)),
        );
    }
    let omitted = pressure.threads_omitted;
    let programs = by_program(scene, &pressure.processes);
    let throttled = part(pressure.throttled_ms);
    let programs = programs.iter();
    // Waiting while a group is throttled has its own finding.
    let others = programs.filter(|(_, waits)| waits.waited_ms > 2.0 * pressure.throttled_ms);
    findings.extend(others.filter_map(|(name, waits)| starved(scene, *name, waits, omitted)));
    if throttled >= MIN_THROTTLED && throttled.is_finite() {
        let text = format!(
            "the CPU limit of the control group {} stopped it {} times, for {:.0} ms in all: raise the limit, or use less CPU time",
            shown(&pressure.throttled_group),
            pressure.throttled_periods,
            pressure.throttled_ms
        );
        findings.push(
            Finding::new("throttled", text)
                .from("info.cpu_pressure")
                .figure("throttled_ms", pressure.throttled_ms)
                .figure("throttled_periods", pressure.throttled_periods as f64)
                .costing(throttled),
        );
    }
    findings
}

/// Waits of the processes of a program.
#[derive(Default)]
struct ProgramWaits {
    /// Those with most waiting time are first.
    pids: Vec<i32>,
    waited_ms: f64,
    ran_ms: f64,
}

/// Returns the waits by name of the program. The name of a process without samples is unknown.
fn by_program<'a>(
    scene: &Scene<'a>,
    processes: &[ProcessWaits],
) -> BTreeMap<Option<&'a str>, ProgramWaits> {
    let mut programs: BTreeMap<Option<&str>, ProgramWaits> = BTreeMap::new();
    for process in processes {
        let mut rows = scene.summary.processes.iter();
        let row = rows.find(|row| row.pid == process.pid);
        let row = row.filter(|row| row.cpu_ms.is_finite());
        let program = programs.entry(row.map(ProcessSummary::program));
        let program = program.or_default();
        program.pids.push(process.pid);
        program.waited_ms += process.waited_ms;
        // The samples have what threads did after they were last read.
        let sampled_ms = row.map_or(0.0, |row| row.cpu_ms);
        program.ran_ms += process.ran_ms.max(sampled_ms);
    }
    programs
}

/// Returns a finding if the threads of a program waited for CPUs rather than ran. Some threads may
/// be `omitted`.
fn starved(
    scene: &Scene<'_>,
    name: Option<&str>,
    program: &ProgramWaits,
    omitted: u64,
) -> Option<Finding> {
    let [missing, got] = [program.waited_ms, program.ran_ms].map(|ms| ms / 1e3 / scene.seconds);
    let asked = missing + got;
    let is_starved = missing >= MIN_MISSING && missing >= asked * MIN_MISSING_SHARE;
    if !is_starved || !asked.is_finite() {
        return None;
    }
    let who = match (&program.pids[..], name) {
        (&[pid], name) => process_name(name.unwrap_or("process"), pid),
        (pids, Some(name)) => format!("{} ({} processes)", shown(name), pids.len()),
        (pids, None) => format!("{} other processes", pids.len()),
    };
    let times = asked / got.max(f64::MIN_POSITIVE);
    let slower = match times < MAX_TIMES {
        true => format!("work takes {times:.1} times as long as with a free CPU"),
        false => "they hardly ran".to_owned(),
    };
    let mut text = format!(
        "the threads of {who} waited {:.1} s for a CPU and ran {:.1} s, in {:.1} s: {slower}",
        program.waited_ms / 1e3,
        program.ran_ms / 1e3,
        scene.seconds,
    );
    if omitted > 0 {
        text += &format!(" ({omitted} threads were not read)");
    }
    let finding = Finding::new("run-queue", text);
    let subject = name.unwrap_or("process");
    let finding = match program.pids[..] {
        [pid] => finding.about(pid, subject),
        _ => finding.about_program(subject),
    };
    Some(
        finding
            .from("info.cpu_pressure")
            .from("processes")
            .figure("waited_ms", program.waited_ms)
            .figure("ran_ms", program.ran_ms)
            .more(&["report", TRACE, "-kind", "processes"])
            // Work takes longer by as much as it waits, whatever the number of threads.
            .costing(missing / asked),
    )
}
