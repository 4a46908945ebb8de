//! What an instruction does to the registers and the stack.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
};

use super::control_flow::{is_call_of_next, is_system_call};
use super::state::{RBP, RSP, State, Value};

/// Applies instructions to states. It caches what iced-x86 allocates.
pub(super) struct Transfer(InstructionInfoFactory);

impl Default for Transfer {
    fn default() -> Self {
        Self(InstructionInfoFactory::new())
    }
}

impl Transfer {
    /// Changes the state before an instruction to that after it. A called function returns.
    pub(super) fn apply(&mut self, instruction: &Instruction, state: &mut State) {
        match instruction.flow_control() {
            _ if is_call_of_next(instruction) => state.move_stack_pointer(-8),
            FlowControl::Call | FlowControl::IndirectCall if !is_system_call(instruction) => {
                state.call();
            }
            _ if moves_value(instruction, state) => {}
            _ => self.kill_written(instruction, state),
        }
    }

    /// Forgets the values of all registers and stack words that the instruction writes.
    fn kill_written(&mut self, instruction: &Instruction, state: &mut State) {
        let moved = i64::from(instruction.stack_pointer_increment());
        let sp = state.get(RSP);
        let info = self.0.info(instruction);
        for memory in info.used_memory() {
            if is_write(memory.access()) {
                let base = state.of(memory.base());
                let address = match memory.index() {
                    Register::None => base.plus(memory.displacement() as i64),
                    _ => Value::Unknown,
                };
                // A repeated string instruction writes more, but no saved register.
                let size = memory.memory_size().size();
                state.store(address, size, Value::Unknown);
            }
        }
        for register in info.used_registers() {
            let full = register.register().full_register();
            if is_write(register.access()) && full.is_gpr64() && full != Register::RSP {
                state.set(full.number() as u8, Value::Unknown);
            }
        }
        if moved != 0 {
            state.set(RSP, sp.plus(moved));
        } else if info.used_registers().iter().any(|register| {
            is_write(register.access()) && register.register().full_register() == Register::RSP
        }) {
            state.lose_stack_pointer();
        }
    }
}

fn is_write(access: OpAccess) -> bool {
    !matches!(
        access,
        OpAccess::None | OpAccess::NoMemAccess | OpAccess::Read | OpAccess::CondRead
    )
}

/// Returns the address of the memory operand.
pub(super) fn address_of(instruction: &Instruction, state: &State) -> Value {
    if instruction.is_ip_rel_memory_operand() {
        return Value::Constant(instruction.ip_rel_memory_address());
    }
    if instruction.segment_prefix() != Register::None {
        return Value::Unknown;
    }
    let displacement = instruction.memory_displacement64() as i64;
    match (instruction.memory_base(), instruction.memory_index()) {
        (Register::None, Register::None) => Value::Constant(displacement as u64),
        (base, Register::None) => state.of(base).plus(displacement),
        _ => Value::Unknown,
    }
}

/// Returns the address of a table if the memory operand is one of its entries, of `scale` bytes.
pub(super) fn table_of(instruction: &Instruction, state: &State, scale: u32) -> Option<u64> {
    if instruction.memory_index() == Register::None || instruction.memory_index_scale() != scale {
        return None;
    }
    let displacement = instruction.memory_displacement64();
    match instruction.memory_base() {
        Register::None => Some(displacement),
        base => match state.of(base) {
            Value::Constant(table) => Some(table.wrapping_add(displacement)),
            _ => None,
        },
    }
}

