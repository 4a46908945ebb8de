//! Cache of the last stack of each busy thread.
//!
//! Two consecutive samples of a thread share most of their callers. The recorder compares the new
//! stack with the last one from the root and looks up only the rest.

use super::code_address::CodeAddress;
use super::ids::{StackId, ThreadId};

/// Number of cached threads. Threads that share a slot only lose the benefit of the cache.
const SLOTS: usize = 64;

/// Recent stacks by thread.
#[derive(Default)]
pub(super) struct RecentStacks(Vec<RecentStack>);

/// Addresses from the root to the leaf, each with the stack that it ends.
#[derive(Default)]
pub(super) struct RecentStack {
    thread: ThreadId,
    nodes: Vec<(CodeAddress, StackId)>,
}

impl RecentStacks {
    /// Removes and returns the stack of a thread. [`RecentStacks::put_back`] restores it.
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
    /// Keeps the frames that a new stack shares with the last one, from the root.
    ///
    /// Returns the number of shared frames and their stack.
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
