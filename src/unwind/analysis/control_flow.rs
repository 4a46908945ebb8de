//! What follows an instruction of a function.

use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::dead_calls::DeadCalls;
use super::jump_tables::JumpTable;
use super::module::Module;
use super::state::State;
use super::sweep::{is_near, is_padding};

/// Maximum number of bytes of padding that are read: it aligns code to 64 bytes at most.
const MAX_PADDING: u64 = 64;

/// What follows an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next instruction.
    Through,
    /// The next instruction, if a called function returns.
    Return,
    /// A jump within the function, and perhaps the next instruction.
    Jump { target: u64, conditional: bool },
    /// A jump through a table or a register.
    Indirect,
    /// Return, or jump to another function, and perhaps the next instruction.
    Exit { conditional: bool },
    /// Nothing.
    Stop,
}

/// Where a function is, and which of its calls do not return.
pub(super) struct Scope<'a> {
    pub(super) module: &'a Module,
    pub(super) start: u64,
    /// Where its code is, except for parts that the compiler moved elsewhere.
    pub(super) range: Range<u64>,
    pub(super) dead: DeadCalls,
}

impl<'a> Scope<'a> {
    pub(super) fn decoder(&self, start: u64) -> Decoder<'a> {
        let code = self.module.image.code_at(start).unwrap_or_default();
        Decoder::with_ip(64, code, start, DecoderOptions::NONE)
    }

    /// Returns what follows an instruction, before which a state holds.
    pub(super) fn next(&self, instruction: &Instruction, state: &State) -> Next {
        match instruction.flow_control() {
            _ if instruction.is_invalid() => Next::Stop,
            // The decoder counts system calls as calls.
            _ if is_system_call(instruction) => Next::Through,
            FlowControl::Next | FlowControl::XbeginXabortXend => match instruction.mnemonic() {
                Mnemonic::Hlt => Next::Stop,
                _ => Next::Through,
            },
            FlowControl::Interrupt => match instruction.mnemonic() {
                Mnemonic::Int3 => Next::Stop,
                _ => Next::Through,
            },
            FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                let conditional = instruction.flow_control() == FlowControl::ConditionalBranch;
                let target = instruction.near_branch_target();
                match is_near(instruction) {
                    true if self.leaves_to(target, state) => Next::Exit { conditional },
                    true => Next::Jump {
                        target,
                        conditional,
                    },
                    false => Next::Stop,
                }
            }
            FlowControl::IndirectBranch => match JumpTable::of(instruction, state) {
                None if state.can_return() => Next::Exit { conditional: false },
                _ => Next::Indirect,
            },
            FlowControl::Return => Next::Exit { conditional: false },
            FlowControl::Call
                if is_call_of_next(instruction)
                    && !self.module.starts.has(instruction.next_ip()) =>
            {
                Next::Through
            }
            FlowControl::Call => {
                let target = instruction.near_branch_target();
                match is_near(instruction) && self.module.starts.never_returns(target) {
                    true => Next::Stop,
                    false => Next::Return,
                }
            }
            FlowControl::IndirectCall => Next::Return,
            FlowControl::Exception => Next::Stop,
        }
    }

    /// Returns whether a jump leads to another function.
    fn leaves_to(&self, target: u64, state: &State) -> bool {
        target != self.start && (self.module.starts.has(target) || self.is_tail_call(target, state))
    }

    /// Returns whether a jump leads to what may be another function, with the state of a return.
    fn is_tail_call(&self, target: u64, state: &State) -> bool {
        let candidates = &self.module.sweep.candidates;
        !self.range.contains(&target)
            && candidates.binary_search(&target).is_ok()
            && state.can_return()
    }

    /// Returns whether other code than what follows the call before an address starts there, as the
    /// call does not return.
    pub(super) fn ends_before(&self, address: u64) -> bool {
        let start = self.after_padding(address);
        self.dead.has(address)
            || self.module.starts.has(start)
            || self.is_aligned_start(address, start)
            || !self.range.contains(&address) && self.module.is_part_of_others(address, &self.range)
    }

    /// Returns whether other code than what follows the call before an address may start there.
    pub(super) fn may_end_before(&self, address: u64) -> bool {
        let start = self.after_padding(address);
        start != address
            || self.module.starts.has(start)
            || self.module.sweep.candidates.binary_search(&start).is_ok()
            || self
                .module
                .entrances(start..start.saturating_add(1))
                .next()
                .is_some()
    }

    /// Returns whether padding before `start` aligns a function. Loops are aligned, too, but jumped to.
    ///
    /// Without optimizations, compilers put one byte of padding after calls that return.
    fn is_aligned_start(&self, padding: u64, start: u64) -> bool {
        start - padding > 1 && start.is_multiple_of(16) && !self.module.sweep.is_target(start)
    }

    fn after_padding(&self, address: u64) -> u64 {
        let end = address.saturating_add(MAX_PADDING);
        let padding = self.decoder(address).into_iter();
        let padding = padding.take_while(|padding| is_padding(padding) && padding.ip() < end);
        padding.last().map_or(address, |last| last.next_ip())
    }
}

pub(super) fn is_system_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter
    )
}

/// Returns whether an instruction pushes the address of the next one: `call` of it.
pub(super) fn is_call_of_next(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::Call
        && is_near(instruction)
        && instruction.near_branch_target() == instruction.next_ip()
}
