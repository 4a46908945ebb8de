//! Stacks as a prefix tree: each node is one frame below its caller.
//!
//! ```text
//! main ── parse ── read      node 0 = (EMPTY, main), node 1 = (parent 0, parse),
//!      │                     node 2 = (parent 1, read)
//!      └─ write              node 3 = (parent 0, write)
//! ```
//! A parent has a smaller id than its children, so one forward pass can fold values from the roots
//! to the leaves.

use rustc_hash::FxBuildHasher;

use super::distinct::Distinct;
use super::ids::{FrameId, StackId};

/// A caller's stack and a frame below it, stored together because a stack walk needs both.
type Node = (StackId, FrameId);

/// Interned stacks.
#[derive(Default)]
pub struct StackTable {
    nodes: Distinct<Node, FxBuildHasher>,
}

impl StackTable {
    /// Interns the stack in which `parent` calls `frame`.
    pub fn push(&mut self, parent: StackId, frame: FrameId) -> StackId {
        StackId(self.nodes.intern((parent, frame)))
    }

    /// Drops the index for [`Self::push`], as no more stacks follow.
    pub(super) fn seal(&mut self) {
        self.nodes.seal();
    }

    /// Interns a whole stack, given from the root to the leaf.
    pub fn intern(&mut self, root_first: impl IntoIterator<Item = FrameId>) -> StackId {
        root_first
            .into_iter()
            .fold(StackId::EMPTY, |stack, frame| self.push(stack, frame))
    }

    /// Returns the number of nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.nodes.rows().len()
    }

    /// Returns whether no stack was interned.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.nodes.rows().is_empty()
    }

    /// Returns the caller's stack and the innermost frame, or `None` for [`StackId::EMPTY`].
    #[must_use]
    pub fn node(&self, stack: StackId) -> Option<(StackId, FrameId)> {
        (stack != StackId::EMPTY).then(|| self.nodes.rows()[stack.index()])
    }

    /// Returns all nodes as (stack, caller's stack, innermost frame), callers before callees.
    pub fn nodes(&self) -> impl DoubleEndedIterator<Item = (StackId, StackId, FrameId)> + '_ {
        let rows = self.nodes.rows().iter().enumerate();
        rows.map(|(row, &(parent, frame))| (StackId(row as u32), parent, frame))
    }

    /// Returns the frames from the leaf to the root.
    pub fn leaf_first(&self, stack: StackId) -> impl Iterator<Item = FrameId> + '_ {
        let mut next = stack;
        std::iter::from_fn(move || {
            let (parent, frame) = self.node(next)?;
            next = parent;
            Some(frame)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shared_callers_are_stored_once() {
        let mut table = StackTable::default();
        let a = table.intern([1, 2, 3].map(FrameId));
        let b = table.intern([1, 2, 4].map(FrameId));
        assert_ne!(a, b);
        assert_eq!(table.len(), 4);
        assert_eq!(table.node(StackId::EMPTY), None);
    }

    proptest! {
        #[test]
        fn interned_stacks_round_trip(stacks in proptest::collection::vec(
            proptest::collection::vec(0u32..6, 0..12), 0..40))
        {
            let mut table = StackTable::default();
            let ids: Vec<_> = stacks
                .iter()
                .map(|s| table.intern(s.iter().copied().map(FrameId)))
                .collect();
            for (stack, id) in stacks.iter().zip(&ids) {
                let mut back: Vec<_> = table.leaf_first(*id).map(|f| f.0).collect();
                back.reverse();
                prop_assert_eq!(&back, stack);
                prop_assert_eq!(table.intern(stack.iter().copied().map(FrameId)), *id);
            }
            for (stack, parent, _) in table.nodes() {
                prop_assert!(parent == StackId::EMPTY || parent < stack);
            }
        }
    }
}
