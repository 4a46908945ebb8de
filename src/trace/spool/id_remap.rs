//! Removal of repeated ids from a spool.
//!
//! The recorder drops code addresses and stacks when they become too many, and writes them again
//! when they repeat. And each process of a .NET program has the same methods at other addresses. A
//! raw trace contains each code once, so it grows with the number of different ones, not with time.

use crate::trace::{CodeAddress, CodeKey, Distinct, FrameId, Methods, StackId, StackTable};

/// Map from the ids of a spool to those of its raw trace.
#[derive(Default)]
pub(super) struct IdRemapper {
    /// Frames and stacks of the spool that later rows may refer to, from `first_frame` and
    /// `first_stack` on.
    frames: Vec<FrameId>,
    stacks: Vec<StackId>,
    first_frame: usize,
    first_stack: usize,
    /// Code of the frames of the raw trace.
    code: Distinct<CodeKey>,
}

impl IdRemapper {
    /// Adds the next code address of the spool.
    pub(super) fn frame(
        &mut self,
        code: CodeAddress,
        frames: &mut Vec<CodeAddress>,
        methods: &mut Methods,
    ) {
        let row = methods.find(code);
        let frame = self.code.intern(methods.key(code, row));
        if frame as usize == frames.len() {
            frames.push(code);
            methods.push_frame(code, row);
        }
        self.frames.push(FrameId(frame));
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
        let (parent, frame) = (self.stack_of(parent), self.frame_of(frame));
        let next = stacks.len();
        let stack = stacks.push(parent, frame);
        self.stacks.push(stack);
        (stack.index() == next).then_some((parent, frame))
    }

    /// Returns the id of a frame in the raw trace.
    pub(super) fn frame_of(&self, frame: FrameId) -> FrameId {
        self.frames[frame.index() - self.first_frame]
    }

    /// Returns the id of a stack in the raw trace.
    pub(super) fn stack_of(&self, stack: StackId) -> StackId {
        match stack {
            StackId::EMPTY => stack,
            stack => self.stacks[stack.index() - self.first_stack],
        }
    }

    /// Forgets the ids of the spool so far.
    pub(super) fn forget(&mut self) {
        self.first_frame += self.frames.len();
        self.first_stack += self.stacks.len();
        self.frames.clear();
        self.stacks.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::ProcessId;
    use crate::trace::spool::{KsymbolRow, MethodRow};

    #[test]
    fn changed_code_at_an_address_gets_another_frame_and_equal_methods_share_one() {
        let process = ProcessId(0);
        let (jit, kernel) = (CodeAddress::Jit(process, 1), CodeAddress::Kernel(1));
        let mut remap = IdRemapper::default();
        let (mut frames, mut methods) = (Vec::new(), Methods::default());
        let mut add_both = |remap: &mut IdRemapper, methods: &mut Methods| {
            remap.frame(jit, &mut frames, methods);
            remap.frame(kernel, &mut frames, methods);
            frames.len()
        };
        let method = |process, start, name: &'static str| MethodRow {
            process,
            start,
            size: 8,
            name: name.as_bytes().into(),
            module: b"".into(),
            tier: b"".into(),
        };
        assert_eq!(add_both(&mut remap, &mut methods), 2);
        assert_eq!(add_both(&mut remap, &mut methods), 2);
        methods.insert(&method(process, 0, "first"));
        assert_eq!(add_both(&mut remap, &mut methods), 3);
        methods.insert(&method(process, 16, "elsewhere"));
        assert_eq!(add_both(&mut remap, &mut methods), 3);
        methods.insert(&method(process, 0, "second"));
        assert_eq!(add_both(&mut remap, &mut methods), 4);
        methods.follow_kernel(&KsymbolRow {
            start: 0,
            size: 8,
            unregistered: false,
            name: b"bpf".into(),
            module: b"".into(),
        });
        assert_eq!(add_both(&mut remap, &mut methods), 5);
        let mut stacks = StackTable::default();
        // Frames 6 and 8 of the spool have the same method.
        for (frame, of_trace) in [(0, 0), (4, 2), (6, 2), (8, 3), (10, 3), (11, 4)] {
            let stack = remap.stack(StackId::EMPTY, FrameId(frame), &mut stacks);
            assert_eq!(remap.frame_of(FrameId(frame)), FrameId(of_trace));
            assert_eq!(stack.is_some(), ![6, 10].contains(&frame), "{frame}");
        }
        remap.forget();
        methods.insert(&method(ProcessId(1), 0x100, "first"));
        for code in [kernel, CodeAddress::Jit(ProcessId(1), 0x101)] {
            remap.frame(code, &mut frames, &mut methods);
        }
        let of_trace = [12, 13].map(|frame| remap.frame_of(FrameId(frame)));
        assert_eq!(of_trace, [4, 2].map(FrameId));
        assert_eq!(frames.len(), 5);
    }
}
