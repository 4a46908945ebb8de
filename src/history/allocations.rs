//! Types and methods that allocate, by the allocations that the runtime reports.
//!
//! The runtime reports an allocation tick for about each 100 KB, with the bytes since the last one.
//! Since .NET 10 it can also sample allocations at random, one of 100 KiB on average.

use super::stack_methods::EventMethods;
use super::sum;
use super::tally::Tally;
use super::type_names::{TypeId, TypeNames};
use crate::bytes::Bytes;
use crate::trace::RuntimeEvent;

/// Maximum number of different types and methods of a process.
const MAX_ROWS: usize = 1 << 11;
/// Kind of an allocation in the heap of small objects. The others are large and pinned.
const SMALL: u32 = 0;
/// Mean number of bytes between two sampled allocations.
const SAMPLING_BYTES: f64 = 102_400.0;

/// Allocations of one type in one method.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllocationCount {
    /// Number of events.
    pub(crate) events: u64,
    /// Estimate of all bytes.
    pub(crate) bytes: u64,
    /// Bytes of these that are not in the heap of small objects.
    pub(crate) large_bytes: u64,
}

/// Allocations by type, if it is known, and by the methods that allocate.
pub(crate) type AllocationRows = Tally<(Option<TypeId>, EventMethods), AllocationCount>;

/// The allocations of a process.
#[derive(Debug)]
pub(crate) struct Allocations {
    by_tick: AllocationRows,
    by_sample: AllocationRows,
}

impl Default for Allocations {
    fn default() -> Self {
        Self {
            by_tick: Tally::new(MAX_ROWS),
            by_sample: Tally::new(MAX_ROWS),
        }
    }
}

impl Allocations {
    /// Takes a `GCAllocationTick` event.
    pub(super) fn take_tick(
        &mut self,
        event: &RuntimeEvent,
        methods: EventMethods,
        types: &mut TypeNames,
    ) -> Option<()> {
        let mut payload = Bytes(&event.payload);
        let amount = payload.u32()?;
        let kind = payload.u32()?;
        let bytes = payload.take(2).and_then(|_clr| payload.u64());
        let name = payload.take(8).and_then(|_id| types.read(&mut payload));
        let bytes = bytes.unwrap_or(amount.into());
        self.by_tick.row((name, methods)).add(kind, bytes);
        Some(())
    }

    /// Takes an `AllocationSampled` event.
    pub(super) fn take_sample(
        &mut self,
        event: &RuntimeEvent,
        methods: EventMethods,
        types: &mut TypeNames,
    ) -> Option<()> {
        let mut payload = Bytes(&event.payload);
        let kind = payload.u32()?;
        let _clr_and_type_id = payload.take(10)?;
        let name = types.read(&mut payload);
        let _address = payload.take(8)?;
        let size = payload.u64()? as f64;
        // Each byte has the same chance, so an object that is larger is likelier.
        let chance = 1.0 - (-size / SAMPLING_BYTES).exp();
        let bytes = if chance > 0.0 {
            size / chance
        } else {
            SAMPLING_BYTES
        };
        self.by_sample.row((name, methods)).add(kind, bytes as u64);
        Some(())
    }

    /// Returns the rows, of one source if there are two.
    pub(crate) fn rows(&self) -> &AllocationRows {
        match self.by_tick.rows().next() {
            Some(_) => &self.by_tick,
            None => &self.by_sample,
        }
    }
}

impl AllocationCount {
    fn add(&mut self, kind: u32, bytes: u64) {
        let large_bytes = if kind == SMALL { 0 } else { bytes };
        self.merge(&Self {
            events: 1,
            bytes,
            large_bytes,
        });
    }

    /// Adds the totals of another row.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.events += other.events;
        self.bytes = sum([self.bytes, other.bytes]);
        self.large_bytes = sum([self.large_bytes, other.large_bytes]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::event;

    fn tick(amount: u32, kind: u32, amount64: u64, name: &[u8]) -> RuntimeEvent {
        let mut payload = [amount, kind].map(u32::to_le_bytes).concat();
        payload.extend([9, 0]);
        payload.extend(amount64.to_le_bytes());
        payload.extend([7; 8]);
        payload.extend(name);
        event(10, 1, 1, payload)
    }

    #[test]
    fn adds_up_ticks_of_any_length() {
        let (mut allocations, mut types) = (Allocations::default(), TypeNames::default());
        let methods = EventMethods::default();
        let whole = tick(1, 0, 100, b"T\0\0\0");
        let old = event(10, 1, 1, [30_u32, 1].map(u32::to_le_bytes).concat());
        let none = event(10, 1, 1, vec![1; 7]);
        let huge = tick(1, 2, u64::MAX, b"T\0\0\0");
        for event in [&whole, &whole, &old, &none, &huge] {
            allocations.take_tick(event, methods, &mut types);
        }
        let mut rows: Vec<_> = allocations.rows().rows().collect();
        rows.sort_by_key(|(_, count)| count.bytes);
        let counts = rows.iter().map(|((name, _), count)| {
            (name.is_some(), count.events, count.bytes, count.large_bytes)
        });
        let expected = [(false, 1, 30, 30), (true, 3, u64::MAX, u64::MAX)];
        assert!(counts.eq(expected), "{rows:?}");
    }

    #[test]
    fn samples_stand_for_more_bytes_than_they_have() {
        let (mut allocations, mut types) = (Allocations::default(), TypeNames::default());
        for size in [0_u64, 24, 1 << 30, u64::MAX] {
            let mut payload = vec![0; 14];
            payload.extend([b'T', 0, 0, 0]);
            payload.extend([0; 8]);
            payload.extend(size.to_le_bytes());
            let event = event(303, 1, 1, payload);
            allocations.take_sample(&event, EventMethods::default(), &mut types);
            let (_, count) = allocations.rows().rows().next().unwrap();
            let expected = match size {
                0 => 102_400,
                24 => 2 * 102_400 + 12,
                1073741824 => (1 << 30) + 2 * 102_400 + 12,
                _ => u64::MAX,
            };
            assert_eq!(count.bytes, expected);
        }
    }
}
