//! Findings: what is remarkable in a trace, in words. One file per rule, and one for the rules
//! about kinds of work.
//!
//! A rule reads the summary only, so that each number of a finding is in `summary.json`, and the
//! findings of a trace can be found again later. It is silent below its threshold.

mod blocked;
mod connections;
mod contention;
mod cpu_pressure;
mod cpu_use;
mod debug_build;
mod doubt;
mod exceptions;
mod gc;
mod jit;
mod kernel;
mod memory_growth;
mod network;
mod scene;
mod slow_requests;
mod startup;
mod symptoms;
mod thread_pool;
mod thread_time;
mod work;

use std::collections::BTreeMap;

use crate::output::summary::{Finding, Summary};
use scene::Scene;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 20;
/// Maximum number of findings of a rule about processes of the same program. The others are counted.
const MAX_SAME: usize = 3;

/// A rule: the findings that follow from a summary.
type Rule = fn(&Scene<'_>) -> Vec<Finding>;

const RULES: [Rule; 18] = [
    blocked::find,
    cpu_use::find,
    cpu_pressure::find,
    gc::find,
    contention::find,
    thread_pool::find,
    thread_time::find,
    slow_requests::find,
    network::find,
    connections::find,
    memory_growth::find,
    startup::find,
    exceptions::find,
    jit::find,
    kernel::find,
    work::find,
    debug_build::find,
    doubt::find,
];

/// Returns the findings about a trace, most costly first. A deadlock precedes all: it never ends, and other
/// threads wait because of it. Those that answer the symptom that the capture was for precede others.
#[must_use]
pub fn find(summary: &Summary) -> Vec<Finding> {
    let scene = Scene::new(summary);
    let mut all: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&scene)).collect();
    // Its only thread is described already.
    let waiting: Vec<Option<i32>> = blocked::waits_of_one_thread(&all).collect();
    all.retain(|finding| finding.rule != thread_time::RULE || !waiting.contains(&finding.pid));
    all.sort_by(|a, b| {
        let is_deadlock = |finding: &Finding| finding.rule == blocked::DEADLOCK;
        let order = is_deadlock(b).cmp(&is_deadlock(a));
        order.then_with(|| b.cost_cpus.total_cmp(&a.cost_cpus))
    });
    let mut all = without_repetition(all);
    symptoms::sort(&scene, &mut all);
    all.truncate(MAX_FINDINGS);
    all
}

/// Keeps the first findings of a rule about processes of the same program. The last of them says how
/// many there are.
fn without_repetition(all: Vec<Finding>) -> Vec<Finding> {
    let mut counts: BTreeMap<(String, String), usize> = BTreeMap::new();
    let key = |finding: &Finding| (finding.rule.clone(), finding.subject.clone());
    let mut kept = Vec::new();
    for finding in all {
        let count = counts.entry(key(&finding)).or_default();
        *count += 1;
        if *count <= MAX_SAME || finding.pid.is_none() {
            kept.push(finding);
        }
    }
    for finding in kept.iter_mut().rev() {
        let more = counts.remove(&key(finding)).unwrap_or_default();
        let more = more.saturating_sub(MAX_SAME);
        if more > 0 && finding.pid.is_some() {
            let (processes, program) = (plural(more), scene::shown(&finding.subject));
            finding.text += &format!("; the same in {more} more {processes} of {program}");
        }
    }
    kept
}

fn plural(processes: usize) -> &'static str {
    match processes {
        1 => "process",
        _ => "processes",
    }
}

#[cfg(test)]
mod symptom_tests;
#[cfg(test)]
mod tests;
