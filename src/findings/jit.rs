//! The JIT compiler of .NET takes much of a process's CPU time: what it compiles again.

use super::scene::{Scene, shown};
use crate::output::summary::{Finding, JitSummary, JitTier, TRACE, WorkKind};

/// Share of the process's CPU time, and CPUs, below which it is not remarkable.
const MIN: [f64; 2] = [0.15, 0.05];
/// CPUs below which it is not remarkable while a program starts or warms up: every program does that.
const MIN_PHASE_CPUS: f64 = 0.3;
/// Tier of code that runs for the first time.
const FIRST_TIER: &str = "QuickJitted";
/// Share of the compilations that are remarkable if they are of methods with the same tier before.
const MIN_AGAIN: f64 = 0.1;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let loads = scene.with_work(WorkKind::Jit, MIN);
    let findings = loads.filter_map(|load| {
        let pid = load.program.process.pid;
        let mut runtimes = scene.summary.runtimes.iter();
        let runtime = runtimes.find(|runtime| runtime.pid == pid);
        let jit = runtime.and_then(|runtime| runtime.jit.as_ref());
        let phase = jit.and_then(phase);
        if phase.is_some() && load.used_cpus < MIN_PHASE_CPUS {
            return None;
        }
        let mut text = format!(
            "JIT compilation takes {} of the CPU time of {} ({})",
            load.percent(),
            load.program.name(),
            load.cpus()
        );
        text += phase.unwrap_or_default();
        text += &jit.map(compiled).unwrap_or_default();
        let finding = load.finding("jit", "processes.work.jit", text);
        Some(match runtime {
            Some(_) => finding.from("runtimes.jit").more(&[
                "report",
                TRACE,
                "-kind",
                "jit",
                "-process",
                &pid.to_string(),
            ]),
            None => finding,
        })
    });
    findings.collect()
}

/// Returns the phase of a program in which it compiles so: with tiered compilation in the background,
/// code that already runs is replaced for some minutes.
fn phase(jit: &JitSummary) -> Option<&'static str> {
    if jit.foreground_ms * 2.0 < jit.ms {
        return Some(", most of it in the background, as it does when a program warms up");
    }
    let is_first = most_time(jit).is_some_and(|tier| tier.tier == FIRST_TIER);
    (is_first && !compiles_again(jit)).then_some(
        ", most of it for code that runs for the first time, as it does when a program starts",
    )
}

fn most_time(jit: &JitSummary) -> Option<&JitTier> {
    jit.tiers.iter().max_by(|a, b| a.ms.total_cmp(&b.ms))
}

fn compiles_again(jit: &JitSummary) -> bool {
    jit.again_count as f64 >= jit.count as f64 * MIN_AGAIN
}

/// Describes what was compiled.
fn compiled(jit: &JitSummary) -> String {
    let mut text = format!(": {} methods", jit.count);
    if let Some(tier) = most_time(jit) {
        text += &format!(", most time for {}", shown(&tier.tier));
    }
    if compiles_again(jit)
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
