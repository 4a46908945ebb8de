//! Rules for code that no function was seen to reach: forward to a return, or to known code.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::module::Module;
use super::sweep::is_near;
use super::transfer::is_immediate;
use crate::unwind::rule::{Base, UnwindRule};

/// Limit of the instructions to a return.
const MAX_INSTRUCTIONS: usize = 64;

/// Returns the rule at an instruction: how far the code that follows moves the stack pointer until it
/// returns.
pub(super) fn rule(module: &Module, address: u64) -> Option<UnwindRule> {
    let mut decoder = at(module, address)?;
    let mut instruction = Instruction::default();
    // Bytes from the stack pointer to the CFA so far; where rbp is restored from.
    let (mut base, mut above) = (Base::Rsp, 0_i64);
    let mut saved = None;
    for _ in 0..MAX_INSTRUCTIONS {
        if !decoder.can_decode() {
            return None;
        }
        decoder.decode_out(&mut instruction);
        match instruction.flow_control() {
            _ if instruction.is_invalid() => return None,
            FlowControl::Return => {
                let cfa = above.checked_add(8)?;
                let saved = match saved {
                    Some(saved) => Some(i64::checked_sub(saved, cfa)?),
                    None => None,
                };
                return UnwindRule::new(base, cfa, saved);
            }
            FlowControl::UnconditionalBranch if is_near(&instruction) => {
                decoder = at(module, instruction.near_branch_target())?;
            }
            FlowControl::Call
                if is_near(&instruction)
                    && module
                        .starts
                        .never_returns(instruction.near_branch_target()) =>
            {
                return None;
            }
            FlowControl::Next
            | FlowControl::ConditionalBranch
            | FlowControl::Call
            | FlowControl::IndirectCall => {}
            _ => return None,
        }
        let is_sp = instruction.op0_kind() == OpKind::Register
            && instruction.op0_register() == Register::RSP;
        let moved = match instruction.mnemonic() {
            Mnemonic::Leave => {
                (base, above, saved) = (Base::Rbp, 8, Some(0));
                continue;
            }
            Mnemonic::Add | Mnemonic::Sub if is_sp && !is_immediate(instruction.op1_kind()) => {
                return None;
            }
            Mnemonic::Add if is_sp => instruction.immediate(1) as i64,
            Mnemonic::Sub if is_sp => (instruction.immediate(1) as i64).checked_neg()?,
            Mnemonic::Lea if is_sp => {
                let is_plain = instruction.memory_index() == Register::None;
                let distance = instruction.memory_displacement64() as i64;
                match instruction.memory_base() {
                    Register::RSP if is_plain => distance,
                    Register::RBP if is_plain => {
                        (base, above, saved) = (Base::Rbp, distance, None);
                        continue;
                    }
                    _ => return None,
                }
            }
            Mnemonic::Mov if is_sp && instruction.op1_register() == Register::RBP => {
                (base, above, saved) = (Base::Rbp, 0, None);
                continue;
            }
            _ if is_sp && instruction.mnemonic() != Mnemonic::Cmp => return None,
            Mnemonic::Pop if instruction.op0_register() == Register::RBP => {
                saved = Some(above);
                8
            }
            _ if matches!(
                instruction.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            ) =>
            {
                0
            }
            _ => -i64::from(instruction.stack_pointer_increment()).checked_neg()?,
        };
        above = above.checked_add(moved)?;
    }
    None
}

fn at(module: &Module, address: u64) -> Option<Decoder<'_>> {
    let code = module.image.code_at(address)?;
    Some(Decoder::with_ip(64, code, address, DecoderOptions::NONE))
}
