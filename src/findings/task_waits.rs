//! Threads block until tasks are complete (sync over async).

use super::scene::{Scene, cpus, percent};
use crate::output::summary::Finding;

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.01;
const MIN_CPUS: f64 = 0.0;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.task_waits;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        (part >= MIN_PART && used >= MIN_CPUS).then(|| {
            let text = format!(
                "threads of {0} block until tasks are complete (sync over async): {1} of its CPU time ({2}) is in such waits",
                program.name(),
                percent(part),
                cpus(used)
            );
            program
                .finding("sync-over-async", text)
                .from("processes.work.task_waits")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
        })
    });
    programs.collect()
}
