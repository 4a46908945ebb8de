//! Waits of asynchronous methods for tasks: they take no thread.
//!
//! The library of tasks reports an await when the method is suspended, with its stack, and again when the task has ended
//! (`TaskWaitBegin` and `TaskWaitEnd` of `TplEventSource`). It does not report an await of a `ValueTask` without a task,
//! as of a socket: the methods that await the method with that await are reported.

use hashbrown::HashMap;

use super::stack_methods::EventMethods;
use super::sum;
use super::tally::Tally;
use super::waits::WaitCount;
use crate::bytes::Bytes;
use crate::dotnet::TASKS;
use crate::nettrace::EventMetadata;
use crate::trace::{Nanos, RuntimeEvent};

/// Limits per process: awaits at once, those of one task, and methods that await.
const MAX_PENDING: usize = 1 << 17;
const MAX_SAME: usize = 64;
const MAX_ROWS: usize = 1 << 10;

/// Ids of the events.
const BEGIN: u32 = 10;
const END: u32 = 11;
/// `TaskWaitBehavior.Asynchronous` of an event that begins one.
const ASYNCHRONOUS: i32 = 2;

/// An await that has not ended.
#[derive(Clone, Copy, Debug)]
struct PendingAwait {
    start: Nanos,
    methods: EventMethods,
}

/// The awaits of a process.
#[derive(Debug)]
pub(crate) struct Awaits {
    /// By the task that is awaited.
    pending: HashMap<i32, Vec<PendingAwait>>,
    /// Number of these.
    count: usize,
    /// By the methods that await.
    pub(crate) rows: Tally<EventMethods, WaitCount>,
}

impl Default for Awaits {
    fn default() -> Self {
        Self {
            pending: HashMap::new(),
            count: 0,
            rows: Tally::new(MAX_ROWS),
        }
    }
}

/// Returns whether events of a kind are about awaits.
pub(super) fn is_about_awaits(kind: &EventMetadata) -> bool {
    kind.provider == TASKS && matches!(kind.id, BEGIN | END)
}

impl Awaits {
    /// Takes an event that [is about awaits](is_about_awaits).
    pub(super) fn take(&mut self, event: &RuntimeEvent, methods: impl FnOnce() -> EventMethods) {
        let mut fields = Bytes(&event.payload);
        let mut field = || fields.i32();
        let (_scheduler, _of_task, Some(task)) = (field(), field(), field()) else {
            return;
        };
        match (event.metadata.id, field()) {
            (BEGIN, Some(ASYNCHRONOUS)) => self.begin(task, event.time, methods),
            (END, _) => self.end(task, event.time),
            _ => {}
        }
    }

    fn begin(&mut self, task: i32, start: Nanos, methods: impl FnOnce() -> EventMethods) {
        let methods = methods();
        // A method that calls the one that awaits awaits, too, but not yet.
        let own = methods.own.filter(|_| methods.own == methods.leaf);
        let methods = EventMethods { own, ..methods };
        if self.count >= MAX_PENDING {
            self.rows.row(methods).unended += 1;
            return;
        }
        let same = self.pending.entry(task).or_default();
        if same.len() >= MAX_SAME {
            self.rows.row(methods).unended += 1;
            return;
        }
        same.push(PendingAwait { start, methods });
        self.count += 1;
    }

    /// All that await a task end with it: each has an event, with the same time.
    fn end(&mut self, task: i32, time: Nanos) {
        let Some(same) = self.pending.get_mut(&task) else {
            return;
        };
        // Those that began first are continued first.
        let ended = same.remove(0);
        self.count -= 1;
        if same.is_empty() {
            self.pending.remove(&task);
        }
        let ns = time.0.saturating_sub(ended.start.0);
        let row = self.rows.row(ended.methods);
        row.ended += 1;
        row.ns = sum([row.ns, ns]);
        row.max_ns = row.max_ns.max(ns);
    }

    /// Counts the awaits that had not ended at a time.
    pub(super) fn finish(&mut self, end: Nanos) {
        self.count = 0;
        for pending in std::mem::take(&mut self.pending).into_values().flatten() {
            let ns = end.0.saturating_sub(pending.start.0);
            let row = self.rows.row(pending.methods);
            row.unended += 1;
            row.unended_ns = sum([row.unended_ns, ns]);
            row.max_ns = row.max_ns.max(ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::event;
    use crate::trace::FunctionId;

    fn methods(own: u32) -> EventMethods {
        EventMethods {
            leaf: Some(FunctionId(own)),
            own: Some(FunctionId(own)),
            ..EventMethods::default()
        }
    }

    fn payload(fields: &[i32]) -> Vec<u8> {
        fields
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect()
    }

    fn begin(awaits: &mut Awaits, time: u64, task: i32, behavior: i32, own: u32) {
        let event = event(BEGIN, time, 1, payload(&[1, 0, task, behavior, 0]));
        awaits.take(&event, || methods(own));
    }

    fn end(awaits: &mut Awaits, time: u64, task: i32) {
        awaits.take(&event(END, time, 2, payload(&[1, 0, task])), || methods(0));
    }

    #[test]
    fn awaits_end_with_their_task() {
        let mut awaits = Awaits::default();
        begin(&mut awaits, 10, 7, ASYNCHRONOUS, 1);
        begin(&mut awaits, 20, 7, ASYNCHRONOUS, 2);
        begin(&mut awaits, 20, 8, ASYNCHRONOUS, 1);
        // A thread waits.
        begin(&mut awaits, 20, 9, 1, 3);
        end(&mut awaits, 30, 9);
        end(&mut awaits, 50, 7);
        end(&mut awaits, 50, 7);
        end(&mut awaits, 50, 7);
        awaits.take(&event(BEGIN, 60, 1, payload(&[1, 0])), || methods(4));
        awaits.finish(Nanos(100_000));
        let mut rows: Vec<_> = awaits.rows.rows().collect();
        rows.sort_by_key(|(methods, _)| methods.own);
        let rows = rows.into_iter().map(|(methods, row)| {
            (
                methods.own.unwrap().0,
                row.ended,
                row.ns,
                row.unended,
                row.unended_ns,
                row.max_ns,
            )
        });
        let rows: Vec<_> = rows.collect();
        assert_eq!(
            rows,
            [
                (1, 1, 40_000, 1, 80_000, 80_000),
                (2, 1, 30_000, 0, 0, 30_000),
            ]
        );
        assert_eq!(awaits.count, 0);
    }

    #[test]
    fn open_awaits_are_bounded() {
        let mut awaits = Awaits::default();
        for _ in 0..2 * MAX_SAME {
            begin(&mut awaits, 1, 7, ASYNCHRONOUS, 1);
        }
        assert_eq!(awaits.count, MAX_SAME);
        awaits.finish(Nanos(2000));
        let unended: u64 = awaits.rows.rows().map(|(_, row)| row.unended).sum();
        assert_eq!(unended, 2 * MAX_SAME as u64);
    }
}
