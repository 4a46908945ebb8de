//! Puts the records of all CPUs into the order of time, with no more of them in memory than must be.
//!
//! perf empties one ring after the other, and writes the end of a round behind the last one:
//! ```text
//! file    cpu0: 1 4 6   cpu1: 2 3 8   round   cpu0: 7 9   cpu1: 10 11   round
//! out                                         .                         1 2 3 4 6 7 8
//! ```
//! While a ring was emptied, others went on filling. What is older than the newest record of one round has come when the
//! next round ends.

use crate::trace::Nanos;

/// Bytes that wait for the end of a round at most: what perf's rings hold on a large machine.
const MAX_BYTES: usize = 64 << 20;

/// Where a record is in `bytes`.
#[derive(Clone, Copy)]
struct Slot {
    time: Nanos,
    event: u32,
    at: u32,
    len: u32,
}

/// Records that wait.
#[derive(Default)]
pub(super) struct Rounds {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// What is left after a round, to be kept in one piece.
    spare: Vec<u8>,
    newest: Nanos,
    /// The newest record when the round before ended.
    due: Nanos,
    handed_out: Nanos,
    /// Bytes that were left when some were handed out the last time.
    kept_bytes: usize,
    pub(super) late: u64,
}

impl Rounds {
    /// Whether there are so many records that some must go before their round ends.
    /// `more`: bytes that wait elsewhere.
    pub(super) fn is_full(&self, more: usize) -> bool {
        self.bytes.len() + more >= MAX_BYTES
    }

    pub(super) fn push(&mut self, time: Nanos, event: u32, record: &[u8]) {
        self.late += u64::from(time < self.handed_out);
        self.newest = self.newest.max(time);
        self.slots.push(Slot {
            time,
            event,
            at: self.bytes.len() as u32,
            len: record.len() as u32,
        });
        self.bytes.extend_from_slice(record);
    }

    /// Ends a round. Nothing is handed out that is as new as `wait`, if there is such a time.
    pub(super) fn end_round(&mut self, wait: Option<Nanos>, each: impl FnMut(Nanos, u32, &[u8])) {
        let due = std::mem::replace(&mut self.due, self.newest);
        let due = wait.map_or(due, |wait| due.min(Nanos(wait.0.saturating_sub(1))));
        // What waits is sorted and kept in one piece again only when it has doubled: rounds may be many.
        if wait.is_some() && self.bytes.len() < 2 * self.kept_bytes {
            return;
        }
        self.hand_out(|slots| slots.partition_point(|slot| slot.time <= due), each);
    }

    /// Hands out the older half.
    pub(super) fn make_room(&mut self, each: impl FnMut(Nanos, u32, &[u8])) {
        self.hand_out(|slots| slots.len().div_ceil(2), each);
    }

    /// Hands out all that is left.
    pub(super) fn end(&mut self, each: impl FnMut(Nanos, u32, &[u8])) {
        self.hand_out(<[Slot]>::len, each);
    }

    fn hand_out(
        &mut self,
        count: impl FnOnce(&[Slot]) -> usize,
        mut each: impl FnMut(Nanos, u32, &[u8]),
    ) {
        // Stable: what was written first of the same time goes first.
        self.slots.sort_by_key(|slot| slot.time);
        let count = count(&self.slots);
        for slot in &self.slots[..count] {
            let at = slot.at as usize;
            each(
                slot.time,
                slot.event,
                &mut self.bytes[at..at + slot.len as usize],
            );
            self.handed_out = self.handed_out.max(slot.time);
        }
        self.slots.drain(..count);
        self.spare.clear();
        for slot in &mut self.slots {
            let at = slot.at as usize;
            slot.at = self.spare.len() as u32;
            self.spare
                .extend_from_slice(&self.bytes[at..at + slot.len as usize]);
        }
        std::mem::swap(&mut self.spare, &mut self.bytes);
        self.kept_bytes = self.bytes.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(rounds: &mut Rounds, times: &[u64]) {
        for &time in times {
            rounds.push(Nanos(time), 0, &[time as u8; 9]);
        }
    }

    fn collect(out: &mut Vec<u64>) -> impl FnMut(Nanos, u32, &[u8]) {
        |time, _, record| {
            assert_eq!(record, [time.0 as u8; 9]);
            out.push(time.0);
        }
    }

    #[test]
    fn a_record_comes_out_when_no_older_one_can_come() {
        let mut rounds = Rounds::default();
        let mut out = Vec::new();
        push(&mut rounds, &[1, 4, 6, 2, 3, 8]);
        rounds.end_round(None, collect(&mut out));
        assert!(out.is_empty());
        push(&mut rounds, &[7, 9, 10, 11]);
        rounds.end_round(None, collect(&mut out));
        assert_eq!(out, [1, 2, 3, 4, 6, 7, 8]);
        push(&mut rounds, &[5]);
        rounds.end(collect(&mut out));
        assert_eq!(out[7..], [5, 9, 10, 11]);
        assert_eq!(rounds.late, 1);
    }

    #[test]
    fn a_record_that_waits_holds_up_newer_ones() {
        let mut rounds = Rounds::default();
        let mut out = Vec::new();
        push(&mut rounds, &[1, 2, 4]);
        rounds.end_round(Some(Nanos(3)), collect(&mut out));
        push(&mut rounds, &[5, 7, 8]);
        rounds.end_round(Some(Nanos(3)), collect(&mut out));
        assert_eq!(out, [1, 2]);
        push(&mut rounds, &[3, 6]);
        rounds.end_round(None, collect(&mut out));
        assert_eq!((&out[..], rounds.late), (&[1, 2, 3, 4, 5, 6, 7, 8][..], 0));
    }

    #[test]
    fn without_rounds_memory_is_bounded() {
        let mut rounds = Rounds::default();
        let mut out = 0;
        for time in 0..3 * MAX_BYTES as u64 / 60_000 {
            rounds.push(Nanos(time), 0, &[0; 60_000]);
            if rounds.is_full(0) {
                rounds.make_room(|_, _, _| out += 1);
            }
            assert!(rounds.bytes.len() < MAX_BYTES + 60_000);
        }
        assert!(out > 1000);
        assert_eq!(rounds.late, 0);
    }
}
