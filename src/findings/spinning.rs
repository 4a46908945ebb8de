//! Loops that wait for a lock or another thread take much of a process's CPU time.

use super::scene::{Scene, cpus, percent};
use crate::output::summary::{Finding, WorkKind};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN: [f64; 2] = [0.05, 0.05];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let loads = scene.with_work(WorkKind::Spinning, MIN);
    let findings = loads.map(|load| {
        let text = format!(
            "{0} spends {1} of its CPU time ({2}) in loops that wait for a lock or another thread{3}",
            load.program.name(),
            percent(load.part),
            cpus(load.cpus),
            load.behind()
        );
        load.finding("spinning", "processes.work.spinning", text)
    });
    findings.collect()
}
