//! Unwind rules of Go programs, from their function table (`.gopclntab`).
//!
//! The table has the size of the stack frame at each instruction: the return address is directly
//! above the frame. Functions that save rbp do so below the return address, in their prologue (Go,
//! `cmd/internal/obj/x86/obj6.go`, `preprocess`):
//!
//! ```text
//! 1.21 and later   push rbp; mov rbp, rsp; sub rsp, n - 8
//! before           sub rsp, n; mov [rsp + n - 8], rbp; lea rbp, [rsp + n - 8]
//! ```
//!
//! Few functions of the runtime, in assembly, change to another stack. The table flags them.

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register,
};
use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::go::{GoFunction, GoTable};

use super::analysis::{Certainty, Finding, StackSwitch};
use super::rule::{Base, UnwindRule};

/// Limit of the code of a function that is decoded, in bytes. Those that change stacks have 600.
const MAX_CODE_BYTES: usize = 4 << 10;
/// Size of a call of an address.
const CALL_BYTES: usize = 5;
/// Functions without a caller. Go 1.16 does not flag them.
const ROOTS: [&[u8]; 3] = [b"runtime.goexit", b"runtime.mstart", b"runtime.rt0_go"];
/// Runs on the thread's stack, for a goroutine that needs more stack or shall be preempted.
const NEW_STACK: &[u8] = b"runtime.newstack";
/// Functions that it calls to preempt the goroutine, which another thread may then run.
const PREEMPTION: [&[u8]; 3] = [
    b"runtime.gopreempt_m",
    b"runtime.goschedImpl",
    b"runtime.preemptPark",
];
/// Changes to the thread's stack and calls the scheduler. Go 1.16 declares it to have no caller
/// (`runtime/traceback.go`, `topofstack`).
const MCALL: &[u8] = b"runtime.mcall";
/// Functions that change to another stack. Go 1.16 does not flag them.
const SWITCHES: [&[u8]; 8] = [
    MCALL,
    b"runtime.systemstack",
    b"runtime.morestack",
    b"runtime.asmcgocall",
    b"runtime.cgocallback",
    b"runtime.gogo",
    b"runtime.nanotime1",
    b"runtime.walltime1",
];

/// The function table of a Go program.
pub(super) struct GoProgram {
    table: GoTable,
}

impl GoProgram {
    /// Reads the table. Returns `None` if the file has none that can be used.
    ///
    /// Files without section headers, in which it would be searched, are not read.
    pub(super) fn read(elf: &ElfFile) -> Option<Self> {
        if !GoTable::is_in(elf) {
            return None;
        }
        let table = GoTable::read(elf).ok().flatten()?;
        Some(Self { table })
    }

    /// Returns the memory that it occupies, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.table.size_bytes()
    }

    /// Returns what the table shows about a frame at an instruction, or within one: a call.
    ///
    /// Returns `None` for code of other languages.
    pub(super) fn at(&self, address: u64) -> Option<Finding> {
        let function = self.table.lookup(address)?;
        if function.flags.is_top_frame() || ROOTS.contains(&function.name) {
            return Some(Finding::Root);
        }
        if function.name == NEW_STACK
            && let Some(called) = self.called(&function, address)
            && PREEMPTION.contains(&called.name)
        {
            return Some(Finding::Root);
        }
        let mut switch = StackSwitch {
            function: function.start,
            keeps_rbp: true,
        };
        let start = Start::read(&function);
        if function.flags.writes_stack_pointer() || SWITCHES.contains(&function.name) {
            let position = start.position(address);
            switch.keeps_rbp = position.keeps_rbp;
            if position.is_switched {
                return Some(match function.name {
                    MCALL if position.is_caller => Finding::Root,
                    _ => Finding::OtherStack(switch),
                });
            }
        }
        let rule = function.stack_bytes(address).and_then(|size| {
            let cfa = i64::try_from(size).ok()?.checked_add(8)?;
            let saved = (size > 0 && start.saves_rbp(address)).then_some(-16);
            UnwindRule::new(Base::Rsp, cfa, saved)
        });
        Some(match rule {
            Some(rule) => Finding::Caller(rule, Certainty::Checked),
            None => Finding::OtherStack(switch),
        })
    }

    /// Returns the function that is called by the call whose last byte is at an address.
    fn called(&self, function: &GoFunction<'_>, address: u64) -> Option<GoFunction<'_>> {
        let size = usize::try_from(address - function.start)
            .ok()?
            .checked_add(1)?;
        let code = function.code(size.min(MAX_CODE_BYTES));
        let call = code.get(size.checked_sub(CALL_BYTES)?..size)?;
        let call_address = (address + 1).checked_sub(CALL_BYTES as u64)?;
        let call = Decoder::with_ip(64, call, call_address, DecoderOptions::NONE).decode();
        match call.code() {
            Code::Call_rel32_64 => self.table.lookup(call.near_branch_target()),
            _ => None,
        }
    }
}

