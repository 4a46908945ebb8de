//! Findings: what is remarkable in a trace, in words. One file per rule, and one for the rules
//! about kinds of work.
//!
//! A rule reads the summary only, so that each number of a finding is in `summary.json`, and the
//! findings of a trace can be found again later. It is silent below its threshold.

mod contention;
mod cpu_pressure;
mod cpu_use;
mod debug_build;
mod doubt;
mod exceptions;
mod gc;
mod jit;
mod kernel;
mod scene;
mod thread_pool;
mod work;

use crate::output::summary::{Finding, Summary};
use scene::Scene;

/// Maximum number of findings.
const MAX_FINDINGS: usize = 20;

/// A rule: the findings that follow from a summary.
type Rule = fn(&Scene<'_>) -> Vec<Finding>;

const RULES: [Rule; 11] = [
    cpu_use::find,
    cpu_pressure::find,
    gc::find,
    contention::find,
    thread_pool::find,
    exceptions::find,
    jit::find,
    kernel::find,
    work::find,
    debug_build::find,
    doubt::find,
];

/// Returns the findings about a trace, most costly first.
#[must_use]
pub fn find(summary: &Summary) -> Vec<Finding> {
    let scene = Scene::new(summary);
    let mut all: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&scene)).collect();
    all.sort_by(|a, b| b.cost_cpus.total_cmp(&a.cost_cpus));
    all.truncate(MAX_FINDINGS);
    all
}

#[cfg(test)]
mod tests;
