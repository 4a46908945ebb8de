//! Whether code can be the start of a function.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, OpKind, Register,
};
use perfcollect_symbols::elf::CodeImage;

/// Limit of the instructions that are looked at.
const MAX_INSTRUCTIONS: usize = 24;
/// Registers that belong to the caller (System V ABI for x86-64, "Registers").
const OF_CALLER: [Register; 6] = [
    Register::RBX,
    Register::RBP,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

/// Returns whether the first instructions do nothing with the caller's registers but save them.
///
/// Those of a label of a computed jump use them for variables.
pub(super) fn can_be_entry(
    image: &CodeImage,
    start: u64,
    info: &mut InstructionInfoFactory,
) -> bool {
    let code = image.code_at(start).unwrap_or_default();
    let mut decoder = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
    let mut instruction = Instruction::default();
    let mut written = [false; OF_CALLER.len()];
    for _ in 0..MAX_INSTRUCTIONS {
        if !decoder.can_decode() {
            break;
        }
        decoder.decode_out(&mut instruction);
        if instruction.is_invalid() {
            return false;
        }
        let saves = instruction.mnemonic() == Mnemonic::Push
            || instruction.code() == Code::Mov_rm64_r64
                && instruction.op0_kind() == OpKind::Memory
                && !OF_CALLER.contains(&instruction.memory_base());
        let clears = instruction.mnemonic() == Mnemonic::Xor
            && instruction.op1_kind() == OpKind::Register
            && instruction.op0_register() == instruction.op1_register();
        for used in info.info(&instruction).used_registers() {
            let full = used.register().full_register();
            let Some(index) = OF_CALLER.iter().position(|register| *register == full) else {
                continue;
            };
            match used.access() {
                OpAccess::Write => written[index] = true,
                _ if clears => written[index] = true,
                _ if saves || written[index] => {}
                _ => return false,
            }
        }
        if instruction.flow_control() != FlowControl::Next {
            break;
        }
    }
    true
}
