//! What a spool tells again: its recorder forgets code addresses and stacks when they become too many, and tells those that come
//! again anew. In a recording each is once, so it grows with what differs, not with time.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::trace::{CodeAddress, FrameId, StackId, StackTable};

/// From the ids of a spool to those of its recording.
#[derive(Default)]
pub(super) struct IdRemapper {
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    /// Rows of the recording by address and age.
    known: HashTable<u32>,
    ages: Vec<u32>,
    /// How often it was told what code made at run time is, and code of the kernel: from then on the same address may be other code.
    pub(super) methods: u32,
    pub(super) kernel_code: u32,
}

fn hash(code: CodeAddress, age: u32) -> u64 {
    FxBuildHasher.hash_one((code, age))
}

impl IdRemapper {
    /// Takes in the next code address of the spool; whether the recording got a new frame.
    pub(super) fn frame(&mut self, code: CodeAddress, frames: &mut Vec<CodeAddress>) -> bool {
        let age = match code {
            CodeAddress::Jit(..) => self.methods,
            CodeAddress::Kernel(_) => self.kernel_code,
            _ => 0,
        };
        let Self { known, ages, .. } = self;
        let is_it = |&row: &u32| frames[row as usize] == code && ages[row as usize] == age;
        if let Some(&row) = known.find(hash(code, age), is_it) {
            self.frames.push(FrameId(row));
            return false;
        }
        let row = frames.len() as u32;
        frames.push(code);
        ages.push(age);
        known.insert_unique(hash(code, age), row, |&row| {
            hash(frames[row as usize], ages[row as usize])
        });
        self.frames.push(FrameId(row));
        true
    }

    /// Takes in the next stack of the spool: the caller's stack and the frame in the recording, if the recording got a new stack.
    pub(super) fn stack(
        &mut self,
        parent: StackId,
        frame: FrameId,
        stacks: &mut StackTable,
    ) -> Option<(StackId, FrameId)> {
        let (parent, frame) = (self.stack_of(parent), self.frames[frame.index()]);
        let next = stacks.len();
        let stack = stacks.push(parent, frame);
        self.stacks.push(stack);
        (stack.index() == next).then_some((parent, frame))
    }

    /// The stack in the recording.
    pub(super) fn stack_of(&self, stack: StackId) -> StackId {
        match stack {
            StackId::EMPTY => stack,
            stack => self.stacks[stack.index()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ProcessId;

    #[test]
    fn an_address_that_may_be_other_code_is_another_frame() {
        let jit = CodeAddress::Jit(ProcessId(0), 1);
        let kernel = CodeAddress::Kernel(1);
        let mut again = IdRemapper::default();
        let mut frames = Vec::new();
        let mut is_new = |again: &mut IdRemapper, code| again.frame(code, &mut frames);
        assert!(is_new(&mut again, jit) && is_new(&mut again, kernel));
        assert!(!is_new(&mut again, jit) && !is_new(&mut again, kernel));
        again.methods = 1;
        assert!(is_new(&mut again, jit) && !is_new(&mut again, kernel));
        again.kernel_code = 1;
        assert!(!is_new(&mut again, jit) && is_new(&mut again, kernel));
        assert_eq!(frames, [jit, kernel, jit, kernel]);
        // The sixth of the spool is the third of the recording.
        let mut stacks = StackTable::default();
        let stack = again.stack(StackId::EMPTY, FrameId(6), &mut stacks);
        assert_eq!(stack, Some((StackId::EMPTY, FrameId(2))));
    }
}
