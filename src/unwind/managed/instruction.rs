//! Decodes the length of an x86-64 instruction and its effect on rsp and rbp.
//!
//! It is not a disassembler: it decodes only what unwinding needs. The Intel SDM specifies the
//! encoding in volume 2, chapter 2 and appendix A.

use super::operand::{Operand, Prefix, Reader};

// Register numbers of the instruction set.
pub(super) const RSP: u8 = 4;
pub(super) const RBP: u8 = 5;
const R11: u8 = 11;

/// Maximum length of an instruction.
pub(super) const MAX_BYTES: usize = 15;

/// Effect of an instruction on rsp, rbp or the control flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// No effect.
    None,
    /// Pushes 8 bytes: a register, or `None` for another operand.
    Push(Option<u8>),
    /// Pops 8 bytes into a register.
    Pop(u8),
    /// rsp += value.
    MoveStack(i32),
    /// rsp = rbp + value.
    StackFromFrame(i32),
    /// rbp = rsp + value.
    FrameFromStack(i32),
    /// r11 = rsp + value, which a stack probe checks before it becomes rsp.
    ProbeFromStack(i32),
    /// rsp = r11.
    StackFromProbe,
    /// Writes rsp or rbp in another way.
    Clobber,
    Call,
    /// A conditional jump.
    Branch,
    /// A jump, relative to the next instruction.
    Jump(i32),
    /// A jump through memory or a register that leaves the function.
    TailJump,
    /// A jump through a register or a table, within the function.
    SwitchJump,
    Return,
    /// An instruction that is not meant to be executed.
    Trap,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    pub(super) bytes: usize,
    pub(super) effect: Effect,
}

/// Decodes instructions up to the first that is unknown or truncated.
pub(super) fn decode(mut code: &[u8]) -> impl Iterator<Item = Instruction> {
    std::iter::from_fn(move || {
        let instruction = Instruction::decode(code)?;
        code = code.get(instruction.bytes..)?;
        Some(instruction)
    })
}

impl Instruction {
    /// Decodes the first instruction. Returns `None` if it is unknown or truncated.
    pub(super) fn decode(code: &[u8]) -> Option<Self> {
        let mut reader = Reader { code, at: 0 };
        let effect = effect(&mut reader)?;
        (reader.at <= MAX_BYTES).then_some(Self {
            bytes: reader.at,
            effect,
        })
    }
}

impl Operand {
    /// Returns the effect of a write to `rm`, which may be a register or memory.
    fn writes_rm(&self) -> Effect {
        match self.rm {
            Some(register) if self.is_register() => writes(register),
            _ => Effect::None,
        }
    }
}

fn writes(register: u8) -> Effect {
    match register {
        RSP | RBP => Effect::Clobber,
        _ => Effect::None,
    }
}

fn effect(reader: &mut Reader<'_>) -> Option<Effect> {
    let mut prefix = Prefix::default();
    loop {
        match reader.peek()? {
            0x66 => prefix.short = true,
            0xf0 | 0xf2 | 0xf3 | 0x2e | 0x36 | 0x3e | 0x26 | 0x64 | 0x65 => {}
            _ => break,
        }
        reader.byte()?;
        if reader.at >= MAX_BYTES {
            return None;
        }
    }
    if let Some(rex @ 0x40..=0x4f) = reader.peek() {
        prefix.wide = rex & 8 != 0;
        prefix.reg = (rex & 4) << 1;
        prefix.rm = (rex & 1) << 3;
        reader.byte()?;
    }
    match reader.byte()? {
        0x0f => two_bytes(reader, prefix),
        0xc5 => {
            reader.byte()?;
            vector(reader, 1)
        }
        0xc4 => {
            let map = reader.byte()? & 0x1f;
            reader.byte()?;
            vector(reader, map)
        }
        0x62 => {
            let map = reader.byte()? & 7;
            reader.skip(2)?;
            vector(reader, map)
        }
        opcode => one_byte(reader, prefix, opcode),
    }
}

