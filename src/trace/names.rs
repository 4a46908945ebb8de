//! Counts the samples of frames with and without a name.

use super::{FrameId, StackId, SymbolCounts, Trace};

impl Trace {
    /// Counts the symbolized frames. Returns the number of samples of each frame.
    pub fn count_names(&mut self) -> Vec<u64> {
        let samples = samples_of_frames(self);
        self.quality.names = names(self, &samples);
        samples
    }
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

fn names(trace: &Trace, samples_of_frames: &[u64]) -> SymbolCounts {
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
