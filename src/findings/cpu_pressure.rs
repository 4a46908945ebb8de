//! Threads are ready and wait for a CPU: too few CPUs, or a limit of a control group.

use super::scene::{Scene, percent};
use crate::output::summary::Finding;

/// Share of the capture in which a thread waits for a CPU, and share of the CPU time that must be
/// used then, below which it is not remarkable.
const MIN_WAITING: f64 = 0.3;
const MIN_BUSY: f64 = 0.8;
/// Throttled time per time of the capture below which it is not remarkable.
const MIN_THROTTLED: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let summary = scene.summary;
    let Some(pressure) = summary.info.cpu_pressure else {
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
