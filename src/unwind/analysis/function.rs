//! Follows the control flow of a function and finds the state at each instruction.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic};

use super::finding::{Certainty, Finding, is_root, rule};
use super::jump_tables::JumpTable;
use super::module::Module;
use super::state::{RBP, RSP, State, Value};
use super::sweep::{is_near, is_padding};
use super::transfer::Transfer;

/// Limit of the decoded instructions of a function. The largest of libraries need some 50 000.
const MAX_DECODED: usize = 400_000;
/// Limit of visits of a block.
const MAX_VISITS: u32 = 40;
/// Limit of the distance of a function's parts from its start, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Limit of calls of a function that are seen not to return.
const MAX_DEAD: usize = 32;

/// The address after a call, if a state holds only if that returns.
type ReturnOf = Option<u64>;

/// Findings for consecutive instructions: `start..end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) finding: Finding,
}

/// A block: instructions up to a jump, or to one that is jumped to.
struct Block {
    state: State,
    /// The last call before it that must return to lead here.
    call: ReturnOf,
    visits: u32,
    /// Whether it is known only as code that a jump to unknown targets may reach.
    filled: bool,
    /// Exclusive end of the instructions that follow, when last visited.
    end: u64,
}

/// The result of an analysis.
#[derive(Default)]
pub(super) struct Analyzed {
    /// Sorted by start.
    pub(super) rows: Vec<Row>,
    /// Whether all exits are as they should be.
    pub(super) checked: bool,
    /// Number of returns and tail calls.
    pub(super) exits: usize,
    /// Number of decoded instructions.
    pub(super) decoded: usize,
    /// Offsets of the frame pointer from the CFA, by instruction.
    #[cfg(test)]
    pub(super) frame_pointers: Vec<(u64, i64)>,
}

/// Analysis of one function.
pub(super) struct Function<'a> {
    module: &'a Module,
    transfer: Transfer,
    start: u64,
    /// Where its code is, except for parts that the compiler moved elsewhere.
    range: Range<u64>,
    blocks: BTreeMap<u64, Block>,
    strong: Vec<u64>,
    weak: Vec<u64>,
    /// States of jumps whose targets are unknown.
    dispatches: Vec<State>,
    decoded: usize,
    conflicts: bool,
    /// Addresses after calls that do not return, as other paths contradict what follows.
    dead: HashSet<u64>,
    /// An address to add to these.
    contradicted: ReturnOf,
    /// Whether blocks are entered as targets of jumps to unknown targets.
    is_filling: bool,
}

/// What follows an instruction.
enum Next {
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

impl<'a> Function<'a> {
    /// Analyzes the function at an address.
    pub(super) fn analyze(module: &'a Module, start: u64) -> Analyzed {
        let mut dead = HashSet::new();
        let mut decoded = 0;
        loop {
            let mut function = Self::new(module, start, std::mem::take(&mut dead), decoded);
            function.enter(start, State::entry(), None);
            while function.follow() && function.fill() {}
            let Some(call) = function
                .contradicted
                .filter(|_| function.dead.len() < MAX_DEAD)
            else {
                return function.result();
            };
            decoded = function.decoded;
            dead = function.dead;
            dead.insert(call);
        }
    }

    fn new(module: &'a Module, start: u64, dead: HashSet<u64>, decoded: usize) -> Self {
        let end = module.starts.after(start).unwrap_or(u64::MAX);
        Self {
            module,
            transfer: Transfer::default(),
            start,
            range: start..end.min(start.saturating_add(MAX_BYTES)),
            blocks: BTreeMap::new(),
            strong: Vec::new(),
            weak: Vec::new(),
            dispatches: Vec::new(),
            decoded,
            conflicts: false,
            dead,
            contradicted: None,
            is_filling: false,
        }
    }

