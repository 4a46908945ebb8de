//! What makes the other findings and tables doubtful: losses, and stacks that lack callers.

use super::scene::{Scene, percent};
use crate::output::summary::Finding;

/// Share of the stacks without all callers above which totals are doubtful.
const MAX_TRUNCATED: f64 = 0.1;
/// Minimum number of samples: a few show little anyway.
const MIN_SAMPLES: u64 = 100;

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    let quality = &scene.summary.quality;
    let mut findings = Vec::new();
    if let Some(warning) = quality.losses.incomplete_warning() {
        findings.push(Finding::new("data-lost", warning).from("quality.losses"));
    }
    let stacks = &quality.stacks;
    let part = stacks.truncated() as f64 / stacks.samples().max(1) as f64;
    if stacks.samples() >= MIN_SAMPLES && part >= MAX_TRUNCATED {
        let lacking = scene
            .programs()
            .filter(|program| program.process.work.truncated > 0);
        let most = lacking.max_by_key(|program| program.process.work.truncated);
        let of = most.as_ref().map_or_else(String::new, |program| {
            let of_all = program.process.work.truncated as f64 / stacks.truncated() as f64;
            format!(
                ", {} of them of {}",
                percent(of_all.min(1.0)),
                program.name()
            )
        });
        let text = format!(
            "{} of the stacks lack callers{of}: the totals of callers are too low",
            percent(part)
        );
        let finding = Finding::new("callers-missing", text);
        let finding = match &most {
            Some(program) => finding.more(&program.more(None)),
            None => finding,
        };
        findings.push(
            finding
                .from("quality.stacks")
                .from("processes.work.truncated")
                .figure("truncated_percent", part * 100.0),
        );
    }
    findings
}
