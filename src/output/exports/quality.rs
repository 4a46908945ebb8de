//! The quality of a trace as lines, for the place that a format has for it.

use crate::output::sanitize::terminal;
use crate::trace::{NameCount, SymbolCounts, Trace};

/// Maximum number of notices.
const MAX_NOTICES: usize = 50;

/// Returns what was measured, how much was lost, truncated and unnamed, and the notices.
#[must_use]
pub fn lines(trace: &Trace) -> Vec<String> {
    let (info, quality) = (&trace.info, &trace.quality);
    let seconds = info.seconds();
    let event = match info.event.as_str() {
        "" => "unknown event",
        event => event,
    };
    let mut lines: Vec<String> = quality.losses.incomplete_warning().into_iter().collect();
    lines.push(format!(
        "{}: {} samples of {event} in {seconds:.1} s",
        info.target,
        trace.samples.len(),
    ));
    lines.push(format!("lost records: {}", quality.losses.lost()));
    let stacks = &quality.stacks;
    let truncated = stacks.truncated().saturating_add(stacks.empty);
    lines.push(format!("samples with a truncated stack: {truncated}"));
    let [unnamed, frames] = names(&quality.names);
    lines.push(format!("frames without a name: {unnamed} of {frames}"));
    let notices = quality.notices.iter().map(|notice| &notice.what);
    lines.extend(notices.clone().take(MAX_NOTICES).cloned());
    let more = notices.count().saturating_sub(MAX_NOTICES);
    if more > 0 {
        lines.push(format!("and {more} more notices"));
    }
    lines
        .iter()
        .map(|line| terminal(line).into_owned())
        .collect()
}

/// Returns the number of frames without a name, and of all.
fn names(counts: &SymbolCounts) -> [u64; 2] {
    let SymbolCounts {
        kernel,
        native,
        jit,
        ready_to_run,
        unmapped,
    } = counts;
    let all = [kernel, native, jit, ready_to_run, unmapped];
    let sum = |count: fn(&NameCount) -> u64| {
        // The summary of a trace is untrusted.
        all.into_iter().map(count).fold(0, u64::saturating_add)
    };
    let unnamed = sum(|count| count.unresolved);
    [unnamed, unnamed.saturating_add(sum(|count| count.named))]
}
