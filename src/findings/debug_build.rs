//! The user's .NET code was compiled without optimization because its assembly asks for it.

use super::scene::{Scene, percent};
use crate::output::summary::{Finding, WorkKind};

/// Share of the samples of the user's code below which it is not remarkable.
const MIN_PART: f64 = 0.5;
/// Minimum number of samples of the user's code.
const MIN_SAMPLES: u64 = 100;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.notable_programs().filter_map(|program| {
        let work = program.process.work;
        let part = work.not_optimized as f64 / work.own.max(1) as f64;
        (work.own >= MIN_SAMPLES && part >= MIN_PART).then(|| {
            let text = format!(
                "{} runs a debug build: {} of the samples in or below your code are in methods compiled without optimization{}",
                program.name(),
                percent(part),
                program.behind(WorkKind::NotOptimized)
            );
            let method = program.method_behind(WorkKind::NotOptimized);
            program
                .finding("debug-build", text)
                .more(&program.more(method.map(|(row, _)| &*row.name)))
                .from("processes.work.not_optimized")
                .from("shares.work_methods")
                .figure("not_optimized_percent", part * 100.0)
                .costing(program.cpus_of(work.not_optimized))
        })
    });
    programs.collect()
}
