//! Waits of asynchronous methods for tasks: they take no thread.
//!
//! The library of tasks reports an await when the method is suspended, with its stack, and again when it goes on
//! (`TaskWaitBegin` and `TaskWaitEnd` of `TplEventSource`): the task has ended, and a thread has taken the rest of the
//! method. An await of a `ValueTask` without a task, as of a socket, is not reported: the methods that await the method
//! with it are.
//!
//! A method that awaits another one waits for what that one waits for. Of the user's methods, only the innermost counts:
//! so the waits of a request do not exceed its time. The event has the task of the method that awaits, so that the
//! awaits of that task are known.

use std::collections::VecDeque;

use hashbrown::HashMap;

use super::stack_methods::EventMethods;
use super::sum;
use super::tally::Tally;
use crate::bytes::Bytes;
use crate::dotnet::TASKS;
use crate::nettrace::EventMetadata;
use crate::trace::{Nanos, RuntimeEvent};

/// Maximum number of awaits at once, of all processes, and the number that each may have.
const MAX_PENDING: usize = 1 << 18;
const MIN_PENDING: usize = 1 << 12;
/// Maximum number of methods that await for requests of a name, per process.
const MAX_ROWS: usize = 1 << 10;

/// Ids of the events.
const BEGIN: u32 = 10;
const END: u32 = 11;
/// `TaskWaitBehavior.Asynchronous` of an event that begins one.
const ASYNCHRONOUS: i32 = 2;

/// What awaits, and for which requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Awaiter {
    /// The method that awaits, which is `own` if it is the user's.
    pub(crate) methods: EventMethods,
    /// Row of the name of the incoming request, if it is for one.
    pub(crate) route: Option<u32>,
}

/// Awaits of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AwaitCount {
    /// Number of awaits that ended, and their time.
    pub(crate) ended: u64,
    pub(crate) ns: u64,
    /// Time of the longest one, with those that did not end.
    pub(crate) max_ns: u64,
    /// Number of awaits that did not end, and their time until the events ended.
    pub(crate) unended: u64,
    pub(crate) unended_ns: u64,
}

/// An await that has not ended.
#[derive(Clone, Copy, Debug)]
struct PendingAwait {
    start: Nanos,
    awaiter: Awaiter,
    /// Task of the method that awaits, or 0.
    continued: i32,
    /// Whether it waits for an await of the user's code.
    is_outer: bool,
}

/// The awaits of a process.
#[derive(Debug)]
pub(crate) struct Awaits {
    /// By the task that is awaited.
    pending: HashMap<i32, VecDeque<PendingAwait>>,
    /// Tasks of the methods that await, and whether a method of the user is among what they wait for.
    continued: HashMap<i32, bool>,
    /// Number of pending awaits.
    count: usize,
    max_pending: usize,
    pub(crate) rows: Tally<Awaiter, AwaitCount>,
    /// Number of awaits that are not followed, because there were too many.
    pub(crate) omitted: u64,
}

impl Default for Awaits {
    fn default() -> Self {
        Self {
            pending: HashMap::new(),
            continued: HashMap::new(),
            count: 0,
            max_pending: MIN_PENDING,
            rows: Tally::new(MAX_ROWS),
            omitted: 0,
        }
    }
}

/// Returns whether events of a kind are about awaits.
pub(super) fn is_about_awaits(kind: &EventMetadata) -> bool {
    kind.provider == TASKS && matches!(kind.id, BEGIN | END)
}

impl Awaits {
    /// Creates those of one of several processes.
    pub(super) fn one_of(processes: usize) -> Self {
        Self {
            max_pending: (MAX_PENDING / processes.max(1)).max(MIN_PENDING),
            ..Self::default()
        }
    }

    /// Takes an event that [is about awaits](is_about_awaits). `awaiter` returns what awaits by its stack.
    pub(super) fn take(&mut self, event: &RuntimeEvent, awaiter: impl FnOnce() -> Awaiter) {
        let mut fields = Bytes(&event.payload);
        let mut field = || fields.i32();
        let (_scheduler, _of_task, Some(task)) = (field(), field(), field()) else {
            return;
        };
        match (event.metadata.id, field()) {
            (BEGIN, Some(ASYNCHRONOUS)) if self.count >= self.max_pending => self.omitted += 1,
            (BEGIN, Some(ASYNCHRONOUS)) => {
                let continued = field().unwrap_or_default();
                self.begin(task, continued, event.time, awaiter());
            }
            (END, _) => self.end(task, event.time),
            _ => {}
        }
    }

    fn begin(&mut self, task: i32, continued: i32, start: Nanos, mut awaiter: Awaiter) {
        let methods = &mut awaiter.methods;
        // A method that calls the one that awaits does not await yet.
        methods.own = methods.own.filter(|_| methods.own == methods.leaf);
        let is_own = methods.own.is_some();
        let has_own = self.continued.get(&task) == Some(&true);
        if continued != 0 {
            self.continued.insert(continued, is_own || has_own);
        }
        let pending = PendingAwait {
            start,
            awaiter,
            continued,
            is_outer: is_own && has_own,
        };
        self.pending.entry(task).or_default().push_back(pending);
        self.count += 1;
    }

