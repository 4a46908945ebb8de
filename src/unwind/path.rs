//! What a path through code does to the stack pointer and the frame pointer.

use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

use super::analysis::is_immediate;
use super::rule::{Base, UnwindRule};

/// An address relative to a register at the start of the path: rsp or rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) base: Base,
    pub(super) offset: i64,
}

impl Address {
    pub(super) fn plus(self, bytes: i64) -> Option<Self> {
        let offset = self.offset.checked_add(bytes)?;
        Some(Self { offset, ..self })
    }
}

/// The value of rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FramePointer {
    /// The value at the start of the path.
    Same,
    /// That of a stack word at the start.
    Saved(Address),
    /// An address of the stack.
    Frame(Address),
    Unknown,
}

/// Registers after some instructions, and what comes from before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) sp: Option<Address>,
    pub(super) bp: FramePointer,
    /// Stack word that the path has stored the first value of rbp in.
    pub(super) stored: Option<Address>,
    /// The last register that was popped, and from where.
    pub(super) popped: Option<(Register, Address)>,
    /// The last register that a 64-bit number was loaded into.
    pub(super) table: Register,
    /// The last register that the stack pointer was copied to.
    copied: Option<(Register, Address)>,
    /// Whether r13 contains the stack pointer that HotSpot's interpreter passes to a method.
    pub(super) is_sender: bool,
    /// Whether the return address was moved from the top of the stack, to make room above it.
    pub(super) is_entry: bool,
}

impl Path {
    pub(super) const START: Self = Self {
        sp: Some(Address {
            base: Base::Rsp,
            offset: 0,
        }),
        bp: FramePointer::Same,
        stored: None,
        popped: None,
        table: Register::None,
        copied: None,
        is_sender: false,
        is_entry: false,
    };

    /// Applies an instruction. A call returns.
    pub(super) fn apply(&mut self, instruction: &Instruction) {
        let first = instruction.op0_kind();
        let (to, from) = (instruction.op0_register(), instruction.op1_register());
        let is_register = first == OpKind::Register;
        let second = instruction.op1_kind();
        match instruction.mnemonic() {
            Mnemonic::Call => {
                self.table = Register::None;
                self.popped = None;
            }
            Mnemonic::Push => {
                let top = Self::START.sp.map(|top| (to, top));
                self.is_entry |= is_register && self.popped.is_some() && self.popped == top;
                self.move_stack(instruction.stack_pointer_increment().into());
                if is_register && to == Register::RBP {
                    self.store(self.sp);
                }
            }
            Mnemonic::Pop if is_register => {
                let top = self.sp;
                self.move_stack(8);
                match to {
                    Register::RBP => self.bp = self.load(top),
                    Register::RSP => self.sp = None,
                    _ => {}
                }
                self.popped = top.map(|top| (to, top));
            }
            Mnemonic::Leave => {
                let frame = self.frame();
                self.sp = frame.and_then(|frame| frame.plus(8));
                self.bp = self.load(frame);
            }
            Mnemonic::Mov if is_register && to == Register::RSP => {
                self.sp = match from {
                    Register::RBP => self.frame(),
                    _ => {
                        let copied = self.copied.filter(|(register, _)| *register == from);
                        copied.map(|(_, sp)| sp)
                    }
                };
            }
            Mnemonic::Mov if is_register && to == Register::RBP => {
                self.bp = match (second, from) {
                    (OpKind::Register, Register::RSP) => self.at_stack_pointer(),
                    (OpKind::Memory, _) => self.load(self.address(instruction)),
                    _ => FramePointer::Unknown,
                };
            }
            Mnemonic::Mov if first == OpKind::Memory && from == Register::RBP => {
                self.store(self.address(instruction));
            }
            Mnemonic::Mov if instruction.code() == Code::Mov_r64_imm64 => self.table = to,
            Mnemonic::Mov if is_register && to.is_gpr64() && from == Register::RSP => {
                self.copied = self.sp.map(|sp| (to, sp));
            }
            // The address above the pushed return address.
            Mnemonic::Lea
                if to == Register::R13
                    && instruction.memory_base() == Register::RSP
                    && instruction.memory_displacement64() == 8 =>
            {
                self.is_sender = true;
            }
            Mnemonic::Lea if instruction.is_ip_rel_memory_operand() => {
                self.table = Register::RIP;
            }
            Mnemonic::Lea if is_register && to == Register::RSP => {
                self.sp = self.address(instruction);
            }
            Mnemonic::Lea if is_register && to == Register::RBP => {
                let address = self.address(instruction);
                self.bp = address.map_or(FramePointer::Unknown, FramePointer::Frame);
            }
            Mnemonic::Add | Mnemonic::Sub
                if is_register && to == Register::RSP && is_immediate(second) =>
            {
                let bytes = instruction.immediate(1) as i64;
                self.move_stack(match instruction.mnemonic() {
                    Mnemonic::Add => bytes,
                    _ => bytes.wrapping_neg(),
                });
            }
            Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Nop => {}
            _ => self.clobber(instruction),
        }
    }

