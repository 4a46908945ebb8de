//! Unwind rules of stubs: short instruction sequences between a call and its target.
//!
//! Stubs build no frame, but some push a register temporarily. The start of a stub is unknown, so
//! it is decoded from the instruction pointer to its end.

use super::instruction::{Effect, decode};
use crate::unwind::rule::UnwindRule;

/// Maximum number of decoded bytes. Write barriers are the longest stubs.
pub(super) const MAX_BYTES: usize = 256;

/// Returns the rule for the first instruction of `code`.
#[must_use]
pub(super) fn rule(code: &[u8]) -> Option<UnwindRule> {
    let mut above = 8_i64;
    for instruction in decode(code.get(..MAX_BYTES).unwrap_or(code)) {
        match instruction.effect {
            Effect::Push(_) => above -= 8,
            Effect::Pop(_) => above += 8,
            Effect::MoveStack(bytes) => above += i64::from(bytes),
            // A remaining push is an argument for the target, and has not been executed yet.
            Effect::Return | Effect::TailJump | Effect::SwitchJump | Effect::Jump(_) => {
                return UnwindRule::above_stack_pointer(above.max(8));
            }
            Effect::None | Effect::Branch => {}
            // Code with these instructions may have built a frame before.
            Effect::Call
            | Effect::StackFromFrame(_)
            | Effect::FrameFromStack(_)
            | Effect::ProbeFromStack(_)
            | Effect::StackFromProbe
            | Effect::Clobber
            | Effect::Trap => return None,
        }
    }
    None
}

/// Returns the rule within a PLT stub, at an offset from its start.
///
/// A lazy stub pushes its relocation index and jumps to the first stub (the resolver), which pushes
/// one more word. So a first stub with a push starts with one word already on the stack. PLTs
/// without lazy binding push nothing.
#[must_use]
pub(in crate::unwind) fn plt_rule(
    stub: &[u8],
    offset: usize,
    is_first: bool,
) -> Option<UnwindRule> {
    let pushes = |instruction: &super::instruction::Instruction| {
        matches!(instruction.effect, Effect::Push(_))
    };
    let executed_pushes = decode(stub)
        .scan(0, |end, instruction| {
            *end += instruction.bytes;
            (*end <= offset).then_some(instruction)
        })
        .filter(pushes)
        .count();
    let is_resolver = is_first && decode(stub).next().as_ref().is_some_and(pushes);
    UnwindRule::above_stack_pointer(8 * (1 + executed_pushes as i64 + i64::from(is_resolver)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn above(code: &[u8]) -> Option<UnwindRule> {
        rule(&[code, &[0xcc; 8]].concat())
    }

    fn sp(bytes: i64) -> Option<UnwindRule> {
        UnwindRule::above_stack_pointer(bytes)
    }

    #[test]
    fn computes_rules_of_runtime_stubs() {
        let fixup_precode = [
            0xff, 0x25, 0xfa, 0x3f, 0, 0, 0x4c, 0x8b, 0x15, 0xfb, 0x3f, 0, 0, 0xff, 0x25, 0xfd,
            0x3f, 0, 0,
        ];
        assert_eq!(above(&fixup_precode), sp(8));
        assert_eq!(above(&fixup_precode[6..]), sp(8));
        let call_counting = [
            0x48, 0x8b, 0x05, 1, 0, 0, 0, 0x66, 0xff, 0x08, 0x74, 0x06, 0xff, 0x25, 1, 0, 0, 0,
        ];
        assert_eq!(above(&call_counting), sp(8));
        // push rdx; mov r10, imm; mov rdx, rax; ...; jne; pop rdx; jmp rax
        let resolve = [
            0x52, 0x49, 0xba, 1, 2, 3, 4, 5, 6, 7, 8, 0x48, 0x8b, 0xd0, 0x75, 9, 0x5a, 0xff, 0xe0,
        ];
        assert_eq!(above(&resolve), sp(8));
        assert_eq!(above(&resolve[1..]), sp(16));
        assert_eq!(above(&resolve[16..]), sp(16));
        assert_eq!(above(&resolve[17..]), sp(8));
        let vtable = [0x48, 0x8b, 0x07, 0x48, 0x8b, 0x40, 0x40, 0xff, 0x60, 0x20];
        assert_eq!(above(&vtable), sp(8));
    }

    #[test]
    fn rejects_code_that_builds_frames() {
        assert_eq!(above(&[0x55, 0x48, 0x8b, 0xec, 0xc3]), None);
        assert_eq!(above(&[0xe8, 0, 0, 0, 0, 0xc3]), None);
        assert_eq!(above(&[0x90]), None);
        assert_eq!(rule(&[]), None);
    }

    #[test]
    fn computes_rules_of_plt_stubs() {
        // jmp [rip+..]; push 3; jmp first
        let lazy = [0xff, 0x25, 0, 0, 0, 0, 0x68, 3, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let rules = [0, 6, 11].map(|offset| plt_rule(&lazy, offset, false));
        assert_eq!(rules, [sp(8), sp(8), sp(16)]);
        let first = [0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
        let rules = [0, 6].map(|offset| plt_rule(&first, offset, true));
        assert_eq!(rules, [sp(16), sp(24)]);
        assert_eq!(plt_rule(&lazy, 0, true), sp(8));
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes_without_panic(code in proptest::collection::vec(any::<u8>(), 0..300), offset in 0..300_usize) {
            let _ = rule(&code);
            let _ = plt_rule(&code, offset, true);
        }
    }
}