    /// Enters a block with a state, which holds if the call before `call` returns.
    fn enter(&mut self, target: u64, state: State, call: ReturnOf) {
        if let Some(block) = self.blocks.get_mut(&target) {
            let (old, new) = (block.state.get(RSP), state.get(RSP));
            // With a frame pointer, the stack may have a variable size.
            let is_framed = matches!(block.state.get(RBP), Value::Cfa(_))
                && block.state.get(RBP) == state.get(RBP);
            let is_known = matches!((old, new), (Value::Cfa(_), Value::Cfa(_)));
            if old != new && is_known && !is_framed {
                match call.filter(|call| *call == target).or(block.call).or(call) {
                    // Nothing has followed from this state.
                    Some(_) if call == Some(target) => return,
                    None => self.conflicts = true,
                    contradicted => {
                        self.contradicted = contradicted;
                        return;
                    }
                }
            }
            let mut joined = block.state.clone();
            joined.join(&state);
            if call.is_none() {
                block.call = None;
            }
            if joined == block.state {
                return;
            }
            block.state = joined;
            block.visits += 1;
            if block.visits > MAX_VISITS {
                self.conflicts = true;
                return;
            }
        } else {
            if target.abs_diff(self.start) > MAX_BYTES
                || self.module.image.code_at(target).is_none()
            {
                self.conflicts = true;
                return;
            }
            // A block that goes on through this address must pass its state on.
            let before = self.blocks.range(..target).next_back();
            if let Some((&start, block)) = before.filter(|(_, block)| block.end > target) {
                let call = block.call;
                self.push(start, call);
            }
            let block = Block {
                state,
                call,
                visits: 0,
                filled: self.is_filling,
                end: target,
            };
            self.blocks.insert(target, block);
        }
        self.push(target, call);
    }

    fn push(&mut self, target: u64, call: ReturnOf) {
        let list = match call {
            Some(_) => &mut self.weak,
            None => &mut self.strong,
        };
        if !list.contains(&target) {
            list.push(target);
        }
    }

    /// Follows all blocks whose state changed. Returns false if there are too many instructions.
    fn follow(&mut self) -> bool {
        while let Some(start) = self.strong.pop().or_else(|| self.weak.pop()) {
            if self.contradicted.is_some() {
                return false;
            }
            let Some(block) = self.blocks.get(&start) else {
                continue;
            };
            let mut call = block.call;
            let mut state = block.state.clone();
            let mut end = start;
            let mut decoder = self.decoder(start);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                self.decoded += 1;
                if self.decoded > MAX_DECODED {
                    self.conflicts = true;
                    return false;
                }
                decoder.decode_out(&mut instruction);
                let next = self.next(&instruction, &state);
                self.apply(&instruction, &mut state);
                end = instruction.next_ip();
                match next {
                    Next::Through if self.is_block(end) => {
                        self.enter(end, state, call);
                        break;
                    }
                    // A call that does not return may end a function.
                    Next::Return if self.dead.contains(&end) || self.module.starts.has(end) => {
                        break;
                    }
                    Next::Return if self.is_block(end) => {
                        self.enter(end, state, Some(end));
                        break;
                    }
                    Next::Return => call = Some(end),
                    Next::Jump {
                        target,
                        conditional,
                    } => {
                        self.enter(target, state.clone(), call);
                        if !conditional {
                            break;
                        }
                        if self.is_block(end) {
                            self.enter(end, state, call);
                            break;
                        }
                    }
                    Next::Exit { conditional: true } if self.is_block(end) => {
                        self.enter(end, state, call);
                        break;
                    }
                    Next::Through | Next::Exit { conditional: true } => {}
                    Next::Indirect => {
                        self.jump_indirectly(&instruction, &state, call);
                        break;
                    }
                    Next::Exit { conditional: false } | Next::Stop => break,
                }
            }
            // A function does not run into data.
            self.conflicts |= instruction.is_invalid();
            if let Some(block) = self.blocks.get_mut(&start) {
                block.end = end;
            }
        }
        true
    }

