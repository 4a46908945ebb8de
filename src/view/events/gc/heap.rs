//! The collections of a process, as PerfView's GCStats tells them apart.
//!
//! ```text
//! suspend begin ─ suspend end ─ start ... end ─ heap stats ─ restart end        blocking: one pause
//! suspend begin ─ suspend end ─ start ─ restart end ... (suspend ... restart)   background: several, until its heap stats
//! ```
//! Begin and end of a pause are of one thread. The pause of a blocking collection begins with the suspension, or with the
//! collection itself where it is a small one that a background collection begins with. To such a background collection the
//! suspension alone is counted, and nothing more to one that is over when the program goes on.

use super::generations::{Generations, Left};
use super::sum;
use crate::dotnet::decode;
use crate::trace::{Nanos, RuntimeEvent, Tid};
use crate::view::events::number;

/// Events of collections, by number.
const START: u32 = 1;
const END: u32 = 2;
const RESTARTED: u32 = 3;
const HEAP_STATS: u32 = 4;
const SUSPENDED: u32 = 8;
const SUSPEND: u32 = 9;
const TICK: u32 = 10;
const PER_HEAP: u32 = 204;
/// Why the runtime suspends its threads: for a collection, or for a step of one in the background.
const FOR_GC: u64 = 1;
const FOR_STEP: u64 = 6;
/// Kinds of collections: blocking, and one that goes on while the program runs.
const BLOCKING: u64 = 0;
const BACKGROUND: u64 = 1;
/// The reason of a full collection that follows a small one within its pause.
const FULL_AFTER_SMALL: u64 = 12;
/// Most collections that are kept of a process, and most heaps of all of them.
const MAX_COLLECTIONS: usize = 1 << 20;
const MAX_HEAPS: usize = 1 << 20;
/// Most collections that are looked at for the peak of one.
const MAX_DURING: usize = 1 << 14;

/// One collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Collection {
    pub(super) number: u64,
    pub(super) generation: u64,
    pub(super) reason: u64,
    pub(super) kind: u64,
    start: Nanos,
    pub(super) pause_start: Nanos,
    pub(super) suspend_ns: u64,
    pub(super) pause_ns: u64,
    pub(super) duration_ns: Option<u64>,
    pub(super) left: Option<Left>,
    pub(super) is_complete: bool,
    /// Allocated since the last one by the ticks: small objects, and others.
    ticks: [u64; 2],
    heaps: Vec<Generations>,
}

/// The threads stand still, or are about to.
#[derive(Clone, Copy, Debug)]
struct Suspension {
    thread: Tid,
    begin: Nanos,
    end: Option<Nanos>,
}

/// The collections of a process.
#[derive(Debug, Default)]
pub(super) struct Heap {
    pub(super) rows: Vec<Collection>,
    /// The collection in the background that goes on.
    background: Option<usize>,
    for_gc: Option<Suspension>,
    for_step: Option<Suspension>,
    ticks: [u64; 2],
    heaps: usize,
    /// In all pauses for collections.
    paused_ns: u64,
    first: Option<Nanos>,
    last: Nanos,
}

