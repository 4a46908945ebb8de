//! What is missing: every thread numbers its events, those that were dropped too.

use rustc_hash::{FxHashMap, FxHashSet};

/// Most threads whose numbers are kept.
const MAX_THREADS: usize = 1 << 16;
/// A step forward is smaller; numbers are of 32 bits and begin anew at 0.
const FORWARD: u32 = 1 << 31;

#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// The last number of each thread; 0: none yet.
    last: FxHashMap<u64, u32>,
    pub(super) lost: u64,
}

impl Sequences {
    /// An event of a thread.
    pub(super) fn saw(&mut self, thread: u64, number: u32) {
        if number == 1 {
            // A thread with this id has ended, if there was one, and a new one has it now.
            self.last.remove(&thread);
        }
        self.reached(thread, number.wrapping_sub(1));
        if let Some(last) = self.last.get_mut(&thread)
            && number.wrapping_sub(*last) < FORWARD
        {
            *last = number;
        }
    }

    /// A thread has made as many events as this.
    pub(super) fn reached(&mut self, thread: u64, number: u32) {
        if self.last.len() >= MAX_THREADS && !self.last.contains_key(&thread) {
            return;
        }
        let last = self.last.entry(thread).or_default();
        let missing = number.wrapping_sub(*last);
        if missing < FORWARD {
            self.lost = self.lost.saturating_add(missing.into());
            *last = number;
        }
    }

    /// A thread that makes no more events.
    pub(super) fn ended(&mut self, thread: u64, number: u32) {
        self.reached(thread, number);
        self.last.remove(&thread);
    }

    /// Where there are many threads, only these still matter.
    pub(super) fn keep_alive(&mut self, alive: &FxHashSet<u64>) {
        if self.last.len() > MAX_THREADS / 2 {
            self.last.retain(|thread, _| alive.contains(thread));
        }
    }

    /// Threads may come back with other numbers.
    pub(super) fn clear(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_counted_once() {
        let mut sequences = Sequences::default();
        for number in [1, 2, 5] {
            sequences.saw(7, number);
        }
        assert_eq!(sequences.lost, 2);
        sequences.reached(7, 9);
        sequences.reached(7, 9);
        sequences.saw(7, 10);
        assert_eq!(sequences.lost, 6);
        // Another thread with the same id; a thread of which nothing came.
        sequences.saw(7, 1);
        sequences.reached(8, 3);
        assert_eq!(sequences.lost, 9);
    }

    #[test]
    fn numbers_begin_anew_at_zero() {
        let mut sequences = Sequences::default();
        sequences.reached(7, FORWARD - 1);
        sequences.reached(7, u32::MAX - 1);
        let lost = sequences.lost;
        for number in [u32::MAX, 0, 2] {
            sequences.saw(7, number);
        }
        assert_eq!(sequences.lost, lost + 1);
        // An older number tells nothing.
        sequences.reached(7, 1);
        assert_eq!(sequences.lost, lost + 1);
    }
}
