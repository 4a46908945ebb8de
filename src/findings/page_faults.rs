//! Page faults take much of a process's CPU time.

use super::scene::{Scene, cpus, percent};
use crate::output::summary::{Finding, WorkKind};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN: [f64; 2] = [0.1, 0.1];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let loads = scene.with_work(WorkKind::PageFaults, MIN);
    let findings = loads.map(|load| {
        let text = format!(
            "page faults take {1} of the CPU time of {0} ({2}): it uses memory for the first time, or again after it was given back{3}",
            load.program.name(),
            percent(load.part),
            cpus(load.cpus),
            load.behind()
        );
        load.finding("page-faults", "processes.work.page_faults", text)
    });
    findings.collect()
}