    /// Applies a call of the next instruction, which gets its address.
    pub(super) fn push_address(&mut self) {
        self.move_stack(-8);
    }

    /// Applies an instruction whose result is unknown.
    fn clobber(&mut self, instruction: &Instruction) {
        let is_exchange = matches!(instruction.mnemonic(), Mnemonic::Xchg | Mnemonic::Xadd);
        let second = is_exchange.then(|| instruction.op1_register().full_register());
        let moved = instruction.stack_pointer_increment();
        if moved != 0 {
            self.move_stack(moved.into());
        }
        if instruction.op0_kind() != OpKind::Register && second.is_none() {
            return;
        }
        let first = instruction.op0_register().full_register();
        for register in [Some(first), second].into_iter().flatten() {
            match register {
                Register::RSP => self.sp = None,
                Register::RBP => self.bp = FramePointer::Unknown,
                _ => {}
            }
        }
    }

    fn move_stack(&mut self, bytes: i64) {
        self.sp = self.sp.and_then(|sp| sp.plus(bytes));
    }

    /// Returns the address in rbp.
    fn frame(&self) -> Option<Address> {
        match self.bp {
            FramePointer::Same => Some(Address {
                base: Base::Rbp,
                offset: 0,
            }),
            FramePointer::Frame(frame) => Some(frame),
            FramePointer::Saved(_) | FramePointer::Unknown => None,
        }
    }

    fn at_stack_pointer(&self) -> FramePointer {
        self.sp.map_or(FramePointer::Unknown, FramePointer::Frame)
    }

    /// Returns the address of the memory operand.
    fn address(&self, instruction: &Instruction) -> Option<Address> {
        if instruction.memory_index() != Register::None {
            return None;
        }
        let distance = instruction.memory_displacement64() as i64;
        match instruction.memory_base() {
            Register::RSP => self.sp?.plus(distance),
            Register::RBP => self.frame()?.plus(distance),
            _ => None,
        }
    }

    /// Stores rbp at an address.
    fn store(&mut self, address: Option<Address>) {
        if self.bp == FramePointer::Same {
            self.stored = address;
        }
    }

    /// Returns the value of rbp after it was loaded from an address.
    fn load(&self, address: Option<Address>) -> FramePointer {
        match address {
            None => FramePointer::Unknown,
            stored if stored == self.stored => FramePointer::Same,
            // The path has written the words below.
            Some(Address {
                base: Base::Rsp,
                offset,
            }) if offset < 0 => FramePointer::Unknown,
            Some(address) => FramePointer::Saved(address),
        }
    }

    /// Returns the rule at the start if the path returns here.
    pub(super) fn returned(&self) -> Option<UnwindRule> {
        self.rule(self.sp?)
    }

    /// Returns the rule at the start if the return address is at an address.
    pub(super) fn rule(&self, return_address: Address) -> Option<UnwindRule> {
        let cfa = return_address.plus(8)?;
        let saved = match self.bp {
            FramePointer::Same => None,
            FramePointer::Saved(at) if at.base == cfa.base => {
                Some(at.offset.checked_sub(cfa.offset)?)
            }
            _ => return None,
        };
        UnwindRule::new(cfa.base, cfa.offset, saved)
    }
}
