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

/// Limit of the work for a function: decoded instructions, known stack words of states that are
/// compared, entries of jump tables. The largest functions of libraries need some 100 000.
const MAX_WORK: usize = 1_000_000;
/// Limit of the blocks of a function. The largest of libraries have some 2 000.
const MAX_BLOCKS: usize = 16 << 10;
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
pub(in crate::unwind) struct Row {
    pub(in crate::unwind) start: u64,
    pub(in crate::unwind) end: u64,
    pub(in crate::unwind) finding: Finding,
}

/// A block: instructions up to a jump, or to one that is jumped to.
struct Block {
    state: State,
    /// The last call before it that must return to lead here.
    call: ReturnOf,
    visits: u32,
    /// Whether it is in a list of blocks to follow.
    is_queued: bool,
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
    /// What it took: decoded instructions, mostly.
    pub(super) work: usize,
    /// Offsets of the frame pointer from the CFA, by instruction.
    #[cfg(test)]
    pub(super) frame_pointers: Vec<(u64, i64)>,
}

impl Analyzed {
    /// Lowers the certainty of all findings.
    pub(super) fn doubt(&mut self) {
        self.rows.retain_mut(|row| match row.finding.doubted() {
            Some(doubted) => {
                row.finding = doubted;
                true
            }
            None => false,
        });
    }
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
    /// What holds at all jumps whose targets are unknown.
    dispatch: Option<State>,
    /// Code before it was reached, or cannot be entered.
    filled_to: u64,
    work: usize,
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
        let mut work = 0;
        loop {
            let mut function = Self::new(module, start, std::mem::take(&mut dead), work);
            function.enter(start, State::entry(), None);
            while function.follow() && function.fill() {}
            let Some(call) = function
                .contradicted
                .filter(|_| function.dead.len() < MAX_DEAD)
            else {
                return function.result();
            };
            work = function.work;
            dead = function.dead;
            dead.insert(call);
        }
    }

    fn new(module: &'a Module, start: u64, dead: HashSet<u64>, work: usize) -> Self {
        let end = module.starts.after(start).unwrap_or(u64::MAX);
        Self {
            module,
            transfer: Transfer::default(),
            start,
            range: start..end.min(start.saturating_add(MAX_BYTES)),
            blocks: BTreeMap::new(),
            strong: Vec::new(),
            weak: Vec::new(),
            dispatch: None,
            filled_to: start,
            work,
            conflicts: false,
            dead,
            contradicted: None,
            is_filling: false,
        }
    }

    /// Enters a block with a state, which holds if the call before `call` returns.
    fn enter(&mut self, target: u64, state: State, call: ReturnOf) {
        if !self.spend(state.weight()) {
            return;
        }
        if let Some(block) = self.blocks.get_mut(&target) {
            let (old, new) = (block.state.get(RSP), state.get(RSP));
            // With a frame pointer, the stack may have a variable size.
            let is_framed = matches!(block.state.get(RBP), Value::Cfa(_))
                && block.state.get(RBP) == state.get(RBP);
            let is_known = matches!((old, new), (Value::Cfa(_), Value::Cfa(_)));
            if old != new && is_known && !is_framed {
                match call.filter(|call| *call == target).or(call).or(block.call) {
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
            if self.blocks.len() >= MAX_BLOCKS
                || target.abs_diff(self.start) > MAX_BYTES
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
                is_queued: false,
                filled: self.is_filling,
                end: target,
            };
            self.blocks.insert(target, block);
        }
        self.push(target, call);
    }

    fn push(&mut self, target: u64, call: ReturnOf) {
        let is_queued = self
            .blocks
            .get_mut(&target)
            .map(|block| &mut block.is_queued);
        if is_queued.is_some_and(|is_queued| !std::mem::replace(is_queued, true)) {
            match call {
                Some(_) => self.weak.push(target),
                None => self.strong.push(target),
            }
        }
    }

    /// Counts work. Returns false if it is too much.
    fn spend(&mut self, work: usize) -> bool {
        self.work += work;
        let is_little = self.work <= MAX_WORK;
        self.conflicts |= !is_little;
        is_little
    }

    /// Follows all blocks whose state changed. Returns false if there are too many instructions.
    fn follow(&mut self) -> bool {
        while let Some(start) = self.strong.pop().or_else(|| self.weak.pop()) {
            if self.contradicted.is_some() {
                return false;
            }
            let Some(block) = self.blocks.get_mut(&start) else {
                continue;
            };
            block.is_queued = false;
            let mut call = block.call;
            let mut state = block.state.clone();
            let mut end = start;
            let mut decoder = self.decoder(start);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                if !self.spend(1) {
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
                    Next::Return if self.ends_before(end) => break,
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
                let is_elsewhere = target != self.start
                    && (self.module.starts.has(target) || self.is_tail_call(target, state));
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

    /// Returns whether other code than what follows the call before an address starts there, as the
    /// call does not return.
    fn ends_before(&self, address: u64) -> bool {
        let padding = self.decoder(address).into_iter().take_while(is_padding);
        let after_padding = padding.last().map_or(address, |last| last.next_ip());
        self.dead.contains(&address)
            || self.module.starts.has(after_padding)
            || !self.range.contains(&address) && self.module.is_part_of_others(address, &self.range)
    }

    /// Returns whether a jump leads to what may be another function, with the state of a return.
    fn is_tail_call(&self, target: u64, state: &State) -> bool {
        let candidates = &self.module.sweep.candidates;
        !self.range.contains(&target)
            && candidates.binary_search(&target).is_ok()
            && state.can_return()
    }

    fn apply(&mut self, instruction: &Instruction, state: &mut State) {
        match instruction.flow_control() {
            FlowControl::Call
                if is_near(instruction)
                    && instruction.near_branch_target() == instruction.next_ip() =>
            {
                state.move_stack_pointer(-8);
            }
            FlowControl::Call | FlowControl::IndirectCall if !is_system_call(instruction) => {
                state.call();
            }
            _ => self.transfer.apply(instruction, state),
        }
    }

    fn jump_indirectly(&mut self, jump: &Instruction, state: &State, call: ReturnOf) {
        let table = JumpTable::of(jump, state);
        let targets = table.map_or_else(Vec::new, |table| {
            table.targets(self.module, &self.range, state.compared)
        });
        if targets.is_empty() {
            match &mut self.dispatch {
                Some(all) => all.join(state),
                None => self.dispatch = Some(state.clone()),
            }
            self.spend(state.weight());
            return;
        }
        self.spend(targets.len());
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
        let Some(mut state) = self.dispatch.clone() else {
            return false;
        };
        state.compared = None;
        let mut at = self.filled_to;
        let end = self.range.end;
        // Blocks may overlap, so the one before may reach further.
        let before = self.blocks.range(..at).next_back();
        at = at.max(before.map_or(at, |(_, block)| block.end));
        loop {
            if at >= end {
                return false;
            }
            let next = self.blocks.range(at..end).next();
            let next = next.map(|(start, block)| (*start, block.end));
            let gap_end = next.map_or(end, |(start, _)| start);
            if at < gap_end && self.enters_at(&mut at, gap_end) {
                break;
            }
            match next {
                Some((start, block_end)) if self.spend(1) => {
                    at = at.max(block_end).max(start.saturating_add(1));
                }
                _ => return false,
            }
        }
        self.filled_to = at;
        self.is_filling = true;
        self.enter(at, state, Some(at));
        true
    }

    /// Moves an address over padding. Returns whether code follows before `end`.
    fn enters_at(&mut self, at: &mut u64, end: u64) -> bool {
        let mut decoder = self.decoder(*at);
        let mut instruction = Instruction::default();
        while decoder.can_decode() && *at < end {
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() || !self.spend(1) {
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
            work: self.work,
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
                    false => rule(&state).map(|rule| Finding::Caller(rule, Certainty::Checked)),
                };
                let finding = match block.filled && !is_entry {
                    true => finding.and_then(Finding::doubted),
                    false => finding,
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
        if !result.checked && !is_entry {
            result.doubt();
        }
        result
    }
}

fn is_system_call(instruction: &Instruction) -> bool {
    matches!(
        instruction.mnemonic(),
        Mnemonic::Syscall | Mnemonic::Sysenter
    )
}
