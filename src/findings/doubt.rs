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
        let text = format!(
            "{} of the stacks lack callers: the totals of callers are too low",
            percent(part)
        );
        let finding = Finding::new("callers-missing", text);
        findings.push(
            finding
                .from("quality.stacks")
                .figure("truncated_percent", part * 100.0),
        );
    }
    findings
}
