//! The JIT compiler of .NET takes much of a process's CPU time.

use super::scene::{Scene, cpus, percent};
use crate::output::summary::Finding;

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.15;
const MIN_CPUS: f64 = 0.05;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.jit;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        (part >= MIN_PART && used >= MIN_CPUS).then(|| {
            let text = format!(
                "JIT compilation takes {1} of the CPU time of {0} ({2})",
                program.name(),
                percent(part),
                cpus(used)
            );
            program
                .finding("jit", text)
                .from("processes.work.jit")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
        })
    });
    programs.collect()
}
