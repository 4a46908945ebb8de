//! The blocks of a function, and what is known at the start of each.

use std::collections::BTreeMap;
use std::ops::Range;

use super::state::{RBP, RSP, State, Value};

/// Limit of the blocks of a function. The largest of libraries have some 2 000.
const MAX_BLOCKS: usize = 16 << 10;
/// Limit of visits of a block.
const MAX_VISITS: u32 = 40;

/// The address after a call, if a state holds only if that returns.
pub(super) type ReturnOf = Option<u64>;

/// A block: instructions up to a jump, or to one that is jumped to.
pub(super) struct Block {
    pub(super) state: State,
    /// The last call before it that must return to lead here.
    pub(super) call: ReturnOf,
    visits: u32,
    /// Whether it is in a list of blocks to follow.
    is_queued: bool,
    /// Whether it is known only as code that a jump to unknown targets may reach.
    pub(super) filled: bool,
    /// Exclusive end of the instructions that follow, when last visited.
    pub(super) end: u64,
}

/// A call that does not return, as other paths contradict what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Contradicted {
    /// The address after the call.
    pub(super) call: u64,
    /// Whether another path leads to that address. Else a call before may be the one.
    pub(super) is_certain: bool,
}

/// All blocks that were entered, and those whose instructions must be followed again.
#[derive(Default)]
pub(super) struct Blocks {
    by_start: BTreeMap<u64, Block>,
    /// Blocks that are reached if no call returns, which are followed first.
    strong: Vec<u64>,
    weak: Vec<u64>,
    /// Whether paths disagree, or there are too many.
    pub(super) conflicts: bool,
    pub(super) contradicted: Option<Contradicted>,
}

impl Blocks {
    /// Enters a block with a state, which holds if the call before `call` returns.
    ///
    /// `filled` are blocks that only a jump to unknown targets may reach.
    pub(super) fn enter(&mut self, target: u64, state: State, call: ReturnOf, filled: bool) {
        let is_entered = match self.by_start.contains_key(&target) {
            true => self.join(target, &state, call),
            false => self.add(target, state, call, filled),
        };
        if is_entered {
            self.push(target, call);
        }
    }

    /// Joins the state of a block with another. Returns whether the block must be followed again.
    fn join(&mut self, target: u64, state: &State, call: ReturnOf) -> bool {
        let Some(block) = self.by_start.get_mut(&target) else {
            return false;
        };
        let (old, new) = (block.state.get(RSP), state.get(RSP));
        // With a frame pointer, the stack may have a variable size.
        let is_framed =
            matches!(block.state.get(RBP), Value::Cfa(_)) && block.state.get(RBP) == state.get(RBP);
        let is_known = matches!((old, new), (Value::Cfa(_), Value::Cfa(_)));
        if old != new && is_known && !is_framed {
            // Nothing has followed from this state.
            if call == Some(target) {
                return false;
            }
            let is_after_call = block.call == Some(target);
            match block.call.filter(|_| is_after_call).or(call).or(block.call) {
                None => self.conflicts = true,
                Some(call) => {
                    self.contradicted = Some(Contradicted {
                        call,
                        is_certain: is_after_call,
                    });
                    return false;
                }
            }
        }
        if call.is_none() {
            block.call = None;
        }
        let mut joined = block.state.clone();
        joined.join(state);
        if joined == block.state {
            return false;
        }
        block.state = joined;
        block.visits += 1;
        let is_limited = block.visits > MAX_VISITS;
        self.conflicts |= is_limited;
        !is_limited
    }

    /// Adds a block. Returns false if there are too many.
    fn add(&mut self, target: u64, state: State, call: ReturnOf, filled: bool) -> bool {
        if self.by_start.len() >= MAX_BLOCKS {
            self.conflicts = true;
            return false;
        }
        // A block that goes on through this address must pass its state on.
        let before = self.before(target);
        if let Some((start, block)) = before.filter(|(_, block)| block.end > target) {
            let call = block.call;
            self.push(start, call);
        }
        let block = Block {
            state,
            call,
            visits: 0,
            is_queued: false,
            filled,
            end: target,
        };
        self.by_start.insert(target, block);
        true
    }

    fn push(&mut self, target: u64, call: ReturnOf) {
        let block = self.by_start.get_mut(&target);
        let is_queued = block.map(|block| &mut block.is_queued);
        if is_queued.is_some_and(|is_queued| !std::mem::replace(is_queued, true)) {
            match call {
                Some(_) => self.weak.push(target),
                None => self.strong.push(target),
            }
        }
    }

    /// Takes the next block to follow: its start, its state, and the call that must have returned.
    pub(super) fn take(&mut self) -> Option<(u64, State, ReturnOf)> {
        let start = self.strong.pop().or_else(|| self.weak.pop())?;
        let block = self.by_start.get_mut(&start)?;
        block.is_queued = false;
        Some((start, block.state.clone(), block.call))
    }

    /// Notes where the instructions of a block end.
    pub(super) fn set_end(&mut self, start: u64, end: u64) {
        if let Some(block) = self.by_start.get_mut(&start) {
            block.end = end;
        }
    }

    /// Returns whether an address is in a block.
    pub(super) fn contains(&self, address: u64) -> bool {
        let block = self.before(address.saturating_add(1));
        block.is_some_and(|(_, block)| address < block.end)
    }

    /// Returns whether a block starts at an address.
    pub(super) fn has(&self, start: u64) -> bool {
        self.by_start.contains_key(&start)
    }

    /// Returns the last block that starts before an address, and its start.
    pub(super) fn before(&self, address: u64) -> Option<(u64, &Block)> {
        let (start, block) = self.by_start.range(..address).next_back()?;
        Some((*start, block))
    }

    /// Returns the first block that starts in a range, and its start.
    pub(super) fn first_in(&self, range: Range<u64>) -> Option<(u64, &Block)> {
        let (start, block) = self.by_start.range(range).next()?;
        Some((*start, block))
    }

    /// Returns the blocks in order of their starts, each with the exclusive end of the instructions
    /// that belong to no later one.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Range<u64>, &Block)> {
        let next = self.by_start.keys().skip(1).copied();
        let next = next.chain([u64::MAX]);
        let blocks = self.by_start.iter().zip(next);
        blocks.map(|((start, block), next)| (*start..next.min(block.end), block))
    }
}
