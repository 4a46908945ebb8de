//! Loops that wait for a lock or another thread take much of a process's CPU time.

use super::scene::{Scene, cpus, percent};
use crate::output::summary::Finding;

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.05;
const MIN_CPUS: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.spinning;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        (part >= MIN_PART && used >= MIN_CPUS).then(|| {
            let text = format!(
                "{0} spends {1} of its CPU time ({2}) in loops that wait for a lock or another thread",
                program.name(),
                percent(part),
                cpus(used)
            );
            program
                .finding("spinning", text)
                .from("processes.work.spinning")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
        })
    });
    programs.collect()
}