fn one_byte(reader: &mut Reader<'_>, prefix: Prefix, opcode: u8) -> Option<Effect> {
    let low = opcode & 7 | prefix.rm;
    let immediate = prefix.immediate_bytes();
    match opcode {
        // Arithmetic: eight operations in six forms each; the last one compares.
        0x00..=0x3f => match opcode & 7 {
            form @ 0..=3 => {
                let operand = Operand::read(reader, prefix)?;
                Some(match form {
                    _ if opcode >> 3 == 7 => Effect::None,
                    0 | 1 => operand.writes_rm(),
                    _ => writes(operand.reg),
                })
            }
            4 => reader.skip(1).map(|()| Effect::None),
            5 => reader.skip(immediate).map(|()| Effect::None),
            _ => None,
        },
        0x50..=0x57 => Some(Effect::Push(Some(low))),
        0x58..=0x5f if low == RSP => Some(Effect::Clobber),
        0x58..=0x5f => Some(Effect::Pop(low)),
        0x63 => Operand::read(reader, prefix).map(|operand| writes(operand.reg)),
        0x68 => reader.skip(immediate).map(|()| Effect::Push(None)),
        0x6a => reader.skip(1).map(|()| Effect::Push(None)),
        0x69 | 0x6b => {
            let operand = Operand::read(reader, prefix)?;
            reader.skip(if opcode == 0x6b { 1 } else { immediate })?;
            Some(writes(operand.reg))
        }
        0x70..=0x7f | 0xe0..=0xe3 => reader.skip(1).map(|()| Effect::Branch),
        0x80 | 0x81 | 0x83 => arithmetic(reader, prefix, opcode),
        0x84 | 0x85 => Operand::read(reader, prefix).map(|_| Effect::None),
        0x86 | 0x87 => {
            let operand = Operand::read(reader, prefix)?;
            Some(match operand.writes_rm() {
                Effect::None => writes(operand.reg),
                effect => effect,
            })
        }
        0x88..=0x8b => move_register(reader, prefix, opcode),
        0x8d => load_address(reader, prefix),
        0x90..=0x99 | 0x9b | 0x9e | 0x9f | 0xa4..=0xa7 | 0xaa..=0xaf => Some(Effect::None),
        0xa0..=0xa3 => reader.skip(8).map(|()| Effect::None),
        0xa8 => reader.skip(1).map(|()| Effect::None),
        0xa9 => reader.skip(immediate).map(|()| Effect::None),
        0xb0..=0xb7 => reader.skip(1).map(|()| Effect::None),
        0xb8..=0xbf => {
            reader.skip(if prefix.wide { 8 } else { immediate })?;
            Some(writes(low))
        }
        0xc0 | 0xc1 | 0xc6 => {
            let operand = Operand::read(reader, prefix)?;
            reader.skip(1)?;
            Some(operand.writes_rm())
        }
        0xc7 => {
            let operand = Operand::read(reader, prefix)?;
            reader.skip(immediate)?;
            Some(operand.writes_rm())
        }
        0xc3 => Some(Effect::Return),
        0xc9 => Some(Effect::Clobber),
        0xcc => Some(Effect::Trap),
        0xd0..=0xd3 => Operand::read(reader, prefix).map(|operand| operand.writes_rm()),
        0xe8 => reader.i32().map(|_| Effect::Call),
        0xe9 => reader.i32().map(Effect::Jump),
        0xeb => reader.i8().map(Effect::Jump),
        0xf6 | 0xf7 => {
            let operand = Operand::read(reader, prefix)?;
            if operand.reg & 7 < 2 {
                reader.skip(if opcode == 0xf6 { 1 } else { immediate })?;
                return Some(Effect::None);
            }
            Some(match operand.reg & 7 {
                2 | 3 => operand.writes_rm(),
                _ => Effect::None,
            })
        }
        0xfe => Operand::read(reader, prefix).map(|operand| operand.writes_rm()),
        0xff => indirect(reader, prefix),
        _ => None,
    }
}

/// Decodes `add`, `or`, ..., `cmp` with an immediate.
fn arithmetic(reader: &mut Reader<'_>, prefix: Prefix, opcode: u8) -> Option<Effect> {
    let operand = Operand::read(reader, prefix)?;
    let immediate = match (opcode, prefix.short) {
        (0x81, false) => reader.i32()?,
        (0x81, true) => reader.skip(2).map(|()| 0)?,
        _ => reader.i8()?,
    };
    let on_stack_pointer = operand.is_register() && operand.rm == Some(RSP) && prefix.wide;
    Some(match operand.reg & 7 {
        7 => Effect::None,
        0 if on_stack_pointer => Effect::MoveStack(immediate),
        5 if on_stack_pointer => immediate
            .checked_neg()
            .map_or(Effect::Clobber, Effect::MoveStack),
        _ => operand.writes_rm(),
    })
}

