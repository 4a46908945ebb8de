//! Replay of recorded ring buffers, in place of a live session.
//!
//! Everything after the mapped memory is the code that a capture runs.

use std::ops::ControlFlow;

use super::fake_event::FakeEvent;
use super::layout::Layout;
use super::record::Record;
use super::rings::Rings;
use crate::ids::Nanos;

#[path = "../../tests/rings/corpus.rs"]
pub(crate) mod corpus;

pub(crate) use super::session::record;

/// A CPU with recorded ring buffer content.
struct RecordedCpu {
    event: FakeEvent,
    records: Vec<u8>,
    published: usize,
}

impl RecordedCpu {
    fn next(&self) -> Option<&[u8]> {
        corpus::records(&self.records[self.published..]).next()
    }

    /// Writes bytes to the ring buffer, if there is room.
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

/// The recorded CPUs and the ring buffers that they publish to.
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

    /// Publishes the records of a CPU before `until`, as far as its ring buffer has room.
    ///
    /// The next call publishes the remaining records.
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

    /// Writes bytes that are not a record to the ring buffer of a CPU.
    pub(crate) fn damage(&mut self, cpu: usize, bytes: &[u8]) {
        assert!(self.cpus[cpu].publish(bytes));
    }

    /// Passes all records older than `flush_limit` to `each`.
    pub(crate) fn drain(&mut self, flush_limit: Nanos, mut each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.drain_until(flush_limit, |time, record| {
            each(time, record);
            ControlFlow::Continue(())
        });
    }

    /// Returns the times of the first and the last record.
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