impl Heap {
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        self.first.get_or_insert(event.time);
        self.last = event.time;
        let id = event.kind.id;
        if !matches!(id, START..=HEAP_STATS | SUSPENDED..=TICK | PER_HEAP) {
            return;
        }
        let (_, fields) = decode(&event.kind, &event.payload);
        let field = |name: &str| number(&fields, name).unwrap_or(0);
        match id {
            SUSPEND => {
                let suspension = Some(Suspension {
                    thread: event.thread,
                    begin: event.time,
                    end: None,
                });
                match field("Reason") {
                    FOR_GC => self.for_gc = suspension,
                    FOR_STEP => self.for_step = suspension,
                    _ => {}
                }
            }
            SUSPENDED => self.suspended(event),
            START => self.start(Collection {
                number: field("Count"),
                generation: field("Depth"),
                reason: field("Reason"),
                kind: field("Type"),
                start: event.time,
                ..Collection::default()
            }),
            END => {
                let number = field("Count");
                let open = [self.rows.len().checked_sub(1), self.background];
                let mut open = open.into_iter().flatten();
                if let Some(row) = open.find(|&row| self.rows[row].number == number) {
                    let row = &mut self.rows[row];
                    row.duration_ns = Some(event.time.0.saturating_sub(row.start.0));
                }
            }
            HEAP_STATS => {
                let of_each = |what: &str| [0, 1, 2, 3, 4].map(|of| field(&format!("{what}{of}")));
                self.ended(Left {
                    sizes: of_each("GenerationSize"),
                    promoted: sum(of_each("TotalPromotedSize")),
                });
            }
            RESTARTED => self.restarted(event),
            TICK => {
                let is_other = field("AllocationKind") != 0;
                let ticks = &mut self.ticks[usize::from(is_other)];
                *ticks = sum([*ticks, field("AllocationAmount64")]);
            }
            _ => {
                if let Some(row) = self.current().filter(|_| self.heaps < MAX_HEAPS) {
                    self.heaps += 1;
                    let heap = Generations::parse(&event.payload, field("Count"));
                    self.rows[row].heaps.push(heap);
                }
            }
        }
    }

    /// The collection that events are about.
    fn current(&self) -> Option<usize> {
        let last = self.rows.len().checked_sub(1);
        last.filter(|&row| !self.rows[row].is_complete)
            .or(self.background)
    }

    fn suspended(&mut self, event: &RuntimeEvent) {
        let of_thread = |suspension: &&mut Suspension| suspension.thread == event.thread;
        if let Some(gc) = self.for_gc.as_mut().filter(of_thread) {
            gc.end = Some(event.time);
        } else if let Some(step) = self.for_step.as_mut().filter(of_thread) {
            step.end = Some(event.time);
            if let Some(row) = self.background {
                let ns = event.time.0.saturating_sub(step.begin.0);
                self.rows[row].suspend_ns = sum([self.rows[row].suspend_ns, ns]);
            }
        }
    }

    fn start(&mut self, mut row: Collection) {
        let last = self.rows.last();
        let (Some(gc), false) = (self.for_gc, last.is_some_and(|l| l.number == row.number)) else {
            return;
        };
        if self.rows.len() >= MAX_COLLECTIONS {
            return;
        }
        let is_small_of_background = row.kind == BLOCKING
            && last.is_some_and(|last| last.kind == BACKGROUND && !last.is_complete);
        if is_small_of_background || row.reason == FULL_AFTER_SMALL {
            row.pause_start = row.start;
        } else {
            row.pause_start = gc.begin;
            row.suspend_ns = gc.end.unwrap_or(row.start).0.saturating_sub(gc.begin.0);
        }
        if row.reason == FULL_AFTER_SMALL
            && let Some(small) = self.current()
        {
            self.rows[small].is_complete = true;
        }
        if row.kind == BACKGROUND {
            row.pause_ns = row.suspend_ns;
            self.background = Some(self.rows.len());
        }
        self.rows.push(row);
    }

    fn ended(&mut self, left: Left) {
        let ticks = std::mem::take(&mut self.ticks);
        let Some(row) = self.current() else { return };
        let collection = &mut self.rows[row];
        (collection.left, collection.ticks) = (Some(left), ticks);
        if collection.kind == BACKGROUND {
            collection.is_complete = true;
            self.background = None;
        }
    }

    fn restarted(&mut self, event: &RuntimeEvent) {
        let of_thread = |suspension: &mut Suspension| suspension.thread == event.thread;
        let step = self.for_step.take_if(of_thread);
        let Some(pause) = step.or(self.for_gc.take_if(of_thread)) else {
            return;
        };
        let since = |begin: Nanos| event.time.0.saturating_sub(begin.0);
        self.paused_ns = sum([self.paused_ns, since(pause.begin)]);
        let Some(row) = self.current() else { return };
        let collection = &mut self.rows[row];
        collection.pause_ns = match step {
            Some(step) if collection.kind == BACKGROUND => {
                sum([collection.pause_ns, since(step.begin)])
            }
            _ => since(collection.pause_start),
        };
        if collection.kind != BACKGROUND && collection.left.is_some() {
            collection.is_complete = true;
        }
    }

    /// Those that are complete.
    pub(super) fn complete(&self) -> impl Iterator<Item = &Collection> {
        self.rows.iter().filter(|row| row.is_complete)
    }

    /// The time of pauses that is counted to no collection.
    pub(super) fn unassigned_ns(&self) -> u64 {
        let pauses = self.rows.iter().map(|row| row.pause_ns);
        self.paused_ns.saturating_sub(sum(pauses))
    }

    /// From the first event of the process to the last.
    pub(super) fn span_ns(&self) -> u64 {
        self.first
            .map_or(0, |first| self.last.0.saturating_sub(first.0))
    }

    /// Bytes allocated between a collection and the one before: what the heaps tell, else the ticks.
    pub(super) fn allocated(&self, row: usize) -> i64 {
        let now = &self.rows[row];
        let last = row.checked_sub(1).map(|row| &self.rows[row]);
        let by_ticks = now
            .ticks
            .map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        let last = last.filter(|last| !last.heaps.is_empty() && !now.heaps.is_empty());
        let mut allocated = last.map_or(by_ticks, |last| {
            let heaps = now.heaps.iter().enumerate();
            let of_heaps = heaps
                .map(|(at, heap)| heap.allocated_since(last.heaps.get(at), last.generation == 0));
            of_heaps.fold([0; 2], |all: [i64; 2], more| {
                [0, 1].map(|at| all[at].saturating_add(more[at]))
            })
        });
        // Small objects are allocated while it goes on, too.
        if now.kind == BACKGROUND {
            allocated[0] = by_ticks[0];
        }
        allocated[0].saturating_add(allocated[1])
    }

    /// Bytes of the heap before each collection, or before one of those that were while it went on.
    pub(super) fn peaks(&self) -> Vec<u64> {
        let before = self.sizes_before();
        let rows = self.rows.iter().enumerate();
        let peak = |(row, now): (usize, &Collection)| {
            if now.kind != BACKGROUND {
                return before[row];
            }
            let end = sum([now.pause_start.0, now.duration_ns.unwrap_or(0)]);
            let during = (row + 1..self.rows.len()).take(MAX_DURING);
            let during = during.take_while(|&later| self.rows[later].pause_start.0 <= end);
            during.fold(before[row], |peak, later| peak.max(before[later]))
        };
        rows.map(peak).collect()
    }

    /// Bytes of the heap before each collection: what the heaps tell, else what the one before has left, if that is not the
    /// first, and what was allocated since.
    fn sizes_before(&self) -> Vec<u64> {
        let mut left = None;
        let rows = self.rows.iter().enumerate();
        let size = |(row, now): (usize, &Collection)| {
            let left_before: Option<Left> = left;
            if row > 0 {
                left = now.left.or(left);
            }
            match left_before {
                _ if !now.heaps.is_empty() => sum(now.heaps.iter().map(|heap| heap.size_before)),
                _ if row == 0 => now.ticks[0],
                None => 0,
                Some(left) => left.at_most_until(now.ticks[0], now.left),
            }
        };
        rows.map(size).collect()
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
