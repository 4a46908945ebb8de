//! The collections of a process, as PerfView's GCStats tells them apart.
//!
//! ```text
//! suspend begin ─ suspend end ─ start ... end ─ heap stats ─ restart end        blocking: one pause
//! suspend begin ─ suspend end ─ start ─ restart end ... (suspend ... restart)   background: several, until its heap stats
//! ```
//! Begin and end of a pause are of one thread. The pause of a blocking collection begins with the suspension, or with the
//! collection itself where it is a small one that a background collection begins with. To such a background collection the
//! suspension alone is counted, and nothing more to one that is over when the program goes on.

use super::generations::{Generations, HeapStats, HeapTotals, Objects};
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
const MARKED: u32 = 202;
const PER_HEAP: u32 = 204;
const ALL_HEAPS: u32 = 205;
/// Why the runtime suspends its threads: for a collection, or for a step of one in the background.
const FOR_GC: u64 = 1;
const FOR_STEP: u64 = 6;
/// Kinds of collections: blocking, and one that goes on while the program runs.
const BLOCKING: u64 = 0;
pub(super) const BACKGROUND: u64 = 1;
/// The reason of a full collection that follows a small one within its pause.
const FULL_AFTER_SMALL: u64 = 12;
/// Most collections that are kept of a process, and most heaps of all of them.
const MAX_COLLECTIONS: usize = 1 << 20;
const MAX_HEAPS: usize = 1 << 20;
/// Most threads that work at one collection: a heap has one.
const MAX_WORKERS: usize = 1 << 10;

/// One collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct GarbageCollection {
    pub(super) number: u64,
    pub(super) generation: u64,
    pub(super) reason: u64,
    pub(super) kind: u64,
    pub(super) start: Nanos,
    pub(super) pause_start: Nanos,
    pub(super) suspend_ns: u64,
    pub(super) pause_ns: u64,
    pub(super) duration_ns: Option<u64>,
    pub(super) left: Option<HeapStats>,
    /// When that was told, and when it was of the one before.
    pub(super) told: Nanos,
    pub(super) told_before: Option<Nanos>,
    pub(super) is_complete: bool,
    /// Allocated since the last one by the ticks: small objects, and others.
    pub(super) ticks: [u64; 2],
    pub(super) heaps: Vec<Objects>,
    pub(super) totals: HeapTotals,
    /// Threads that have told of it while they worked at it.
    pub(super) workers: Vec<Tid>,
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
pub(super) struct GcHistory {
    pub(super) rows: Vec<GarbageCollection>,
    /// The collection in the background that goes on.
    background: Option<usize>,
    /// The last one that has ended.
    last_background: Option<usize>,
    for_gc: Option<Suspension>,
    for_step: Option<Suspension>,
    ticks: [u64; 2],
    /// Whether the ticks of allocation came.
    pub(super) has_ticks: bool,
    heaps: usize,
    /// Heaps that the runtime said first it has.
    pub(super) count: Option<u64>,
    /// In all pauses for collections.
    paused_ns: u64,
    /// When it was told last what a collection has left.
    told: Option<Nanos>,
}

impl GcHistory {
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        let id = event.kind.id;
        if !matches!(id, START..=HEAP_STATS | SUSPENDED..=TICK | MARKED..=ALL_HEAPS) {
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
            START => self.start(GarbageCollection {
                number: field("Count"),
                generation: field("Depth"),
                reason: field("Reason"),
                kind: field("Type"),
                start: event.time,
                ..GarbageCollection::default()
            }),
            END => {
                self.works(event.thread);
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
                let left = HeapStats {
                    sizes: of_each("GenerationSize"),
                    promoted: sum(of_each("TotalPromotedSize")),
                    finalizable: field("FinalizationPromotedSize"),
                    pinned: field("PinnedObjectCount"),
                    handles: field("GCHandleCount"),
                };
                self.ended(left, event.time);
            }
            RESTARTED => self.restarted(event),
            TICK => {
                let is_other = field("AllocationKind") != 0;
                self.has_ticks = true;
                let ticks = &mut self.ticks[usize::from(is_other)];
                *ticks = sum([*ticks, field("AllocationAmount64")]);
            }
            MARKED => self.works(event.thread),
            ALL_HEAPS => self.count = self.count.or(number(&fields, "NumHeaps")),
            PER_HEAP => {
                // The heaps of a server tell of one in the background when it has ended.
                let row = self.current().or(self.last_background);
                if let Some(row) = row.filter(|_| self.heaps < MAX_HEAPS) {
                    self.heaps += 1;
                    let heap = Generations::parse(&event.payload, field("Count"));
                    let row = &mut self.rows[row];
                    row.heaps.push(heap.objects());
                    row.totals.add(&heap);
                }
            }
            _ => {}
        }
    }

    /// A thread works at the collection that goes on.
    fn works(&mut self, thread: Tid) {
        let Some(row) = self.current() else { return };
        let workers = &mut self.rows[row].workers;
        if workers.len() < MAX_WORKERS && !workers.contains(&thread) {
            workers.push(thread);
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

    fn start(&mut self, mut row: GarbageCollection) {
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

    fn ended(&mut self, left: HeapStats, time: Nanos) {
        let ticks = std::mem::take(&mut self.ticks);
        let told_before = self.told.replace(time);
        let Some(row) = self.current() else { return };
        let collection = &mut self.rows[row];
        (collection.left, collection.ticks) = (Some(left), ticks);
        (collection.told, collection.told_before) = (time, told_before);
        if collection.kind == BACKGROUND {
            collection.is_complete = true;
            self.last_background = self.background.take();
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
    pub(super) fn complete(&self) -> impl Iterator<Item = &GarbageCollection> {
        self.rows.iter().filter(|row| row.is_complete)
    }

    /// The time of pauses that is counted to no collection.
    pub(super) fn unassigned_ns(&self) -> u64 {
        let pauses = self.rows.iter().map(|row| row.pause_ns);
        self.paused_ns.saturating_sub(sum(pauses))
    }

    /// From the first pause of a complete collection to when it was told what the last has left, or the end of its pause if that
    /// is later. PerfView ends before that pause does, which is more than all of the time where the program is held up there.
    pub(super) fn span_ns(&self) -> Option<u64> {
        let first = self.complete().next()?;
        let pause_ends = self
            .complete()
            .map(|row| sum([row.pause_start.0, row.pause_ns]));
        let end = pause_ends.chain([self.told?.0]).max()?;
        Some(end.saturating_sub(first.pause_start.0))
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
