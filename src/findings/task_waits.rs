//! Threads block until tasks are complete (sync over async).

use super::scene::{Scene, cpus, percent};
use crate::output::summary::{Finding, WorkKind};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN: [f64; 2] = [0.01, 0.0];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let loads = scene.with_work(WorkKind::TaskWaits, MIN);
    let findings = loads.map(|load| {
        let text = format!(
            "threads of {0} block until tasks are complete (sync over async): {1} of its CPU time ({2}) is in such waits{3}",
            load.program.name(),
            percent(load.part),
            cpus(load.cpus),
            load.behind()
        );
        load.finding("sync-over-async", "processes.work.task_waits", text)
    });
    findings.collect()
}