/// Applies an instruction whose result is known. Returns false for all others.
fn moves_value(instruction: &Instruction, state: &mut State) -> bool {
    let first = instruction.op0_kind();
    let second = instruction.op1_kind();
    let (to, from) = (instruction.op0_register(), instruction.op1_register());
    let is_64 = first == OpKind::Register && to.is_gpr64();
    let number = to.number() as u8;
    match instruction.mnemonic() {
        Mnemonic::Push if instruction.stack_pointer_increment() == -8 => {
            let value = match first {
                OpKind::Register => state.of(to),
                OpKind::Memory => state.load(address_of(instruction, state)),
                _ => Value::Unknown,
            };
            state.move_stack_pointer(-8);
            state.store(state.get(RSP), 8, value);
        }
        Mnemonic::Pop if is_64 => {
            let value = state.load(state.get(RSP));
            state.move_stack_pointer(8);
            state.set(number, value);
        }
        Mnemonic::Mov if is_64 && second == OpKind::Register => {
            let value = state.of(from);
            state.set(number, value);
        }
        Mnemonic::Mov if is_64 && second == OpKind::Memory => {
            let value = match table_of(instruction, state, 8) {
                Some(table) => Value::Target(table),
                None => state.load(address_of(instruction, state)),
            };
            state.set(number, value);
        }
        Mnemonic::Mov
            if first == OpKind::Memory && from.is_gpr64() && second == OpKind::Register =>
        {
            state.store(address_of(instruction, state), 8, state.of(from));
        }
        // Writing 32 bits of a register clears the others.
        Mnemonic::Mov
            if first == OpKind::Register
                && (to.is_gpr64() || to.is_gpr32())
                && is_immediate(second) =>
        {
            state.set(number, Value::Constant(instruction.immediate(1)));
        }
        Mnemonic::Movsxd if is_64 && second == OpKind::Memory => {
            let table = table_of(instruction, state, 4);
            state.set(number, table.map_or(Value::Unknown, Value::Offset));
        }
        Mnemonic::Lea if is_64 => {
            let value = address_of(instruction, state);
            state.set(number, value);
        }
        Mnemonic::Add | Mnemonic::Sub if is_64 && is_immediate(second) => {
            let amount = instruction.immediate(1) as i64;
            let amount = match instruction.mnemonic() {
                Mnemonic::Add => amount,
                _ => amount.wrapping_neg(),
            };
            let value = state.get(number).plus(amount);
            state.set(number, value);
        }
        Mnemonic::Add if is_64 && second == OpKind::Register => {
            let value = match (state.of(to), state.of(from)) {
                (Value::Offset(table), Value::Constant(base))
                | (Value::Constant(base), Value::Offset(table)) => Value::Sum(table, base),
                (Value::Constant(a), Value::Constant(b)) => Value::Constant(a.wrapping_add(b)),
                _ => Value::Unknown,
            };
            state.set(number, value);
        }
        Mnemonic::Xor | Mnemonic::Sub
            if first == OpKind::Register && second == first && to == from =>
        {
            match to.is_gpr64() || to.is_gpr32() {
                true => state.set(number, Value::Constant(0)),
                false => return false,
            }
        }
        Mnemonic::Inc | Mnemonic::Dec if is_64 => {
            let amount = match instruction.mnemonic() {
                Mnemonic::Inc => 1,
                _ => -1,
            };
            let value = state.get(number).plus(amount);
            state.set(number, value);
        }
        Mnemonic::Leave if instruction.code() == Code::Leaveq => {
            let frame = state.get(RBP);
            state.set(RSP, frame);
            let value = state.load(frame);
            state.move_stack_pointer(8);
            state.set(RBP, value);
        }
        Mnemonic::Enter
            if instruction.code() == Code::Enterq_imm16_imm8
                && instruction.immediate8_2nd() == 0 =>
        {
            state.move_stack_pointer(-8);
            state.store(state.get(RSP), 8, state.get(RBP));
            state.set(RBP, state.get(RSP));
            state.move_stack_pointer(-i64::from(instruction.immediate16()));
        }
        Mnemonic::Xchg
            if is_64
                && second == OpKind::Register
                && from.is_gpr64()
                && to != Register::RSP
                && from != Register::RSP =>
        {
            let (a, b) = (state.of(to), state.of(from));
            state.set(number, b);
            state.set(from.number() as u8, a);
        }
        Mnemonic::Cmp => {
            state.compared = is_immediate(second).then(|| instruction.immediate(1));
        }
        Mnemonic::Nop | Mnemonic::Endbr64 | Mnemonic::Test => {}
        _ => return false,
    }
    true
}

pub(in crate::unwind) fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate16
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to16
            | OpKind::Immediate32to64
    )
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
