//! Rules for code that no function was seen to reach: forward to a return, or to known code.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

use super::module::Module;
use super::sweep::is_near;
use crate::unwind::path::Path;
use crate::unwind::rule::UnwindRule;

/// Limit of the instructions to a return.
const MAX_INSTRUCTIONS: usize = 64;

/// Returns the rule at an instruction: how far the code that follows moves the stack pointer until it
/// returns.
pub(super) fn rule(module: &Module, address: u64) -> Option<UnwindRule> {
    let mut decoder = at(module, address)?;
    let mut instruction = Instruction::default();
    let mut path = Path::START;
    for _ in 0..MAX_INSTRUCTIONS {
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut instruction);
        match instruction.flow_control() {
            _ if instruction.is_invalid() => return None,
            FlowControl::Return => {
                let removes = instruction.op_count() > 0 && instruction.immediate(0) != 0;
                return path.returned().filter(|_| !removes);
            }
            FlowControl::UnconditionalBranch if is_near(&instruction) => {
                decoder = at(module, instruction.near_branch_target())?;
            }
            FlowControl::Call if is_near(&instruction) => {
                let target = instruction.near_branch_target();
                if target == instruction.next_ip() || module.starts.never_returns(target) {
                    return None;
                }
            }
            FlowControl::ConditionalBranch | FlowControl::Call | FlowControl::IndirectCall => {}
            FlowControl::Next => path.apply(&instruction),
            _ => return None,
        }
    }
    None
}

fn at(module: &Module, address: u64) -> Option<Decoder<'_>> {
    let code = module.image.code_at(address)?;
    Some(Decoder::with_ip(64, code, address, DecoderOptions::NONE))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::analysis::module::module_of;
    use crate::unwind::rule::Base;

    const START: u64 = 0x1000;

    fn rule_of(code: &[u8]) -> Option<UnwindRule> {
        rule(&module_of(START, code), START)
    }

    fn framed(base: Base, cfa: i64) -> Option<UnwindRule> {
        UnwindRule::new(base, cfa, Some(-16))
    }

    #[test]
    fn follows_epilogues() {
        for (code, expected) in [
            (&[0xc3][..], Some(UnwindRule::RETURN)),
            // add rsp, 24; pop rbp; pop rbx; ret
            (
                &[0x48, 0x83, 0xc4, 0x18, 0x5d, 0x5b, 0xc3],
                UnwindRule::new(Base::Rsp, 48, Some(-24)),
            ),
            // lea rsp, [rbp-16]; pop r12; pop rbx; pop rbp; ret
            (
                &[0x48, 0x8d, 0x65, 0xf0, 0x41, 0x5c, 0x5b, 0x5d, 0xc3],
                framed(Base::Rbp, 16),
            ),
            // mov rsp, rbp; pop rbp; ret
            (&[0x48, 0x89, 0xec, 0x5d, 0xc3], framed(Base::Rbp, 16)),
            // sub rsp, rax; leave; ret
            (&[0x48, 0x29, 0xc4, 0xc9, 0xc3], framed(Base::Rbp, 16)),
            // mov rbp, [rsp+16]; add rsp, 24; ret
            (
                &[0x48, 0x8b, 0x6c, 0x24, 0x10, 0x48, 0x83, 0xc4, 0x18, 0xc3],
                framed(Base::Rsp, 32),
            ),
            // jmp +1; hlt; pop rbp; ret
            (&[0xeb, 1, 0xf4, 0x5d, 0xc3], framed(Base::Rsp, 16)),
        ] {
            assert_eq!(rule_of(code), expected, "{code:x?}");
        }
    }

    #[test]
    fn a_frame_that_the_path_makes_itself_is_not_that_of_the_sample() {
        for code in [
            // push rbp; mov rbp, rsp; sub rsp, 16; leave; ret
            &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xc9, 0xc3][..],
            // push rbp; pop rbp; ret
            &[0x55, 0x5d, 0xc3],
        ] {
            assert_eq!(rule_of(code), Some(UnwindRule::RETURN), "{code:x?}");
        }
    }

    #[test]
    fn unknown_stack_pointers_have_no_rule() {
        for code in [
            &[0x48, 0x83, 0xe4, 0xf0, 0xc3][..], // and rsp, -16; ret
            &[0x48, 0x29, 0xc4, 0xc3],           // sub rsp, rax; ret
            &[0x48, 0x94, 0xc3],                 // xchg rax, rsp; ret
            &[0x48, 0x87, 0xe0, 0xc3],           // xchg rax, rsp; ret, other operands
            &[0x5c, 0xc3],                       // pop rsp; ret
            &[0x48, 0x89, 0xc5, 0xc9, 0xc3],     // mov rbp, rax; leave; ret
            &[0x48, 0x89, 0xc5, 0xc3],           // mov rbp, rax; ret
            &[0xc2, 8, 0],                       // ret 8
            &[0xe8, 0, 0, 0, 0, 0xc3],           // call of the next instruction; ret
            &[0xff, 0xe0],                       // jmp rax
            &[0xeb, 0xfe],                       // jmp itself
            &[0x90; 100],
            &[],
        ] {
            assert_eq!(rule_of(code), None, "{code:x?}");
        }
    }
}
