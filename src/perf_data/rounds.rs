//! Sorts the records of all CPUs by time, with bounded memory.
//!
//! perf drains one ring buffer after the other and writes an end-of-round record after the last:
//! ```text
//! file    cpu0: 1 4 6   cpu1: 2 3 8   round   cpu0: 7 9   cpu1: 10 11   round
//! out                                         .                         1 2 3 4 6 7 8
//! ```
//! While perf drains one ring buffer, the kernel writes to others. All records up to the newest
//! record of a round are in the file when the next round ends.

use crate::trace::Nanos;

/// Maximum size of the buffered records: the ring buffers of perf on a large machine.
const MAX_BYTES: usize = 64 << 20;

/// Time, event and position in `bytes` of a buffered record.
#[derive(Clone, Copy)]
struct Slot {
    time: Nanos,
    event: u32,
    at: u32,
    len: u32,
}

/// Buffered records of the current and the previous round.
#[derive(Default)]
pub(super) struct Rounds {
    slots: Vec<Slot>,
    bytes: Vec<u8>,
    /// Buffer for compaction of the records that remain after a flush.
    spare: Vec<u8>,
    newest: Nanos,
    /// Newest record at the end of the previous round.
    flush_limit: Nanos,
    last_flushed: Nanos,
    /// Size of the buffered records after the last flush.
    remaining_bytes: usize,
    pub(super) late: u64,
}

impl Rounds {
    /// Whether some records must be flushed before the end of their round.
    ///
    /// `other_bytes` is the size of records that are buffered elsewhere.
    pub(super) fn is_full(&self, other_bytes: usize) -> bool {
        self.bytes.len() + other_bytes >= MAX_BYTES
    }

    pub(super) fn push(&mut self, time: Nanos, event: u32, record: &[u8]) {
        self.late += u64::from(time < self.last_flushed);
        self.newest = self.newest.max(time);
        self.slots.push(Slot {
            time,
            event,
            at: self.bytes.len() as u32,
            len: record.len() as u32,
        });
        self.bytes.extend_from_slice(record);
    }

    /// Ends a round and flushes the records up to the newest one of the previous round.
    ///
    /// Flushes only records older than `deferred_since`, the time of the oldest deferred sample.
    pub(super) fn end_round(
        &mut self,
        deferred_since: Option<Nanos>,
        each: impl FnMut(Nanos, u32, &[u8]),
    ) {
        let limit = std::mem::replace(&mut self.flush_limit, self.newest);
        let limit =
            deferred_since.map_or(limit, |since| limit.min(Nanos(since.0.saturating_sub(1))));
        // Rounds may be many: records are sorted and compacted only after their size has doubled.
        if deferred_since.is_some() && self.bytes.len() < 2 * self.remaining_bytes {
            return;
        }
        self.flush(
            |slots| slots.partition_point(|slot| slot.time <= limit),
            each,
        );
    }

    /// Flushes the older half of the records.
    pub(super) fn flush_half(&mut self, each: impl FnMut(Nanos, u32, &[u8])) {
        self.flush(|slots| slots.len().div_ceil(2), each);
    }

    /// Flushes all records.
    pub(super) fn flush_all(&mut self, each: impl FnMut(Nanos, u32, &[u8])) {
        self.flush(<[Slot]>::len, each);
    }

    fn flush(
        &mut self,
        count: impl FnOnce(&[Slot]) -> usize,
        mut each: impl FnMut(Nanos, u32, &[u8]),
    ) {
        // Stable, so that records with the same time keep the order of the file.
        self.slots.sort_by_key(|slot| slot.time);
        let count = count(&self.slots);
        for slot in &self.slots[..count] {
            let at = slot.at as usize;
            each(
                slot.time,
                slot.event,
                &mut self.bytes[at..at + slot.len as usize],
            );
            self.last_flushed = self.last_flushed.max(slot.time);
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
        self.remaining_bytes = self.bytes.len();
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
    fn flushes_records_when_no_older_one_can_follow() {
        let mut rounds = Rounds::default();
        let mut out = Vec::new();
        push(&mut rounds, &[1, 4, 6, 2, 3, 8]);
        rounds.end_round(None, collect(&mut out));
        assert!(out.is_empty());
        push(&mut rounds, &[7, 9, 10, 11]);
        rounds.end_round(None, collect(&mut out));
        assert_eq!(out, [1, 2, 3, 4, 6, 7, 8]);
        push(&mut rounds, &[5]);
        rounds.flush_all(collect(&mut out));
        assert_eq!(out[7..], [5, 9, 10, 11]);
        assert_eq!(rounds.late, 1);
    }

    #[test]
    fn deferred_sample_delays_newer_records() {
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
    fn bounds_memory_without_rounds() {
        let mut rounds = Rounds::default();
        let mut out = 0;
        for time in 0..3 * MAX_BYTES as u64 / 60_000 {
            rounds.push(Nanos(time), 0, &[0; 60_000]);
            if rounds.is_full(0) {
                rounds.flush_half(|_, _, _| out += 1);
            }
            assert!(rounds.bytes.len() < MAX_BYTES + 60_000);
        }
        assert!(out > 1000);
        assert_eq!(rounds.late, 0);
    }
}
