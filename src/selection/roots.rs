//! Whether the stacks of a trace reach the root of their thread.

use crate::trace::{Callers, FunctionKind, StackId, StackQuality, Trace, Truncation};

/// Why each stack of a trace ends before the root, as the marker there says.
pub(super) struct Roots {
    truncations: Vec<Option<Truncation>>,
    callers: Callers,
}

impl Roots {
    pub(super) fn new(trace: &Trace) -> Self {
        let functions = trace.functions.iter().map(|function| {
            let is_marker = function.kind == FunctionKind::Marker;
            let name = function.name.as_deref().filter(|_| is_marker)?;
            Truncation::ALL.into_iter().find(|why| why.marker() == name)
        });
        let functions: Vec<Option<Truncation>> = functions.collect();
        let mut truncations = Vec::with_capacity(trace.stacks.len());
        for (_, parent, frame) in trace.stacks.nodes() {
            let truncation = match parent {
                StackId::EMPTY => {
                    let mut marker = trace.functions_leaf_first(frame);
                    marker.find_map(|function| functions[function.index()])
                }
                parent => truncations[parent.index()],
            };
            truncations.push(truncation);
        }
        Self {
            truncations,
            callers: trace.info.callers,
        }
    }

    /// Counts a sample with a stack.
    pub(super) fn count(&self, stack: StackId, quality: &mut StackQuality) {
        match self.truncations.get(stack.index()) {
            Some(&truncation) => quality.count(truncation, self.callers),
            None => quality.empty += 1,
        }
    }
}
