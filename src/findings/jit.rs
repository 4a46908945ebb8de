//! The JIT compiler of .NET takes much of a process's CPU time: what it compiles again.

use super::scene::{Scene, cpus, percent, shown};
use crate::output::summary::{Finding, REPORT, RuntimeSummary};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.15;
const MIN_CPUS: f64 = 0.05;
/// Share of the compilations that are remarkable if they are of methods with the same tier before.
const MIN_AGAIN: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.jit;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        (part >= MIN_PART && used >= MIN_CPUS).then(|| {
            let mut text = format!(
                "JIT compilation takes {} of the CPU time of {} ({})",
                percent(part),
                program.name(),
                cpus(used)
            );
            let mut runtimes = scene.summary.runtimes.iter();
            let runtime = runtimes.find(|runtime| runtime.pid == program.process.pid);
            text += &runtime.map(compiled).unwrap_or_default();
            let more = match runtime {
                Some(_) => format!(
                    "view TRACE -viewer jit -processfilter {}",
                    program.process.pid
                ),
                None => REPORT.to_owned(),
            };
            program
                .finding("jit", text)
                .from("processes.work.jit")
                .from("runtimes.jit")
                .figure("cpu_percent", part * 100.0)
                .figure("used_cpus", used)
                .costing(used)
                .more(more)
        })
    });
    programs.collect()
}

/// Describes what was compiled.
fn compiled(runtime: &RuntimeSummary) -> String {
    let Some(jit) = &runtime.jit else {
        return String::new();
    };
    let mut text = format!(": {} methods", jit.count);
    let tier = jit.tiers.iter().max_by(|a, b| a.ms.total_cmp(&b.ms));
    if let Some(tier) = tier {
        text += &format!(", most time for {}", shown(&tier.tier));
    }
    if jit.again_count as f64 >= jit.count as f64 * MIN_AGAIN
        && let Some(row) = jit.again.first()
    {
        text += &format!(
            "; {} compiled again, such as {}",
            jit.again_count,
            shown(&row.name)
        );
    }
    text
}
