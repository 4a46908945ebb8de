//! The unwind rule of an instruction, from the state before it.

use super::state::{RBP, RSP, State, Value};
use crate::unwind::rule::{Base, UnwindRule};

/// How certain a rule is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Certainty {
    /// Not all paths through the function were seen, or they contradict each other.
    Likely,
    /// All returns of the function find the return address and the caller's registers.
    Checked,
}

/// What an analysis shows about a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The caller's frame.
    Caller(UnwindRule, Certainty),
    /// The frame has no caller: a thread starts there.
    Root,
    /// The function has changed to another stack: its caller's frame is elsewhere.
    OtherStack(StackSwitch),
}

/// A function that has changed to another stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackSwitch {
    /// First address of the function (SVMA).
    pub function: u64,
    /// Whether rbp still leads to the frames of the callers.
    pub keeps_rbp: bool,
}

impl Finding {
    /// Returns whether it is certain.
    pub(super) fn is_checked(&self) -> bool {
        !matches!(self, Self::Caller(_, Certainty::Likely))
    }

    /// Lowers the certainty. A root that is not certain is none.
    pub(super) fn doubted(self) -> Option<Self> {
        match self {
            Self::Caller(rule, _) => Some(Self::Caller(rule, Certainty::Likely)),
            Self::Root | Self::OtherStack(_) => None,
        }
    }
}

/// Returns the rule at an instruction. Returns `None` if the CFA is unknown.
pub(super) fn rule(state: &State) -> Option<UnwindRule> {
    let (sp, bp) = (state.get(RSP), state.get(RBP));
    let (base, offset) = match (sp, bp) {
        (Value::Cfa(sp), _) => (Base::Rsp, sp),
        (_, Value::Cfa(bp)) => (Base::Rbp, bp),
        _ => return linked_rule(state),
    };
    let saved = state.saved(RBP);
    UnwindRule::new(base, offset.checked_neg()?, saved)
}

/// Returns the rule of an aligned frame, which has the address of the CFA, or near it, on the stack.
fn linked_rule(state: &State) -> Option<UnwindRule> {
    let bases = [(Base::Rbp, state.get(RBP)), (Base::Rsp, state.get(RSP))];
    bases.into_iter().find_map(|(base, value)| {
        let Value::Aligned(at) = value else {
            return None;
        };
        let (link, offset) = state.aligned_links().next()?;
        let saved = match state.saved_aligned(RBP) {
            Some(saved) => Some(saved.checked_sub(at)?),
            None => None,
        };
        UnwindRule::linked(base, link.checked_sub(at)?, offset.checked_neg()?, saved)
    })
}

/// Returns whether the state is that of a function that starts a thread or a program.
///
/// The ABI recommends to set the frame pointer to 0 there (System V ABI for x86-64, "Process
/// Initialization"). Nothing keeps the caller's one: there is none.
pub(super) fn is_root(state: &State) -> bool {
    state.get(RBP) == Value::Constant(0) && !state.has_entry_value(RBP)
}
