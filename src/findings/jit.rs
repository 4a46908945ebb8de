//! The JIT compiler of .NET takes much of a process's CPU time: what it compiles again.

use super::scene::{Scene, cpus, percent, shown};
use crate::output::summary::{Finding, REPORT, RuntimeSummary, TRACE};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN_PART: f64 = 0.15;
const MIN_CPUS: f64 = 0.05;
/// CPUs for code that replaces code which already runs (tiered compilation): every program does that
/// in its first minutes.
const MIN_BACKGROUND_CPUS: f64 = 0.2;
/// Share of the compilations that are remarkable if they are of methods with the same tier before.
const MIN_AGAIN: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let programs = scene.programs().filter_map(|program| {
        let samples = program.process.work.jit;
        let (part, used) = (program.part(samples), program.cpus_of(samples));
        let mut runtimes = scene.summary.runtimes.iter();
        let runtime = runtimes.find(|runtime| runtime.pid == program.process.pid);
        let jit = runtime.and_then(|runtime| runtime.jit.as_ref());
        let warms_up = jit.is_some_and(|jit| jit.foreground_ms * 2.0 < jit.ms);
        let min_cpus = if warms_up {
            MIN_BACKGROUND_CPUS
        } else {
            MIN_CPUS
        };
        (part >= MIN_PART && used >= min_cpus).then(|| {
            let mut text = format!(
                "JIT compilation takes {} of the CPU time of {} ({})",
                percent(part),
                program.name(),
                cpus(used)
            );
            if warms_up {
                text += ", most of it in the background, as it does when a program warms up";
            }
            text += &runtime.map(compiled).unwrap_or_default();
            let pid = program.process.pid.to_string();
            let more: &[&str] = match runtime {
                Some(_) => &["view", TRACE, "-viewer", "jit", "-processfilter", &pid],
                None => &REPORT,
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
