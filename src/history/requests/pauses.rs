//! Times in which garbage collections stopped the threads of a process.

use crate::bytes::Bytes;
use crate::trace::{Nanos, RuntimeEvent};

/// Ids of the runtime's events.
pub(super) const RESTARTED: u32 = 3;
pub(super) const SUSPEND: u32 = 9;
/// Reasons to suspend threads: a collection, or the preparation of one.
const FOR_GC: [u32; 2] = [1, 6];
/// Maximum number of pauses of a process.
const MAX_PAUSES: usize = 1 << 17;

/// The pauses of a process, in order of time.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    started: Option<Nanos>,
    /// Start and end, and the time of all pauses before.
    pauses: Vec<(Nanos, Nanos, u64)>,
}

impl Pauses {
    /// Takes an event of the runtime that starts or ends a pause.
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        if event.metadata.id == SUSPEND {
            let reason = Bytes(&event.payload).u32();
            self.started =
                Some(event.time).filter(|_| reason.is_some_and(|it| FOR_GC.contains(&it)));
        } else if let Some(start) = self.started.take()
            && self.pauses.len() < MAX_PAUSES
        {
            let before = self.until(Nanos(u64::MAX));
            let last = self.pauses.last().map_or(Nanos(0), |(_, end, _)| *end);
            // Events are in order of time. A runtime may say otherwise.
            let start = start.max(last);
            self.pauses.push((start, event.time.max(start), before));
        }
    }

    /// Returns the time of the pauses within a time, in nanoseconds.
    pub(crate) fn within(&self, start: Nanos, end: Nanos) -> u64 {
        self.until(end).saturating_sub(self.until(start))
    }

    /// Returns the time of the pauses until a time.
    fn until(&self, time: Nanos) -> u64 {
        let started = self.pauses.partition_point(|(start, ..)| *start < time);
        let last = started.checked_sub(1).and_then(|at| self.pauses.get(at));
        last.map_or(0, |(start, end, before)| {
            let of_last = time.min(*end).0.saturating_sub(start.0);
            before.saturating_add(of_last)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::each_event;

    #[test]
    fn pauses_are_the_parts_within_a_time() {
        let mut pauses = Pauses::default();
        each_event(
            &[
                (SUSPEND, 10, 1, &[1]),
                (RESTARTED, 14, 1, &[]),
                // For a debugger.
                (SUSPEND, 20, 1, &[5]),
                (RESTARTED, 30, 1, &[]),
                (SUSPEND, 40, 1, &[6]),
                (RESTARTED, 41, 1, &[]),
                // Its start is lost, and the end of the last one.
                (RESTARTED, 50, 1, &[]),
                (SUSPEND, 60, 1, &[]),
            ],
            |event| pauses.take(event),
        );
        let within = |start: u64, end: u64| pauses.within(Nanos(start * 1000), Nanos(end * 1000));
        assert_eq!(within(0, 100), 5000);
        assert_eq!(within(12, 40), 2000);
        assert_eq!(
            (within(14, 40), within(11, 12), within(30, 10)),
            (0, 1000, 0)
        );
    }
}
