//! The stacks of a selection.

use super::CodePatterns;
use super::frames::{FrameRule, Frames};
use crate::output::own_code::OwnCode;
use crate::trace::{EventCode, Frame, Function, FunctionId, StackId, StackTable, Trace};

/// What is left of a stack.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectedStack {
    pub(super) stack: StackId,
    /// Bits of the include patterns that its frames match.
    pub(super) included: u64,
    /// Group of the innermost frame.
    group: Option<u32>,
}

impl SelectedStack {
    /// Returns a stack that stays as it is.
    pub(super) fn unchanged(stack: StackId) -> Self {
        Self {
            stack,
            included: 0,
            group: None,
        }
    }

    /// Returns the stack with a callee, or `None` if it does not count.
    fn calling(self, rule: &FrameRule, table: &mut StackTable) -> Option<Self> {
        if rule.is_excluded {
            return None;
        }
        let is_within = rule.group.is_some() && rule.group == self.group;
        if rule.is_folded || is_within {
            return Some(self);
        }
        Some(Self {
            stack: table.push(self.stack, rule.frame),
            included: self.included | rule.included,
            group: rule.group,
        })
    }
}

/// The stacks that patterns make of those of a trace.
pub(super) struct SelectedStacks {
    /// What is left of each stack; `None` if it does not count.
    of_stack: Vec<Option<SelectedStack>>,
    table: StackTable,
    functions: Vec<Function>,
    frames: Vec<Frame>,
    frame_functions: Vec<FunctionId>,
}

impl SelectedStacks {
    pub(super) fn new(trace: &Trace, patterns: &CodePatterns, own_code: Option<OwnCode>) -> Self {
        let mut frames = Frames::new(trace, patterns, own_code);
        let mut table = StackTable::default();
        let mut selected = Self {
            of_stack: Vec::with_capacity(trace.stacks.len()),
            table: StackTable::default(),
            functions: Vec::new(),
            frames: Vec::new(),
            frame_functions: Vec::new(),
        };
        for (_, caller, frame) in trace.stacks.nodes() {
            let mut entries = trace.frames[frame.index()].functions.clone();
            let calls = |caller: SelectedStack| {
                entries.try_fold(caller, |caller, entry| {
                    caller.calling(&frames.rule(frame, entry), &mut table)
                })
            };
            let stack = selected.of(caller).and_then(calls);
            selected.of_stack.push(stack);
        }
        Self {
            table,
            functions: frames.functions,
            frames: frames.frames,
            frame_functions: frames.frame_functions,
            ..selected
        }
    }

    /// Returns what is left of a stack, or `None` if it does not count.
    pub(super) fn of(&self, stack: StackId) -> Option<SelectedStack> {
        match stack {
            StackId::EMPTY => Some(SelectedStack::unchanged(stack)),
            stack => self.of_stack.get(stack.index()).copied().flatten(),
        }
    }

    /// Replaces the stacks of the trace.
    pub(super) fn apply(self, trace: &mut Trace) {
        trace.stacks = self.table;
        trace.functions = self.functions;
        trace.frames = self.frames;
        trace.frame_functions = self.frame_functions;
        // It refers to the frames before.
        trace.event_code = EventCode::default();
    }
}