    fn decoder(&self, start: u64) -> Decoder<'a> {
        let code = self.module.image.code_at(start).unwrap_or_default();
        Decoder::with_ip(64, code, start, DecoderOptions::NONE)
    }

    /// Returns whether a block starts at an address.
    fn is_block(&self, address: u64) -> bool {
        self.module.sweep.is_target(address) || self.blocks.contains_key(&address)
    }

    fn next(&self, instruction: &Instruction, state: &State) -> Next {
        let next = instruction.next_ip();
        match instruction.flow_control() {
            _ if instruction.is_invalid() => Next::Stop,
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
                let is_elsewhere = target != self.start && self.module.starts.has(target);
                match is_near(instruction) {
                    true if !is_elsewhere => Next::Jump {
                        target,
                        conditional,
                    },
                    true => Next::Exit { conditional },
                    false => Next::Stop,
                }
            }
            FlowControl::IndirectBranch => match JumpTable::of(instruction, state) {
                None if state.can_return() => Next::Exit { conditional: false },
                _ => Next::Indirect,
            },
            FlowControl::Return => Next::Exit { conditional: false },
            FlowControl::Call => {
                let target = instruction.near_branch_target();
                match is_near(instruction) && self.module.starts.never_returns(target) {
                    true => Next::Stop,
                    false if is_near(instruction) && target == next => Next::Through,
                    false => Next::Return,
                }
            }
            FlowControl::IndirectCall => Next::Return,
            FlowControl::Exception => Next::Stop,
        }
    }

    fn apply(&mut self, instruction: &Instruction, state: &mut State) {
        match instruction.flow_control() {
            FlowControl::Call
                if is_near(instruction)
                    && instruction.near_branch_target() == instruction.next_ip() =>
            {
                state.move_stack_pointer(-8);
            }
            FlowControl::Call | FlowControl::IndirectCall => state.call(),
            _ => self.transfer.apply(instruction, state),
        }
    }

    fn jump_indirectly(&mut self, jump: &Instruction, state: &State, call: ReturnOf) {
        let table = JumpTable::of(jump, state);
        let targets = table.map_or_else(Vec::new, |table| {
            table.targets(self.module, &self.range, state.compared)
        });
        if targets.is_empty() {
            if !self.dispatches.contains(state) {
                self.dispatches.push(state.clone());
            }
            return;
        }
        let mut state = state.clone();
        state.compared = None;
        for target in targets {
            self.enter(target, state.clone(), call);
        }
    }

    /// Enters the first instruction that was not reached with the state of a jump to unknown targets.
    ///
    /// Returns whether there is one.
    fn fill(&mut self) -> bool {
        let Some(mut state) = self.dispatches.first().cloned() else {
            return false;
        };
        for other in self.dispatches.iter().skip(1) {
            state.join(other);
        }
        state.compared = None;
        let mut at = self.start;
        let inside = self.blocks.range(self.range.clone());
        for (start, block) in inside {
            if *start > at && self.enters_at(&mut at, *start) {
                break;
            }
            at = at.max(block.end);
        }
        let end = self.range.end;
        if at >= end || !self.enters_at(&mut at, end) {
            return false;
        }
        self.is_filling = true;
        self.enter(at, state, Some(at));
        true
    }

    /// Moves an address over padding. Returns whether code follows before `end`.
    fn enters_at(&self, at: &mut u64, end: u64) -> bool {
        let mut decoder = self.decoder(*at);
        let mut instruction = Instruction::default();
        while decoder.can_decode() && *at < end {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                return false;
            }
            if !is_padding(&instruction) {
                return true;
            }
            *at = instruction.next_ip();
        }
        false
    }

    /// Returns the findings of all instructions, and checks the exits.
    fn result(mut self) -> Analyzed {
        let blocks = std::mem::take(&mut self.blocks);
        let mut result = Analyzed {
            checked: !self.conflicts,
            decoded: self.decoded,
            ..Analyzed::default()
        };
        let mut starts = blocks.keys().copied().skip(1);
        let is_entry = self.module.starts.is_entry(self.start);
        for (&start, block) in &blocks {
            let end = starts.next().unwrap_or(u64::MAX).min(block.end);
            let mut state = block.state.clone();
            let mut decoder = self.decoder(start);
            let mut instruction = Instruction::default();
            while decoder.can_decode() && decoder.ip() < end {
                decoder.decode_out(&mut instruction);
                if let Next::Exit { .. } = self.next(&instruction, &state) {
                    result.exits += 1;
                    result.checked &= state.can_return();
                }
                #[cfg(test)]
                if let super::state::Value::Cfa(offset) = state.get(super::state::RBP) {
                    result.frame_pointers.push((instruction.ip(), offset));
                }
                let finding = match is_entry || is_root(&state) {
                    true => Some(Finding::Root),
                    false => rule(&state).map(|rule| {
                        let certainty = match block.filled {
                            true => Certainty::Likely,
                            false => Certainty::Checked,
                        };
                        Finding::Caller(rule, certainty)
                    }),
                };
                if let Some(finding) = finding {
                    let row = Row {
                        start: instruction.ip(),
                        end: instruction.next_ip(),
                        finding,
                    };
                    match result.rows.last_mut() {
                        Some(last) if last.end == row.start && last.finding == finding => {
                            last.end = row.end;
                        }
                        _ => result.rows.push(row),
                    }
                }
                self.apply(&instruction, &mut state);
            }
        }
        if !result.checked {
            result.rows.iter_mut().for_each(|row| row.finding.doubt());
        }
        result
    }
}