/// The first instructions of a function, and the sizes of its frame there.
struct Start<'a> {
    function: &'a GoFunction<'a>,
    code: Vec<u8>,
    /// Exclusive end and size of address ranges.
    sizes: Vec<(u64, Option<u64>)>,
}

impl<'a> Start<'a> {
    fn read(function: &'a GoFunction<'a>) -> Self {
        Self {
            function,
            code: function.code(MAX_CODE_BYTES),
            sizes: function.stack_sizes(MAX_CODE_BYTES as u64),
        }
    }

    fn decoder_at(&self, address: u64) -> Decoder<'_> {
        let offset = usize::try_from(address.saturating_sub(self.function.start));
        let code = offset.ok().and_then(|offset| self.code.get(offset..));
        Decoder::with_ip(64, code.unwrap_or_default(), address, DecoderOptions::NONE)
    }

    /// Returns the size of the frame at an address.
    fn size(&self, address: u64) -> Option<u64> {
        let index = self.sizes.partition_point(|(end, _)| *end <= address);
        self.sizes.get(index)?.1
    }

    /// Returns whether rbp is saved below the return address, in a frame at an address.
    fn saves_rbp(&self, address: u64) -> bool {
        const PUSH_RBP: u8 = 0x55;
        let mut from = self.function.start;
        let framed = self.sizes.iter().find_map(|&(end, size)| {
            let start = std::mem::replace(&mut from, end);
            size.filter(|size| *size > 0).map(|size| (start, size))
        });
        let Some((framed, size)) = framed else {
            return false;
        };
        let before = usize::try_from(framed - self.function.start);
        let before = before.ok().and_then(|at| self.code.get(at.checked_sub(1)?));
        if size == 8 && before == Some(&PUSH_RBP) {
            return address >= framed;
        }
        let save = self.decoder_at(framed).decode();
        save.code() == Code::Mov_rm64_r64
            && save.op0_kind() == OpKind::Memory
            && save.memory_base() == Register::RSP
            && save.memory_index() == Register::None
            && save.op1_register() == Register::RBP
            && save.memory_displacement64() == size.wrapping_sub(8)
            && address >= save.next_ip()
    }

    /// Returns what is known at an address of a function that may change to another stack.
    fn position(&self, address: u64) -> Position {
        let mut position = Position {
            is_switched: false,
            keeps_rbp: true,
            is_caller: false,
        };
        let mut decoder = self.decoder_at(self.function.start);
        while decoder.can_decode() {
            let instruction = decoder.decode();
            if instruction.next_ip() > address {
                position.is_caller = instruction.ip() != address;
                return position;
            }
            position.keeps_rbp &= !(position.is_switched && writes(&instruction, Register::RBP));
            position.is_switched |= self.changes_stack(&instruction);
        }
        position.is_switched = true;
        position
    }

    /// Returns whether an instruction changes rsp in another way than the table has.
    fn changes_stack(&self, instruction: &Instruction) -> bool {
        if !writes(instruction, Register::RSP) {
            return false;
        }
        let grown = match (instruction.mnemonic(), instruction.try_immediate(1)) {
            (Mnemonic::Sub, Ok(bytes)) => bytes.cast_signed(),
            (Mnemonic::Add, Ok(bytes)) => bytes.cast_signed().wrapping_neg(),
            _ => return true,
        };
        let before = self.size(instruction.ip());
        let after = self.size(instruction.next_ip());
        before.and_then(|before| before.checked_add_signed(grown)) != after
    }
}

/// Position in a function that may change the stack pointer in ways that the table does not have.
struct Position {
    /// Whether an instruction before has changed it.
    is_switched: bool,
    /// Whether rbp has been kept since.
    keeps_rbp: bool,
    /// Whether the address is within an instruction, as that of a caller is.
    is_caller: bool,
}

/// Returns whether an operand that an instruction writes is a register.
fn writes(instruction: &Instruction, register: Register) -> bool {
    let is_register = |operand| {
        instruction.op_kind(operand) == OpKind::Register
            && instruction.op_register(operand).full_register() == register
    };
    let operands = match (instruction.flow_control(), instruction.mnemonic()) {
        (FlowControl::Next, Mnemonic::Cmp | Mnemonic::Test | Mnemonic::Push) => 0,
        (FlowControl::Next, Mnemonic::Xchg | Mnemonic::Xadd) => 2,
        (FlowControl::Next, _) => instruction.op_count().min(1),
        _ => 0,
    };
    (0..operands).any(is_register)
}
