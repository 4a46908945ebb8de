//! Counts the samples of frames, symbols and modules of a trace.

use super::modules;
use crate::trace::{CodeAddress, FrameId, StackId, SymbolCounts, Trace};

/// Counts the symbolized frames of a trace. Returns the number of samples of each frame.
pub(crate) fn count(trace: &mut Trace) -> Vec<u64> {
    let samples = samples_of_frames(trace);
    trace.quality.names = count_names(trace, &samples);
    samples
}

/// Returns the number of samples of each frame; a recursive frame counts once per occurrence.
/// Totals are added from the leaves to the roots, children before parents.
fn samples_of_frames(trace: &Trace) -> Vec<u64> {
    let mut samples = vec![0_u64; trace.stacks.len()];
    for sample in trace.samples.iter().filter(|s| s.stack != StackId::EMPTY) {
        samples[sample.stack.index()] += 1;
    }
    let mut of_frames = vec![0; trace.frames.len()];
    for (stack, caller, frame) in trace.stacks.nodes().rev() {
        let count = samples[stack.index()];
        if caller != StackId::EMPTY {
            samples[caller.index()] += count;
        }
        of_frames[frame.index()] += count;
    }
    of_frames
}

fn count_names(trace: &Trace, samples_of_frames: &[u64]) -> SymbolCounts {
    let mut names = SymbolCounts::default();
    for (row, &count) in samples_of_frames.iter().enumerate() {
        for function in trace.functions_leaf_first(FrameId(row as u32)) {
            let function = &trace.functions[function.index()];
            if let Some(of_kind) = names.of_kind(function.kind) {
                of_kind.count(function.name.is_some(), count);
            }
        }
    }
    names
}

pub(super) fn count_modules(
    trace: &Trace,
    codes: &[CodeAddress],
    samples_of_frames: &[u64],
) -> modules::Counts {
    let mut counts = modules::Counts::new();
    for (row, (&code, &count)) in codes.iter().zip(samples_of_frames).enumerate() {
        let outermost = trace.functions_leaf_first(FrameId(row as u32)).last();
        if let (Some(id), Some(function)) = (modules::of(code), outermost) {
            let is_named = trace.functions[function.index()].name.is_some();
            counts.entry(id).or_default().count(is_named, count);
        }
    }
    counts
}
