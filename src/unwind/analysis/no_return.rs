//! Functions whose instructions show that they do not return.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};
use perfcollect_symbols::elf::CodeImage;

use super::sweep::is_near;

/// Limit of the instructions that are followed.
const MAX_INSTRUCTIONS: usize = 64;

/// Returns whether a function has a single path, which ends in an instruction that stops the
/// program, or in a loop: `abort`, `__stack_chk_fail` and `_exit` of musl.
pub(super) fn never_returns(image: &CodeImage, start: u64) -> bool {
    let decoder = |at| {
        let code = image.code_at(at).unwrap_or_default();
        Decoder::with_ip(64, code, at, DecoderOptions::NONE)
    };
    let mut followed = Vec::new();
    let mut at = decoder(start);
    let mut instruction = Instruction::default();
    while at.can_decode() && followed.len() < MAX_INSTRUCTIONS {
        at.decode_out(&mut instruction);
        followed.push(instruction.ip());
        if instruction.is_invalid() {
            return false;
        }
        match instruction.flow_control() {
            FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => return true,
            FlowControl::Next | FlowControl::Call | FlowControl::IndirectCall => {}
            FlowControl::Exception => return true,
            FlowControl::UnconditionalBranch if is_near(&instruction) => {
                let target = instruction.near_branch_target();
                if followed.contains(&target) {
                    return true;
                }
                at = decoder(target);
            }
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::analysis::module::image_of;

    fn is_end(code: &[u8]) -> bool {
        never_returns(&image_of(0x1000, code), 0x1000)
    }

    #[test]
    fn follows_the_only_path() {
        // push rax; hlt
        assert!(is_end(&[0x50, 0xf4]));
        // call +0; ud2
        assert!(is_end(&[0xe8, 0, 0, 0, 0, 0x0f, 0x0b]));
        // mov eax, 60; syscall; jmp -4
        assert!(is_end(&[0xb8, 60, 0, 0, 0, 0x0f, 5, 0xeb, 0xfc]));
        // jmp +1; ret; hlt
        assert!(is_end(&[0xeb, 1, 0xc3, 0xf4]));
        // push rax; ret
        assert!(!is_end(&[0x50, 0xc3]));
        // jz +1; hlt; ret
        assert!(!is_end(&[0x74, 1, 0xf4, 0xc3]));
        assert!(!is_end(&[0x90; 100]));
        assert!(!is_end(&[]));
    }
}
