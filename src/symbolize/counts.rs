//! Counts the samples of modules of a trace.

use super::modules;
use crate::trace::{CodeAddress, FrameId, Trace};

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
