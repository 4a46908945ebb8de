//! Follows the paths from an instruction to where its function returns.

use std::collections::VecDeque;

use iced_x86::{Decoder, DecoderError, DecoderOptions, FlowControl, Instruction, Mnemonic};
use rustc_hash::{FxBuildHasher, FxHashSet};

use super::code::Code;
use crate::dotnet::Memory;
use crate::unwind::analysis::is_near;
use crate::unwind::path::Path;
use crate::unwind::rule::UnwindRule;

/// Limit of decoded instructions: some 30 µs.
const MAX_INSTRUCTIONS: usize = 448;
/// Limit of the instructions after the first return, which look for others.
const MORE_INSTRUCTIONS: usize = 64;
/// Number of returns that agree.
const ENOUGH: usize = 2;
/// Limit of the paths that wait.
const MAX_PATHS: usize = 64;
/// Limit of the distance of a jump. Others lead to other functions.
const MAX_DISTANCE: u64 = 64 << 10;

/// Returns the rule at an address, if the paths from there agree.
pub(super) fn rule<M: Memory>(code: &mut Code<'_, M>, address: u64) -> Option<UnwindRule> {
    Scan::new(address).rule(code)
}

/// Rules of the paths that were followed to their end.
#[derive(Default)]
struct Rules {
    /// Rule of the paths that return, and their number.
    returned: Option<(UnwindRule, usize)>,
    /// Rule of the paths that end with a jump, to another function or within this one.
    left: Option<UnwindRule>,
    /// Whether paths disagree.
    is_ambiguous: bool,
}

impl Rules {
    fn add_return(&mut self, rule: UnwindRule) {
        let (known, paths) = self.returned.get_or_insert((rule, 0));
        *paths += 1;
        self.is_ambiguous |= *known != rule;
    }

    fn add_exit(&mut self, rule: Option<UnwindRule>) {
        self.left = self.left.or(rule);
    }

    fn is_enough(&self) -> bool {
        self.is_ambiguous || self.returned.is_some_and(|(_, paths)| paths >= ENOUGH)
    }

    fn rule(self) -> Option<UnwindRule> {
        let returned = self.returned.map(|(rule, _)| rule);
        returned.or(self.left).filter(|_| !self.is_ambiguous)
    }
}

struct Scan {
    start: u64,
    /// Address and state of the paths to follow.
    paths: VecDeque<(u64, Path)>,
    /// Instructions that a path has reached.
    seen: FxHashSet<u64>,
    /// Number of instructions that may still be decoded.
    left: usize,
    rules: Rules,
}

impl Scan {
    fn new(start: u64) -> Self {
        Self {
            start,
            paths: [(start, Path::START)].into(),
            seen: FxHashSet::with_capacity_and_hasher(MAX_INSTRUCTIONS, FxBuildHasher),
            left: MAX_INSTRUCTIONS,
            rules: Rules::default(),
        }
    }

    fn rule<M: Memory>(mut self, code: &mut Code<'_, M>) -> Option<UnwindRule> {
        while let Some((mut at, mut path)) = self.paths.pop_front() {
            while let Some(bytes) = code.at(at) {
                match self.follow(bytes, at, &mut path) {
                    Some(next) if next != at => at = next,
                    _ => break,
                }
            }
            if self.left == 0 || self.rules.is_enough() {
                break;
            }
        }
        self.rules.rule()
    }

    /// Follows a path through some bytes. Returns where it goes on, if it does.
    fn follow(&mut self, bytes: &[u8], start: u64, path: &mut Path) -> Option<u64> {
        let mut decoder = Decoder::with_ip(64, bytes, start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let at = decoder.ip();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                let is_cut = decoder.last_error() == DecoderError::NoMoreBytes;
                return is_cut.then_some(at);
            }
            self.left = self.left.checked_sub(1)?;
            if !self.seen.insert(at) {
                return None;
            }
            match instruction.flow_control() {
                FlowControl::Next if instruction.mnemonic() == Mnemonic::Hlt => return None,
                FlowControl::Next => path.apply(&instruction),
                FlowControl::Call if instruction.near_branch_target() == instruction.next_ip() => {
                    path.push_address();
                }
                FlowControl::Call | FlowControl::IndirectCall => path.apply(&instruction),
                FlowControl::ConditionalBranch if is_near(&instruction) => {
                    let target = self.target(&instruction);
                    if let Some(target) = target.filter(|_| self.paths.len() < MAX_PATHS) {
                        self.paths.push_back((target, *path));
                    }
                }
                FlowControl::UnconditionalBranch if is_near(&instruction) => {
                    let target = self.target(&instruction);
                    if target.is_none() {
                        self.rules.add_exit(path.left(&instruction));
                    }
                    return target;
                }
                FlowControl::Return => {
                    let removes = instruction.op_count() > 0 && instruction.immediate(0) != 0;
                    self.add_return(path.returned().filter(|_| !removes));
                    return None;
                }
                FlowControl::IndirectBranch => {
                    self.add_return(path.jumped(&instruction));
                    self.rules.add_exit(path.left(&instruction));
                    return None;
                }
                _ => return None,
            }
        }
        Some(decoder.ip())
    }

    fn target(&self, jump: &Instruction) -> Option<u64> {
        let target = jump.near_branch_target();
        (target.abs_diff(self.start) <= MAX_DISTANCE).then_some(target)
    }

    fn add_return(&mut self, rule: Option<UnwindRule>) {
        if let Some(rule) = rule {
            self.rules.add_return(rule);
            self.left = self.left.min(MORE_INSTRUCTIONS);
        }
    }
}

#[cfg(test)]
#[path = "scan_tests.rs"]
mod tests;