    /// Ends the first await of a task. Each has an event.
    fn end(&mut self, task: i32, time: Nanos) {
        let Some(same) = self.pending.get_mut(&task) else {
            return;
        };
        let ended = same.pop_front();
        if same.is_empty() {
            self.pending.remove(&task);
        }
        let Some(ended) = ended else {
            return;
        };
        self.count -= 1;
        self.continued.remove(&ended.continued);
        if ended.is_outer {
            return;
        }
        let ns = time.0.saturating_sub(ended.start.0);
        let row = self.rows.row(ended.awaiter);
        row.ended += 1;
        row.ns = sum([row.ns, ns]);
        row.max_ns = row.max_ns.max(ns);
    }

    /// Counts the awaits that had not ended at a time.
    pub(super) fn finish(&mut self, end: Nanos) {
        self.count = 0;
        let pending = std::mem::take(&mut self.pending);
        let pending = pending.into_values().flatten();
        for pending in pending.filter(|pending| !pending.is_outer) {
            let ns = end.0.saturating_sub(pending.start.0);
            let row = self.rows.row(pending.awaiter);
            row.unended += 1;
            row.unended_ns = sum([row.unended_ns, ns]);
            row.max_ns = row.max_ns.max(ns);
        }
    }
}

impl AwaitCount {
    /// Adds the totals of another row.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ended = sum([self.ended, other.ended]);
        self.ns = sum([self.ns, other.ns]);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.unended = sum([self.unended, other.unended]);
        self.unended_ns = sum([self.unended_ns, other.unended_ns]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::test_events::event;
    use crate::trace::FunctionId;

    /// A method of the user, or another one.
    fn awaiter(method: u32, is_own: bool) -> Awaiter {
        let methods = EventMethods {
            leaf: Some(FunctionId(method)),
            own: is_own.then_some(FunctionId(method)),
            ..EventMethods::default()
        };
        Awaiter {
            methods,
            route: None,
        }
    }

    fn payload(fields: &[i32]) -> Vec<u8> {
        let fields = fields.iter();
        fields.flat_map(|field| field.to_le_bytes()).collect()
    }

    fn begin(awaits: &mut Awaits, time: u64, [task, continued]: [i32; 2], awaiter: Awaiter) {
        let fields = [1, 0, task, ASYNCHRONOUS, continued];
        awaits.take(&event(BEGIN, time, 1, payload(&fields)), || awaiter);
    }

    fn end(awaits: &mut Awaits, time: u64, task: i32) {
        let event = event(END, time, 2, payload(&[1, 0, task]));
        awaits.take(&event, Awaiter::default);
    }

    /// Method, number and microseconds of ended ones, number of others.
    fn rows(awaits: &Awaits) -> Vec<(u32, u64, u64, u64)> {
        let rows = awaits.rows.rows().map(|(awaiter, row)| {
            let method = awaiter.methods.leaf.unwrap().0;
            (method, row.ended, row.ns / 1000, row.unended)
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_unstable();
        rows
    }

    #[test]
    fn awaits_end_with_their_task() {
        let mut awaits = Awaits::one_of(1);
        let [first, second] = [1, 2].map(|method| awaiter(method, true));
        begin(&mut awaits, 10, [7, 0], first);
        begin(&mut awaits, 20, [7, 0], second);
        begin(&mut awaits, 20, [8, 0], first);
        // A thread waits.
        awaits.take(&event(BEGIN, 20, 1, payload(&[1, 0, 9, 1, 0])), || first);
        end(&mut awaits, 30, 9);
        (0..3).for_each(|_| end(&mut awaits, 50, 7));
        awaits.take(&event(BEGIN, 60, 1, payload(&[1, 0])), || first);
        awaits.finish(Nanos(100_000));
        assert_eq!(rows(&awaits), [(1, 1, 40, 1), (2, 1, 30, 0)]);
    }

    #[test]
    fn only_the_innermost_await_of_the_user_counts() {
        let mut awaits = Awaits::one_of(1);
        // Own 3 awaits own 2, which awaits library 11, which awaits library 10 and then again.
        begin(&mut awaits, 10, [100, 101], awaiter(10, false));
        begin(&mut awaits, 10, [101, 102], awaiter(11, false));
        begin(&mut awaits, 10, [102, 103], awaiter(2, true));
        begin(&mut awaits, 10, [103, 104], awaiter(12, false));
        begin(&mut awaits, 10, [104, 105], awaiter(3, true));
        end(&mut awaits, 20, 100);
        begin(&mut awaits, 20, [110, 101], awaiter(10, false));
        for (task, time) in [(110, 40), (101, 41), (102, 42), (103, 43), (104, 44)] {
            end(&mut awaits, time, task);
        }
        // Now it awaits a timer itself.
        begin(&mut awaits, 50, [120, 105], awaiter(3, true));
        end(&mut awaits, 60, 120);
        assert!(awaits.continued.is_empty() && awaits.pending.is_empty());
        assert_eq!(
            rows(&awaits),
            [
                (2, 1, 32, 0),
                (3, 1, 10, 0),
                (10, 2, 30, 0),
                (11, 1, 31, 0),
                (12, 1, 33, 0)
            ]
        );
    }

    #[test]
    fn any_number_may_await_a_task_but_all_are_bounded() {
        let mut awaits = Awaits::one_of(MAX_PENDING);
        for _ in 0..MIN_PENDING + 5 {
            begin(&mut awaits, 1, [7, 0], awaiter(1, true));
        }
        (0..MIN_PENDING).for_each(|_| end(&mut awaits, 2, 7));
        awaits.finish(Nanos(9000));
        let all = MIN_PENDING as u64;
        assert_eq!((rows(&awaits), awaits.omitted), (vec![(1, all, all, 0)], 5));
    }
}
