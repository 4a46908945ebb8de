//! Stacks of samples that were walked before the records were in order.

use rustc_hash::FxHashMap;

use crate::trace::{Nanos, StackId, ThreadId, Tid};

/// Maximum number of stacks. Their samples arrive in order after some milliseconds.
const MAX_STACKS: usize = 1 << 16;

/// Stack of a sample, which the spool already contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EarlyStack {
    pub(super) thread: ThreadId,
    pub(super) stack: StackId,
}

/// Stacks by thread id and time of their sample.
#[derive(Debug, Default)]
pub(super) struct EarlyStacks(FxHashMap<(Tid, Nanos), EarlyStack>);

impl EarlyStacks {
    pub(super) fn insert(&mut self, tid: Tid, time: Nanos, stack: EarlyStack) {
        if self.0.len() < MAX_STACKS {
            self.0.insert((tid, time), stack);
        }
    }

    /// Removes the stack of a sample that is in order.
    ///
    /// Returns `None` also if the thread was another one by what was known early: the program or the
    /// thread with this id was replaced.
    pub(super) fn take(&mut self, tid: Tid, time: Nanos, thread: ThreadId) -> Option<StackId> {
        let early = self.0.remove(&(tid, time))?;
        (early.thread == thread).then_some(early.stack)
    }

    /// Removes the stacks of samples before a time.
    pub(super) fn forget_before(&mut self, time: Nanos) {
        self.0.retain(|(_, taken), _| *taken >= time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_sample_of_the_same_thread_has_the_stack() {
        let mut stacks = EarlyStacks::default();
        let early = EarlyStack {
            thread: ThreadId(3),
            stack: StackId(7),
        };
        let (tid, time) = (Tid(8), Nanos(100));
        for _ in 0..2 {
            stacks.insert(tid, time, early);
            assert_eq!(stacks.take(tid, Nanos(101), ThreadId(3)), None);
            assert_eq!(stacks.take(tid, time, ThreadId(3)), Some(early.stack));
            assert_eq!(stacks.take(tid, time, ThreadId(3)), None);
        }
        stacks.insert(tid, time, early);
        assert_eq!(stacks.take(tid, time, ThreadId(4)), None);
        stacks.insert(tid, time, early);
        stacks.forget_before(time);
        assert_eq!(stacks.0.len(), 1);
        stacks.forget_before(Nanos(101));
        assert!(stacks.0.is_empty());
    }
}
