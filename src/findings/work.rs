//! One kind of work takes much of a process's CPU time.

use super::scene::{Scene, WorkLoad};
use crate::output::summary::{Finding, WorkKind};

/// A kind of work that is remarkable, with the words for it.
struct WorkRule {
    kind: WorkKind,
    name: &'static str,
    /// Where the summary counts it.
    evidence: &'static str,
    /// Part of the process's CPU time, and CPUs, below which it is not remarkable.
    min: [f64; 2],
    text: fn(&WorkLoad<'_>) -> String,
}

const RULES: [WorkRule; 3] = [
    WorkRule {
        kind: WorkKind::PageFaults,
        name: "page-faults",
        evidence: "processes.work.page_faults",
        min: [0.1, 0.1],
        text: |load| {
            format!(
                "page faults take {} of the CPU time of {} ({}): it uses memory for the first time, or again after it was given back",
                load.percent(),
                load.program.name(),
                load.cpus()
            )
        },
    },
    WorkRule {
        kind: WorkKind::Spinning,
        name: "spinning",
        evidence: "processes.work.spinning",
        min: [0.05, 0.05],
        text: |load| {
            format!(
                "{} spends {} of its CPU time ({}) in loops that wait for a lock or another thread",
                load.program.name(),
                load.percent(),
                load.cpus()
            )
        },
    },
    WorkRule {
        kind: WorkKind::TaskWaits,
        name: "sync-over-async",
        evidence: "processes.work.task_waits",
        min: [0.01, 0.01],
        text: |load| {
            format!(
                "threads of {} block until tasks are complete (sync over async): {} of its CPU time ({}) is in such waits",
                load.program.name(),
                load.percent(),
                load.cpus()
            )
        },
    },
];

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let findings = RULES.iter().flat_map(|rule| {
        let loads = scene.with_work(rule.kind, rule.min);
        loads.map(|load| load.finding(rule.name, rule.evidence, (rule.text)(&load)))
    });
    findings.collect()
}
