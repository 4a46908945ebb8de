//! Removal of repeated ids from a spool.
//!
//! The recorder drops code addresses and stacks when they become too many, and writes them remap
//! when they repeat. A raw trace contains each once, so it grows with the number of different ones,
//! not with time.

use std::hash::BuildHasher;

use hashbrown::HashTable;
use rustc_hash::FxBuildHasher;

use crate::trace::{CodeAddress, FrameId, StackId, StackTable};

/// Map from the ids of a spool to those of its raw trace.
#[derive(Default)]
pub(super) struct IdRemapper {
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    /// Frames of the raw trace, by address and generation.
    rows: HashTable<u32>,
    generations: Vec<u32>,
    /// Number of method rows so far. After each, the same address may contain other code.
    pub(super) methods: u32,
    /// Number of kernel code rows so far.
    pub(super) kernel_code: u32,
}

fn hash(code: CodeAddress, generation: u32) -> u64 {
    FxBuildHasher.hash_one((code, generation))
}

impl IdRemapper {
    /// Adds the next code address of the spool. Returns whether the raw trace got a new frame.
    pub(super) fn frame(&mut self, code: CodeAddress, frames: &mut Vec<CodeAddress>) -> bool {
        let generation = match code {
            CodeAddress::Jit(..) => self.methods,
            CodeAddress::Kernel(_) => self.kernel_code,
            _ => 0,
        };
        let Self {
            rows, generations, ..
        } = self;
        let is_same =
            |&row: &u32| frames[row as usize] == code && generations[row as usize] == generation;
        if let Some(&row) = rows.find(hash(code, generation), is_same) {
            self.frames.push(FrameId(row));
            return false;
        }
        let row = frames.len() as u32;
        frames.push(code);
        generations.push(generation);
        rows.insert_unique(hash(code, generation), row, |&row| {
            hash(frames[row as usize], generations[row as usize])
        });
        self.frames.push(FrameId(row));
        true
    }

    /// Adds the next stack of the spool.
    ///
    /// Returns the caller's stack and the frame in the raw trace if the stack is new there.
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

    /// Returns the id of a frame in the raw trace.
    pub(super) fn frame_of(&self, frame: FrameId) -> FrameId {
        self.frames[frame.index()]
    }

    /// Returns the id of a stack in the raw trace.
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
    fn changed_code_at_an_address_gets_another_frame() {
        let jit = CodeAddress::Jit(ProcessId(0), 1);
        let kernel = CodeAddress::Kernel(1);
        let mut remap = IdRemapper::default();
        let mut frames = Vec::new();
        let mut is_new = |remap: &mut IdRemapper, code| remap.frame(code, &mut frames);
        assert!(is_new(&mut remap, jit) && is_new(&mut remap, kernel));
        assert!(!is_new(&mut remap, jit) && !is_new(&mut remap, kernel));
        remap.methods = 1;
        assert!(is_new(&mut remap, jit) && !is_new(&mut remap, kernel));
        remap.kernel_code = 1;
        assert!(!is_new(&mut remap, jit) && is_new(&mut remap, kernel));
        assert_eq!(frames, [jit, kernel, jit, kernel]);
        // Frame 6 of the spool is frame 2 of the raw trace.
        let mut stacks = StackTable::default();
        let stack = remap.stack(StackId::EMPTY, FrameId(6), &mut stacks);
        assert_eq!(stack, Some((StackId::EMPTY, FrameId(2))));
    }
}
