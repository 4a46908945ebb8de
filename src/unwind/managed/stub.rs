//! Stubs: a few instructions between a call and its target. They make no frame; some hold a register on the stack for a moment.
//!
//! Where one begins is not known, so it is read from the instruction pointer on to its end.

use super::instruction::{Effect, decode};
use super::rule::UnwindRule;

/// Bytes that are looked at. Write barriers are the longest.
pub(super) const MAX_BYTES: usize = 256;

/// The rule for the instruction that `code` begins with.
#[must_use]
pub(super) fn rule(code: &[u8]) -> Option<UnwindRule> {
    let mut above = 8_i64;
    for instruction in decode(code.get(..MAX_BYTES).unwrap_or(code)) {
        match instruction.effect {
            Effect::Push(_) => above -= 8,
            Effect::Pop(_) => above += 8,
            Effect::MoveStack(bytes) => above += i64::from(bytes),
            // What is pushed and stays is for the target: it was not there yet.
            Effect::Return | Effect::TailJump | Effect::SwitchJump | Effect::Jump(_) => {
                return UnwindRule::above_stack_pointer(above.max(8));
            }
            Effect::None | Effect::Branch => {}
            // Whoever calls may have made a frame before.
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

/// The rule within a stub of a procedure linkage table, whose code up to the instruction pointer is `done`.
///
/// A lazy stub pushes its number and jumps to the first stub, which pushes one thing more; in a table without these
/// nothing is pushed. So in the first stub one push is past already, if it has one.
#[must_use]
pub(in crate::unwind) fn plt_rule(stub: &[u8], done: usize, is_first: bool) -> Option<UnwindRule> {
    let pushes = |instruction: &super::instruction::Instruction| {
        matches!(instruction.effect, Effect::Push(_))
    };
    let before = decode(stub)
        .scan(0, |at, instruction| {
            *at += instruction.bytes;
            (*at <= done).then_some(instruction)
        })
        .filter(pushes)
        .count();
    let resolver = is_first && decode(stub).next().as_ref().is_some_and(pushes);
    UnwindRule::above_stack_pointer(8 * (1 + before as i64 + i64::from(resolver)))
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
    fn stubs_of_the_runtime() {
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
    fn what_makes_frames_is_no_stub() {
        assert_eq!(above(&[0x55, 0x48, 0x8b, 0xec, 0xc3]), None);
        assert_eq!(above(&[0xe8, 0, 0, 0, 0, 0xc3]), None);
        assert_eq!(above(&[0x90]), None);
        assert_eq!(rule(&[]), None);
    }

    #[test]
    fn linkage_tables() {
        // jmp [rip+..]; push 3; jmp first
        let lazy = [0xff, 0x25, 0, 0, 0, 0, 0x68, 3, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let rules = [0, 6, 11].map(|done| plt_rule(&lazy, done, false));
        assert_eq!(rules, [sp(8), sp(8), sp(16)]);
        let first = [0xff, 0x35, 0, 0, 0, 0, 0xff, 0x25, 0, 0, 0, 0];
        let rules = [0, 6].map(|done| plt_rule(&first, done, true));
        assert_eq!(rules, [sp(16), sp(24)]);
        assert_eq!(plt_rule(&lazy, 0, true), sp(8));
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(code in proptest::collection::vec(any::<u8>(), 0..300), done in 0..300_usize) {
            let _ = rule(&code);
            let _ = plt_rule(&code, done, true);
        }
    }
}
