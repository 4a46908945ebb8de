//! Threads are ready and wait for a CPU: too few CPUs, or a limit of a control group.

use super::scene::{Scene, cpus, percent, process_name};
use crate::output::summary::{Finding, ProcessSummary};
use crate::trace::ProcessWaits;

/// Share of the capture in which a thread waits for a CPU, and share of the CPU time that must be
/// used then, below which it is not remarkable.
const MIN_WAITING: f64 = 0.3;
const MIN_BUSY: f64 = 0.8;
/// CPUs that a process waited for on average, and the share of what it asked for, below which this is
/// not remarkable.
const MIN_MISSING: f64 = 0.1;
const MIN_MISSING_SHARE: f64 = 0.2;
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
                .costing(waiting.min(1.0)),
        );
    }
    let processes = pressure.processes.iter();
    findings.extend(processes.filter_map(|process| starved(scene, process)));
    let throttled = part(pressure.throttled_ms);
    if throttled >= MIN_THROTTLED && throttled.is_finite() {
        let text = format!(
            "the CPU limit of the target's control group stopped it {} times, for {:.0} ms in all: raise the limit, or use less CPU time",
            pressure.throttled_periods, pressure.throttled_ms
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

/// Returns a finding if the threads of a process waited for CPUs rather than ran.
fn starved(scene: &Scene<'_>, process: &ProcessWaits) -> Option<Finding> {
    let [missing, got] = [process.waited_ms, process.ran_ms].map(|ms| ms / 1e3 / scene.seconds);
    let asked = missing + got;
    let is_starved = missing >= MIN_MISSING && missing >= asked * MIN_MISSING_SHARE;
    if !is_starved || !asked.is_finite() {
        return None;
    }
    let mut rows = scene.summary.processes.iter();
    let row = rows.find(|row| row.pid == process.pid);
    let program = row.map_or("process", ProcessSummary::program);
    let text = format!(
        "{} waited {:.1} s for a CPU in {:.1} s: it got {got:.2} of the {} it asked for",
        process_name(program, process.pid),
        process.waited_ms / 1e3,
        scene.seconds,
        cpus(asked)
    );
    Some(
        Finding::new("run-queue", text)
            .about(process.pid, program)
            .from("info.cpu_pressure")
            .figure("waited_ms", process.waited_ms)
            .figure("got_cpus", got)
            .figure("asked_cpus", asked)
            .costing(missing),
    )
}
