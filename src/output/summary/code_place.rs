//! The function that represents a stack: the user's, if there is one.

use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{FrameId, FunctionId, FunctionKind, StackId, Trace};

use super::kept;

/// The innermost function of the user on a stack, or else the innermost one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct CodePlace {
    /// `None` if the stack has no function.
    function: Option<(FrameId, FunctionId)>,
    /// Whether it is the user's.
    pub(super) own: bool,
}

impl CodePlace {
    pub(super) fn of(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        Self::among(trace, own_code, stack, |_| true)
    }

    /// The same without the functions of the kernel.
    pub(super) fn of_program(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        Self::among(trace, own_code, stack, |kind| kind != FunctionKind::Kernel)
    }

    fn among(
        trace: &Trace,
        own_code: &OwnCode,
        stack: StackId,
        counts: impl Fn(FunctionKind) -> bool,
    ) -> Self {
        let mut place = Self::default();
        for frame in trace.stacks.leaf_first(stack) {
            for id in trace.functions_leaf_first(frame) {
                let kind = trace.functions[id.index()].kind;
                let is_code =
                    counts(kind) && !matches!(kind, FunctionKind::Blocked | FunctionKind::Marker);
                let own = own_code.is_own(id);
                if is_code && (own || place.function.is_none()) {
                    let function = Some((first_frame(trace, frame, id), id));
                    place = Self { function, own };
                }
                if place.own {
                    return place;
                }
            }
        }
        place
    }

    /// Returns the module and the name of the function, both empty if there is none.
    pub(super) fn names(self, trace: &Trace) -> [String; 2] {
        let Some((frame, function)) = self.function else {
            return [String::new(), String::new()];
        };
        let row = &trace.functions[function.index()];
        [
            kept(label::module(row)),
            kept(&label::name(trace, frame, function)),
        ]
    }
}

/// Returns the same frame for all addresses of a function with a name.
fn first_frame(trace: &Trace, frame: FrameId, function: FunctionId) -> FrameId {
    match trace.functions[function.index()].name {
        Some(_) => FrameId(0),
        None => frame,
    }
}
