//! Counts dropped events by sequence numbers, which a thread assigns to dropped events, too.

use hashbrown::{HashMap, HashSet};

/// Limit on the tracked threads.
const MAX_THREADS: usize = 1 << 16;
/// Exclusive limit of a forward step. Sequence numbers have 32 bits and wrap to 0.
const FORWARD: u32 = 1 << 31;

#[derive(Debug, Default)]
pub(super) struct Sequences {
    /// The last sequence number of each thread, initially 0.
    last: HashMap<u64, u32>,
    pub(super) lost: u64,
}

impl Sequences {
    /// Records an event of a thread.
    pub(super) fn on_event(&mut self, thread: u64, sequence: u32) {
        if sequence == 1 {
            // A new thread has reused the id of an ended thread.
            self.last.remove(&thread);
        }
        self.advance_to(thread, sequence.wrapping_sub(1));
        if let Some(last) = self.last.get_mut(&thread)
            && sequence.wrapping_sub(*last) < FORWARD
        {
            *last = sequence;
        }
    }

    /// Advances a thread to a sequence number. The events in between count as lost.
    pub(super) fn advance_to(&mut self, thread: u64, sequence: u32) {
        if self.last.len() >= MAX_THREADS && !self.last.contains_key(&thread) {
            return;
        }
        let last = self.last.entry(thread).or_default();
        let missing = sequence.wrapping_sub(*last);
        if missing < FORWARD {
            self.lost = self.lost.saturating_add(missing.into());
            *last = sequence;
        }
    }

    /// Removes a thread that ended after an event with this sequence number.
    pub(super) fn remove(&mut self, thread: u64, sequence: u32) {
        self.advance_to(thread, sequence);
        self.last.remove(&thread);
    }

    /// Removes all threads but these if there are many, to free memory.
    pub(super) fn retain_alive(&mut self, alive: &HashSet<u64>) {
        if self.last.len() > MAX_THREADS / 2 {
            self.last.retain(|thread, _| alive.contains(thread));
        }
    }

    /// Removes all threads. Their sequence numbers may restart.
    pub(super) fn clear(&mut self) {
        self.last.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_gap_once() {
        let mut sequences = Sequences::default();
        for sequence in [1, 2, 5] {
            sequences.on_event(7, sequence);
        }
        assert_eq!(sequences.lost, 2);
        sequences.advance_to(7, 9);
        sequences.advance_to(7, 9);
        sequences.on_event(7, 10);
        assert_eq!(sequences.lost, 6);
        // A new thread with a reused id, and a thread without any received event.
        sequences.on_event(7, 1);
        sequences.advance_to(8, 3);
        assert_eq!(sequences.lost, 9);
    }

    #[test]
    fn handles_wrapped_sequence_numbers() {
        let mut sequences = Sequences::default();
        sequences.advance_to(7, FORWARD - 1);
        sequences.advance_to(7, u32::MAX - 1);
        let lost = sequences.lost;
        for sequence in [u32::MAX, 0, 2] {
            sequences.on_event(7, sequence);
        }
        assert_eq!(sequences.lost, lost + 1);
        // An older sequence number changes nothing.
        sequences.advance_to(7, 1);
        assert_eq!(sequences.lost, lost + 1);
    }
}
