//! Recorded rings instead of a live session: everything from the mapped memory on is what a capture runs.

use super::fake_event::FakeEvent;
use super::layout::Layout;
use super::record::Record;
use super::rings::Rings;
use crate::ids::Nanos;

#[path = "../../tests/rings/corpus.rs"]
pub(crate) mod corpus;

pub(crate) use super::session::record;

/// A CPU whose records are known beforehand.
struct RecordedCpu {
    event: FakeEvent,
    records: Vec<u8>,
    published: usize,
}

impl RecordedCpu {
    fn next(&self) -> Option<&[u8]> {
        corpus::records(&self.records[self.published..]).next()
    }

    /// Puts bytes into the ring, if there is room.
    fn publish(&mut self, bytes: &[u8]) -> bool {
        let position = self.published as u64;
        let fits = bytes.len() <= self.event.room(position);
        if fits {
            self.event.write(position, bytes);
            self.published += bytes.len();
        }
        fits
    }
}

/// The recorded CPUs and the rings they publish to.
pub(crate) struct Replay {
    cpus: Vec<RecordedCpu>,
    rings: Rings,
}

impl Replay {
    pub(crate) fn new(recorded: Vec<Vec<u8>>, ring_bytes: usize) -> Self {
        let layout = Layout::new(corpus::SAMPLE_TYPE, corpus::USER_REGS).unwrap();
        let mut rings = Rings::new(layout);
        let cpu = |records| {
            let event = FakeEvent::new(ring_bytes);
            rings.push(event.ring());
            RecordedCpu {
                event,
                records,
                published: 0,
            }
        };
        let cpus = recorded.into_iter().map(cpu).collect();
        Self { cpus, rings }
    }

    /// Lets a CPU publish what it recorded before `until`; what its ring has no room for, it keeps for the next time.
    pub(crate) fn publish(&mut self, cpu: usize, until: Nanos) {
        let cpu = &mut self.cpus[cpu];
        while let Some(record) = cpu.next()
            && corpus::time(record) < until.0
        {
            let record = record.to_vec();
            if !cpu.publish(&record) {
                break;
            }
        }
    }

    /// Puts bytes into a CPU's ring that are no record.
    pub(crate) fn damage(&mut self, cpu: usize, bytes: &[u8]) {
        assert!(self.cpus[cpu].publish(bytes));
    }

    /// Hands everything older than `horizon` to `each`.
    pub(crate) fn drain(&mut self, horizon: Nanos, each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.drain_until(horizon, each);
    }

    /// When the first and the last record were made.
    pub(crate) fn times(&self) -> (Nanos, Nanos) {
        let all = self.cpus.iter().map(|cpu| corpus::records(&cpu.records));
        let times = || all.clone().flatten().map(corpus::time);
        (Nanos(times().min().unwrap()), Nanos(times().max().unwrap()))
    }

    pub(crate) fn malformed(&self) -> u64 {
        self.rings.malformed()
    }

    pub(crate) fn late(&self) -> u64 {
        self.rings.late()
    }
}
