//! The function that represents a stack: the user's, if there is one.

use crate::output::label;
use crate::output::own_code::{OwnCode, is_c_library, is_root};
use crate::trace::{FrameId, Function, FunctionId, FunctionKind, StackId, Trace};

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
        Self::ranked(trace, own_code, stack, |_| Some(0))
    }

    /// The same without the functions of the kernel. If none is the user's, one of managed code, or else one
    /// that is not of the C library, says more than how that enters the kernel, if it has a name.
    pub(super) fn of_program(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        Self::ranked(trace, own_code, stack, |function| {
            let name = label::known_name(function);
            match function.kind {
                FunctionKind::Kernel => None,
                _ if name.is_none_or(is_root) => Some(0),
                FunctionKind::Jit | FunctionKind::ReadyToRun => Some(3),
                _ if is_c_library(&function.module) => Some(1),
                _ => Some(2),
            }
        })
    }

    /// Returns the innermost function of the user, or else the innermost one of those with the highest rank.
    fn ranked(
        trace: &Trace,
        own_code: &OwnCode,
        stack: StackId,
        rank: impl Fn(&Function) -> Option<u8>,
    ) -> Self {
        let mut best = (Self::default(), None);
        for frame in trace.stacks.leaf_first(stack) {
            for id in trace.functions_leaf_first(frame) {
                let function = &trace.functions[id.index()];
                if matches!(function.kind, FunctionKind::Blocked | FunctionKind::Marker) {
                    continue;
                }
                let rank = rank(function);
                let own = rank.is_some() && own_code.is_own(id);
                if own || rank > best.1 {
                    let function = Some((first_frame(trace, frame, id), id));
                    best = (Self { function, own }, rank);
                }
                if own {
                    return best.0;
                }
            }
        }
        best.0
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
