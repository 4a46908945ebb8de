//! Page faults take much of a process's CPU time.

use super::scene::{Scene, cpus, percent};
use crate::output::summary::Finding;

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.1;
const MIN_CPUS: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.page_faults;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        (part >= MIN_PART && used >= MIN_CPUS).then(|| {
            let text = format!(
                "page faults take {1} of the CPU time of {0} ({2}): it uses memory for the first time, or again after it was given back",
                program.name(),
                percent(part),
                cpus(used)
            );
            program
                .finding("page-faults", text)
                .from("processes.work.page_faults")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
        })
    });
    programs.collect()
}
