//! The JIT compiler of .NET takes much of a process's CPU time: what it compiles again.

use super::scene::{Scene, shown};
use crate::output::summary::{Finding, JitSummary, TRACE, WorkKind};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN: [f64; 2] = [0.15, 0.05];
/// CPUs for code that replaces code which already runs (tiered compilation): every program does that
/// in its first minutes.
const MIN_BACKGROUND_CPUS: f64 = 0.3;
/// Share of the compilations that are remarkable if they are of methods with the same tier before.
const MIN_AGAIN: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let loads = scene.with_work(WorkKind::Jit, MIN);
    let findings = loads.filter_map(|load| {
        let pid = load.program.process.pid;
        let mut runtimes = scene.summary.runtimes.iter();
        let runtime = runtimes.find(|runtime| runtime.pid == pid);
        let jit = runtime.and_then(|runtime| runtime.jit.as_ref());
        let warms_up = jit.is_some_and(|jit| jit.foreground_ms * 2.0 < jit.ms);
        if warms_up && load.used_cpus < MIN_BACKGROUND_CPUS {
            return None;
        }
        let mut text = format!(
            "JIT compilation takes {} of the CPU time of {} ({})",
            load.percent(),
            load.program.name(),
            load.cpus()
        );
        if warms_up {
            text += ", most of it in the background, as it does when a program warms up";
        }
        text += &jit.map(compiled).unwrap_or_default();
        let finding = load.finding("jit", "processes.work.jit", text);
        Some(match runtime {
            Some(_) => finding.from("runtimes.jit").more(&[
                "view",
                TRACE,
                "-viewer",
                "jit",
                "-processfilter",
                &pid.to_string(),
            ]),
            None => finding,
        })
    });
    findings.collect()
}

/// Describes what was compiled.
fn compiled(jit: &JitSummary) -> String {
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
