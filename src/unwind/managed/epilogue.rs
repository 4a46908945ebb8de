//! Unwind rules in epilogues, from an instruction that removes part of the frame to the return.
//!
//! ```text
//! [add rsp, N | lea rsp, [rbp+N]]  pop*  ret | jmp to another function
//! ```
//! Unwind information does not describe epilogues, so their instructions are decoded. No other
//! compiled code has this form.

use std::ops::Range;

use super::instruction::{Effect, RBP, decode};
use crate::unwind::rule::{Base, UnwindRule};

/// Maximum number of decoded bytes: an `add`, nine `pop`s, a jump and some reserve.
pub(super) const MAX_BYTES: usize = 48;

/// Returns the rule for the first instruction of `code`, at `ip`. `None` outside epilogues.
#[must_use]
pub(in crate::unwind) fn rule(code: &[u8], ip: u64, function: &Range<u64>) -> Option<UnwindRule> {
    let (mut base, mut above) = (Base::Rsp, 0_i64);
    let mut saved_rbp = None;
    let mut next = ip;
    for (index, instruction) in decode(code.get(..MAX_BYTES).unwrap_or(code)).enumerate() {
        next = next.wrapping_add(instruction.bytes as u64);
        match instruction.effect {
            Effect::MoveStack(bytes) if index == 0 && bytes > 0 => above = bytes.into(),
            Effect::StackFromFrame(bytes) if index == 0 => {
                (base, above) = (Base::Rbp, bytes.into());
            }
            Effect::Pop(register) => {
                if register == RBP {
                    saved_rbp = Some(above);
                }
                above += 8;
            }
            Effect::Return | Effect::TailJump => {
                return finish(base, above, saved_rbp);
            }
            Effect::Jump(distance) => {
                let target = next.wrapping_add_signed(distance.into());
                let leaves_function = !function.contains(&target);
                return leaves_function
                    .then(|| finish(base, above, saved_rbp))
                    .flatten();
            }
            _ => return None,
        }
    }
    None
}

fn finish(base: Base, above: i64, saved_rbp: Option<i64>) -> Option<UnwindRule> {
    let cfa = above + 8;
    UnwindRule::new(base, cfa, saved_rbp.map(|saved| saved - cfa))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(code: &[u8]) -> Option<UnwindRule> {
        rule(code, 0x1080, &(0x1000..0x1100))
    }

    #[test]
    fn computes_rule_at_each_epilogue_instruction() {
        // add rsp, 0x18; pop rbx; pop r15; pop rbp; ret
        let code = [0x48, 0x83, 0xc4, 0x18, 0x5b, 0x41, 0x5f, 0x5d, 0xc3];
        assert_eq!(at(&code), UnwindRule::new(Base::Rsp, 0x38, Some(-16)));
        assert_eq!(at(&code[4..]), UnwindRule::new(Base::Rsp, 32, Some(-16)));
        assert_eq!(at(&code[5..]), UnwindRule::new(Base::Rsp, 24, Some(-16)));
        assert_eq!(at(&code[7..]), UnwindRule::new(Base::Rsp, 16, Some(-16)));
        assert_eq!(at(&code[8..]), Some(UnwindRule::RETURN));
        // lea rsp, [rbp-0x10]; pop rbx; pop r12; pop rbp; ret
        let code = [0x48, 0x8d, 0x65, 0xf0, 0x5b, 0x41, 0x5c, 0x5d, 0xc3];
        assert_eq!(at(&code), UnwindRule::new(Base::Rbp, 16, Some(-16)));
    }

    #[test]
    fn accepts_tail_calls_that_leave_the_function() {
        assert_eq!(
            at(&[0x5d, 0xff, 0x25, 0, 0, 0, 0]),
            UnwindRule::new(Base::Rsp, 16, Some(-16))
        );
        assert_eq!(at(&[0x48, 0xff, 0xe0]), Some(UnwindRule::RETURN));
        assert_eq!(at(&[0xe9, 0x7b, 0, 0, 0]), Some(UnwindRule::RETURN));
        assert_eq!(at(&[0xe9, 0x7a, 0, 0, 0]), None);
        assert_eq!(at(&[0xeb, 0x80]), None);
        assert_eq!(
            at(&[0x48, 0x83, 0xc4, 8, 0xe9, 0, 0, 1, 0]),
            UnwindRule::new(Base::Rsp, 16, None)
        );
    }

    #[test]
    fn rejects_code_of_bodies() {
        for code in [
            &[0xff, 0xe0][..],                  // a switch
            &[0x48, 0x8b, 0xc7, 0xc3],          // mov rax, rdi; ret
            &[0x48, 0x83, 0xec, 8, 0xc3],       // sub rsp
            &[0x5b, 0x48, 0x83, 0xc4, 8, 0xc3], // pop before add
            &[0x5b],
            &[],
        ] {
            assert_eq!(at(code), None, "{code:x?}");
        }
    }

    proptest! {
        #[test]
        fn accepts_arbitrary_bytes_without_panic(code in proptest::collection::vec(any::<u8>(), 0..64), ip in any::<u64>()) {
            let _ = rule(&code, ip, &(ip..ip.saturating_add(9)));
        }
    }
}
