//! The last stack of each busy thread. Two samples of a thread in a row share most of their callers, so the new stack is
//! compared with the last one from the root on and only the rest is looked up.

use super::ids::{StackId, ThreadId};
use super::recorder::CodeAddress;

/// Threads that are remembered; two that fall into one slot cost each other the advantage, nothing more.
const SLOTS: usize = 64;

/// By thread.
#[derive(Default)]
pub(super) struct RecentStacks(Vec<RecentStack>);

/// Addresses from the root to the leaf, each with the stack it is the end of.
#[derive(Default)]
pub(super) struct RecentStack {
    thread: ThreadId,
    nodes: Vec<(CodeAddress, StackId)>,
}

impl RecentStacks {
    /// Takes out what is remembered of a thread; [`RecentStacks::put_back`] returns it.
    pub(super) fn take(&mut self, thread: ThreadId) -> RecentStack {
        if self.0.is_empty() {
            self.0.resize_with(SLOTS, RecentStack::default);
        }
        let mut recent = std::mem::take(&mut self.0[thread.index() % SLOTS]);
        if recent.thread != thread {
            recent.thread = thread;
            recent.nodes.clear();
        }
        recent
    }

    pub(super) fn put_back(&mut self, recent: RecentStack) {
        let slot = recent.thread.index() % SLOTS;
        self.0[slot] = recent;
    }
}

impl RecentStack {
    /// Keeps what a new stack shares with the last one, from the root on: how many frames, and their stack.
    pub(super) fn keep_common(
        &mut self,
        root_first: impl Iterator<Item = CodeAddress>,
    ) -> (usize, StackId) {
        let nodes = self.nodes.iter();
        let common = nodes.zip(root_first).take_while(|(a, b)| a.0 == *b).count();
        self.nodes.truncate(common);
        let stack = self
            .nodes
            .last()
            .map_or(StackId::EMPTY, |(_, stack)| *stack);
        (common, stack)
    }

    /// Adds the next frame towards the leaf.
    pub(super) fn push(&mut self, address: CodeAddress, stack: StackId) {
        self.nodes.push((address, stack));
    }
}
