//! Follows the control flow of a function and finds the state at each instruction.

use iced_x86::{Instruction, Register};

use super::analyzed::{Analyzed, Row};
use super::blocks::{Block, Blocks, ReturnOf};
use super::control_flow::{Next, Scope};
use super::dead_calls::DeadCalls;
use super::finding::{Certainty, Finding, is_root, rule};
use super::jump_tables::JumpTable;
use super::module::Module;
use super::state::{RBP, State, Value};
use super::sweep::is_padding;
use super::transfer::Transfer;

/// Limit of the work for a function: decoded instructions, known stack words of states that are
/// compared, entries of jump tables. The largest functions of libraries need some 100 000.
const MAX_WORK: usize = 1_000_000;
/// Limit of the distance of a function's parts from its start, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// Analysis of one function.
pub(super) struct Function<'a> {
    scope: Scope<'a>,
    transfer: Transfer,
    blocks: Blocks,
    /// What holds at all jumps whose targets are unknown.
    dispatch: Option<State>,
    /// Code before it was reached, or cannot be entered.
    filled_to: u64,
    work: usize,
    /// Whether blocks are entered as targets of jumps to unknown targets.
    is_filling: bool,
}

impl<'a> Function<'a> {
    /// Analyzes the function at an address.
    pub(super) fn analyze(module: &'a Module, start: u64) -> Analyzed {
        let mut function = Self::new(module, start);
        loop {
            function.enter(start, State::entry(), None);
            while function.follow() && function.fill() {}
            let Some(contradicted) = function.blocks.contradicted else {
                return function.result();
            };
            if !function.scope.dead.add(contradicted) {
                function.blocks.conflicts = true;
                return function.result();
            }
            function.restart();
        }
    }

    fn new(module: &'a Module, start: u64) -> Self {
        let end = module.starts.after(start).unwrap_or(u64::MAX);
        Self {
            scope: Scope {
                module,
                start,
                range: start..end.min(start.saturating_add(MAX_BYTES)),
                dead: DeadCalls::default(),
            },
            transfer: Transfer::default(),
            blocks: Blocks::default(),
            dispatch: None,
            filled_to: start,
            work: 0,
            is_filling: false,
        }
    }

    /// Forgets what was found, except for the calls that do not return.
    fn restart(&mut self) {
        self.blocks = Blocks::default();
        self.dispatch = None;
        self.filled_to = self.scope.start;
        self.is_filling = false;
    }

    /// Enters a block with a state, which holds if the call before `call` returns.
    fn enter(&mut self, target: u64, state: State, call: ReturnOf) {
        if !self.spend(state.weight()) {
            return;
        }
        let is_code = || {
            target.abs_diff(self.scope.start) <= MAX_BYTES
                && self.scope.module.image.code_at(target).is_some()
        };
        match self.blocks.has(target) || is_code() {
            true => self.blocks.enter(target, state, call, self.is_filling),
            false => self.blocks.conflicts = true,
        }
    }

    /// Counts work. Returns false if it is too much.
    fn spend(&mut self, work: usize) -> bool {
        self.work += work;
        let is_little = self.work <= MAX_WORK;
        self.blocks.conflicts |= !is_little;
        is_little
    }

    /// Follows all blocks whose state changed. Returns false if there are too many instructions.
    fn follow(&mut self) -> bool {
        while let Some((start, mut state, mut call)) = self.blocks.take() {
            if self.blocks.contradicted.is_some() {
                return false;
            }
            let mut end = start;
            let mut decoder = self.scope.decoder(start);
            let mut instruction = Instruction::default();
            while decoder.can_decode() {
                if !self.spend(1) {
                    return false;
                }
                decoder.decode_out(&mut instruction);
                let next = self.scope.next(&instruction, &state);
                self.transfer.apply(&instruction, &mut state);
                end = instruction.next_ip();
                match next {
                    Next::Through => {}
                    // A call that does not return may end a function.
                    Next::Return if self.scope.ends_before(end) => break,
                    Next::Return => call = Some(end),
                    Next::Jump {
                        target,
                        conditional,
                    } => {
                        self.enter(target, state.clone(), call);
                        if !conditional {
                            break;
                        }
                    }
                    Next::Exit { conditional: true } => {}
                    Next::Indirect => {
                        self.jump_indirectly(&instruction, &state, call);
                        break;
                    }
                    Next::Exit { conditional: false } | Next::Stop => break,
                }
                if self.is_block(end) {
                    self.enter(end, state, call);
                    break;
                }
            }
            // A function does not run into data.
            self.blocks.conflicts |= instruction.is_invalid();
            self.blocks.set_end(start, end);
        }
        true
    }

    /// Returns whether a block starts at an address.
    fn is_block(&self, address: u64) -> bool {
        self.scope.module.sweep.is_target(address) || self.blocks.has(address)
    }

    fn jump_indirectly(&mut self, jump: &Instruction, state: &State, call: ReturnOf) {
        let Scope { module, range, .. } = &self.scope;
        let table = JumpTable::of(jump, state);
        let targets = table.map_or_else(Vec::new, |table| {
            table.targets(module, range, state.compared)
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
        let end = self.scope.range.end;
        // Blocks may overlap, so the one before may reach further.
        let before = self.blocks.before(self.filled_to);
        let mut at = before.map_or(0, |(_, block)| block.end);
        at = at.max(self.filled_to);
        loop {
            if at >= end {
                return false;
            }
            let next = self.blocks.first_in(at..end);
            let next = next.map(|(start, block)| (start, block.end));
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
        let mut decoder = self.scope.decoder(*at);
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
        // What follows a call that does not return is reached by another path, or other code.
        let mut dead = self.scope.dead.assumed();
        let is_explained =
            dead.all(|call| self.blocks.contains(call) || self.scope.may_end_before(call));
        let mut result = Analyzed {
            checked: !self.blocks.conflicts && is_explained,
            work: self.work,
            ..Analyzed::default()
        };
        let is_entry = self.scope.module.starts.is_entry(self.scope.start);
        for (range, block) in self.blocks.iter() {
            let mut state = block.state.clone();
            let mut decoder = self.scope.decoder(range.start);
            let mut instruction = Instruction::default();
            while decoder.can_decode() && decoder.ip() < range.end {
                decoder.decode_out(&mut instruction);
                result.uses_callers_frame |= instruction.memory_base() == Register::RBP
                    && state.get(RBP) == Value::Entry(RBP);
                if let Next::Exit { .. } = self.scope.next(&instruction, &state) {
                    result.exits += 1;
                    result.checked &= state.can_return();
                }
                #[cfg(test)]
                if let Value::Cfa(offset) = state.get(RBP) {
                    result.frame_pointers.push((instruction.ip(), offset));
                }
                if let Some(finding) = finding(&state, block, is_entry) {
                    result.add(Row {
                        start: instruction.ip(),
                        end: instruction.next_ip(),
                        finding,
                    });
                }
                self.transfer.apply(&instruction, &mut state);
            }
        }
        if !result.checked && !is_entry {
            result.doubt();
        }
        result
    }
}

/// Returns what the state at an instruction of a block shows.
fn finding(state: &State, block: &Block, is_entry: bool) -> Option<Finding> {
    if is_entry {
        return Some(Finding::Root);
    }
    let finding = match is_root(state) {
        true => Finding::Root,
        false => Finding::Caller(rule(state)?, Certainty::Checked),
    };
    match block.filled {
        true => finding.doubted(),
        false => Some(finding),
    }
}

#[cfg(test)]
#[path = "function_tests.rs"]
mod tests;