/// Decodes `mov` between registers and memory.
fn move_register(reader: &mut Reader<'_>, prefix: Prefix, opcode: u8) -> Option<Effect> {
    let operand = Operand::read(reader, prefix)?;
    let to_reg = opcode & 2 != 0;
    let registers = operand
        .rm
        .filter(|_| operand.is_register() && prefix.wide && opcode & 1 != 0);
    let moved = registers.map(|rm| {
        if to_reg {
            (operand.reg, rm)
        } else {
            (rm, operand.reg)
        }
    });
    Some(match moved {
        Some((RBP, RSP)) => Effect::FrameFromStack(0),
        Some((RSP, RBP)) => Effect::StackFromFrame(0),
        Some((RSP, R11)) => Effect::StackFromProbe,
        _ if to_reg => writes(operand.reg),
        _ => operand.writes_rm(),
    })
}

fn load_address(reader: &mut Reader<'_>, prefix: Prefix) -> Option<Effect> {
    let operand = Operand::read(reader, prefix)?;
    let displacement = operand.displacement?;
    Some(match (operand.reg, operand.rm) {
        (RBP, Some(RSP)) if prefix.wide => Effect::FrameFromStack(displacement),
        (RSP, Some(RBP)) if prefix.wide => Effect::StackFromFrame(displacement),
        (RSP, Some(RSP)) if prefix.wide => Effect::MoveStack(displacement),
        (R11, Some(RSP)) if prefix.wide => Effect::ProbeFromStack(displacement),
        (reg, _) => writes(reg),
    })
}

/// Decodes `inc`, `dec`, `call`, `jmp`, `push` with a register or memory operand.
fn indirect(reader: &mut Reader<'_>, prefix: Prefix) -> Option<Effect> {
    let operand = Operand::read(reader, prefix)?;
    match operand.reg & 7 {
        0 | 1 => Some(operand.writes_rm()),
        2 => Some(Effect::Call),
        // The JIT adds a redundant REX.W to jumps that leave the function. Jumps through an
        // indirection cell leave it too.
        4 if prefix.wide => Some(Effect::TailJump),
        4 if operand.rm.is_none() && operand.displacement.is_some() => Some(Effect::TailJump),
        4 => Some(Effect::SwitchJump),
        6 => Some(Effect::Push(None)),
        _ => None,
    }
}

fn two_bytes(reader: &mut Reader<'_>, prefix: Prefix) -> Option<Effect> {
    let opcode = reader.byte()?;
    match opcode {
        0x05 | 0x31 | 0x77 | 0xa2 | 0xc8..=0xcf => Some(Effect::None),
        0x0b => Some(Effect::Trap),
        0x80..=0x8f => reader.i32().map(|_| Effect::Branch),
        0x40..=0x4f | 0xaf | 0xb6 | 0xb7 | 0xb8 | 0xbc..=0xbf => {
            Operand::read(reader, prefix).map(|operand| writes(operand.reg))
        }
        0x90..=0x9f | 0xa3 | 0xab | 0xb0 | 0xb1 | 0xb3 | 0xbb | 0xc0 | 0xc1 | 0xc3 | 0xc7 => {
            Operand::read(reader, prefix).map(|operand| operand.writes_rm())
        }
        0xa4 | 0xac | 0xba => {
            let operand = Operand::read(reader, prefix)?;
            reader.skip(1)?;
            Some(operand.writes_rm())
        }
        0x0d
        | 0x10..=0x1f
        | 0x28..=0x2f
        | 0x50..=0x6f
        | 0x74..=0x76
        | 0x7c..=0x7f
        | 0xa5
        | 0xad
        | 0xae
        | 0xd0..=0xff => Operand::read(reader, prefix).map(|_| Effect::None),
        0x70..=0x73 | 0xc2 | 0xc4..=0xc6 => {
            Operand::read(reader, prefix)?;
            reader.skip(1).map(|()| Effect::None)
        }
        0x38 | 0x3a => {
            reader.byte()?;
            Operand::read(reader, prefix)?;
            reader
                .skip(usize::from(opcode == 0x3a))
                .map(|()| Effect::None)
        }
        _ => None,
    }
}

/// Decodes an instruction after a VEX or EVEX prefix.
///
/// These write vector and, rarely, general registers. Compiled code never writes rsp or rbp with
/// them.
fn vector(reader: &mut Reader<'_>, map: u8) -> Option<Effect> {
    let opcode = reader.byte()?;
    if map == 1 && opcode == 0x77 {
        return Some(Effect::None);
    }
    // REX bits only extend register numbers, which are irrelevant here.
    Operand::read(reader, Prefix::default())?;
    let has_immediate = match map {
        1 => matches!(opcode, 0x70..=0x73 | 0xc2 | 0xc4..=0xc6),
        2 => false,
        3 => true,
        _ => return None,
    };
    reader
        .skip(usize::from(has_immediate))
        .map(|()| Effect::None)
}

#[cfg(test)]
#[path = "instruction_tests.rs"]
mod tests;
