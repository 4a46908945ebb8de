//! The rule at the start of a path, from how the path ends.

use iced_x86::{Instruction, OpKind, Register};

use crate::unwind::path::{Address, FramePointer, Path};
use crate::unwind::rule::{Base, UnwindRule};

/// Bytes from the frame pointer to the word that contains the caller's stack pointer, in frames of
/// HotSpot's interpreter (frame_x86.hpp, `interpreter_frame_sender_sp_offset`).
const SENDER_SP: i32 = -8;

impl Path {
    /// Returns the rule at the start if the path ends with a jump.
    pub(super) fn jumped(&self, jump: &Instruction) -> Option<UnwindRule> {
        if self.is_dispatch(jump) || self.is_sender {
            return self.interpreted();
        }
        let (register, from) = self.popped?;
        if jump.op0_kind() != OpKind::Register || jump.op0_register() != register {
            return None;
        }
        match self.sp {
            Some(sp) if Some(sp) == from.plus(8) => self.rule(from),
            // The interpreter removes the arguments of its caller, too.
            None if from.base == Base::Rbp && from.offset == 8 => {
                Some(UnwindRule::framed(SENDER_SP))
            }
            _ => None,
        }
    }

    /// Returns the rule at the start if the path ends with a jump to another function.
    ///
    /// The jump follows an epilogue, or a part of a function without a frame. An adapter may have
    /// moved the return address.
    pub(super) fn left(&self, jump: &Instruction) -> Option<UnwindRule> {
        if let FramePointer::Saved(at) = self.bp
            && at.plus(8) == self.sp
        {
            return self.returned();
        }
        if let Some(return_address) = self.discarded(jump) {
            return self.rule(return_address);
        }
        let is_switch = jump.op0_kind() == OpKind::Memory && jump.memory_index() != Register::None;
        let is_frameless = self.bp == FramePointer::Same && self.stored.is_none();
        let is_same = self.sp == Self::START.sp || self.is_entry;
        let is_left = is_frameless && is_same && !is_switch;
        is_left.then_some(UnwindRule::RETURN)
    }

    /// Returns where the return address is if the path removes it with the frame: HotSpot goes on in
    /// an exception handler of the caller.
    fn discarded(&self, jump: &Instruction) -> Option<Address> {
        let (_, from) = self.popped?;
        let is_last = self.sp.is_some() && from.plus(8) == self.sp;
        let is_restored = match self.bp {
            FramePointer::Same => self.stored.is_none(),
            FramePointer::Saved(at) => at.plus(8) == Some(from),
            FramePointer::Frame(_) | FramePointer::Unknown => false,
        };
        let is_discarded = is_last && is_restored && jump.op0_kind() == OpKind::Register;
        is_discarded.then_some(from)
    }

    /// Returns whether HotSpot's interpreter goes on with the next bytecode, by a table in its
    /// library. Switches have a table beside the code.
    fn is_dispatch(&self, jump: &Instruction) -> bool {
        let base = jump.memory_base();
        let is_table = match self.table {
            // The path starts after the address was loaded.
            Register::None => base == Register::R10 && jump.memory_index() == Register::RBX,
            table => base == table && jump.memory_index() != Register::None,
        };
        let is_plain = jump.memory_index_scale() == 8 && jump.memory_displacement64() == 0;
        jump.op0_kind() == OpKind::Memory && is_table && is_plain
    }

    /// Returns the rule of a frame of HotSpot's interpreter, which goes on with the next bytecode.
    fn interpreted(&self) -> Option<UnwindRule> {
        match self.bp {
            FramePointer::Same => Some(UnwindRule::framed(SENDER_SP)),
            FramePointer::Frame(_) if self.is_entry => Some(UnwindRule::RETURN),
            // The return address is above the future frame.
            FramePointer::Frame(frame) if frame.offset >= -8 => {
                let cfa = frame.offset.checked_add(16)?;
                let saved = (frame.offset >= 0).then_some(-16);
                UnwindRule::new(frame.base, cfa, saved)
            }
            _ => None,
        }
    }
}
