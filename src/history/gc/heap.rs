//! The collections of a process, distinguished as in PerfView's GCStats.
//!
//! ```text
//! blocking:    suspend start ─ suspend end ─ start ... end ─ heap stats ─ restart end
//! background:  suspend start ─ suspend end ─ start ─ restart end ... (suspend ... restart)
//! ```
//! A blocking collection has one pause, a background collection several until its heap stats. One
//! thread starts and ends a pause. The pause of a blocking collection starts with the suspension.
//! If a background collection starts with a small one, the pause of the small one starts with that
//! collection itself. The background collection then counts only the suspension, and nothing more
//! if it ends before the program resumes.

use super::generations::{Generations, HeapStats, HeapTotals, Objects};
use crate::dotnet::decode;
use crate::history::fields::{number, sum};
use crate::trace::{Nanos, RuntimeEvent, Tid};

/// Ids of the GC events.
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
/// Reasons of a suspension: a collection, or a step of a background collection.
const FOR_GC: u64 = 1;
const FOR_STEP: u64 = 6;
/// Kinds of collection: blocking, and concurrent with the program.
const BLOCKING: u64 = 0;
pub(crate) const BACKGROUND: u64 = 1;
/// Reason of a full collection that follows a small one within its pause.
const FULL_AFTER_SMALL: u64 = 12;
/// Limits of one process: collections, and heaps of all collections.
const MAX_COLLECTIONS: usize = 1 << 20;
const MAX_HEAPS: usize = 1 << 20;
/// Maximum number of threads that work on one collection: each heap has one.
const MAX_WORKERS: usize = 1 << 10;

/// One collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct GarbageCollection {
    pub(crate) number: u64,
    pub(crate) generation: u64,
    pub(crate) reason: u64,
    pub(crate) kind: u64,
    pub(crate) start: Nanos,
    pub(crate) pause_start: Nanos,
    pub(crate) suspend_ns: u64,
    pub(crate) pause_ns: u64,
    pub(crate) duration_ns: Option<u64>,
    pub(crate) heap_stats: Option<HeapStats>,
    /// Times of the heap stats event of this collection and of the previous one.
    pub(crate) heap_stats_at: Nanos,
    pub(crate) previous_stats_at: Option<Nanos>,
    pub(crate) is_complete: bool,
    /// Bytes allocated since the previous collection by allocation ticks: small objects, and
    /// others.
    pub(crate) ticks: [u64; 2],
    pub(crate) heaps: Vec<Objects>,
    pub(crate) totals: HeapTotals,
    /// Threads that sent events of the collection while they worked on it.
    pub(crate) workers: Vec<Tid>,
}

impl GarbageCollection {
    /// Returns whether the program ran during the collection.
    pub(crate) fn is_background(&self) -> bool {
        self.kind == BACKGROUND
    }
}

/// A suspension of all threads, in progress or complete.
#[derive(Clone, Copy, Debug)]
struct Suspension {
    thread: Tid,
    start: Nanos,
    end: Option<Nanos>,
}

/// The collections of a process.
#[derive(Debug)]
pub(crate) struct GcHistory {
    max_collections: usize,
    pub(crate) rows: Vec<GarbageCollection>,
    /// Current background collection.
    background: Option<usize>,
    /// Last background collection that ended.
    last_background: Option<usize>,
    for_gc: Option<Suspension>,
    for_step: Option<Suspension>,
    ticks: [u64; 2],
    /// Whether the events contain allocation ticks.
    pub(crate) has_ticks: bool,
    /// Number of collections beyond the limit.
    pub(crate) omitted: u64,
    heaps: usize,
    /// Number of heaps, as first reported by the runtime.
    pub(crate) count: Option<u64>,
    /// Total of all pauses for collections.
    paused_ns: u64,
    /// Time of the last heap stats event.
    heap_stats_at: Option<Nanos>,
}

impl Default for GcHistory {
    fn default() -> Self {
        Self::new(MAX_COLLECTIONS)
    }
}

impl GcHistory {
    /// Creates the history of a process before its first collection.
    pub(crate) fn new(max_collections: usize) -> Self {
        Self {
            max_collections,
            rows: Vec::new(),
            background: None,
            last_background: None,
            for_gc: None,
            for_step: None,
            ticks: [0; 2],
            has_ticks: false,
            omitted: 0,
            heaps: 0,
            count: None,
            paused_ns: 0,
            heap_stats_at: None,
        }
    }

    /// Returns whether an event of the runtime is about collections.
    pub(crate) fn is_event(id: u32) -> bool {
        matches!(id, START..=HEAP_STATS | SUSPENDED..=TICK | MARKED | PER_HEAP | ALL_HEAPS)
    }

    pub(crate) fn take(&mut self, event: &RuntimeEvent) {
        let id = event.metadata.id;
        if !Self::is_event(id) {
            return;
        }
        let (_, fields) = decode(&event.metadata, &event.payload);
        let field = |name: &str| number(&fields, name).unwrap_or(0);
        match id {
            SUSPEND => {
                let suspension = Some(Suspension {
                    thread: event.thread,
                    start: event.time,
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
                self.add_worker(event.thread);
                let number = field("Count");
                let open = [self.rows.len().checked_sub(1), self.background];
                let mut open = open.into_iter().flatten();
                if let Some(row) = open.find(|&row| self.rows[row].number == number) {
                    let row = &mut self.rows[row];
                    row.duration_ns = Some(event.time.0.saturating_sub(row.start.0));
                }
            }
            HEAP_STATS => {
                let by_generation =
                    |what: &str| [0, 1, 2, 3, 4].map(|index| field(&format!("{what}{index}")));
                let heap_stats = HeapStats {
                    sizes: by_generation("GenerationSize"),
                    promoted: sum(by_generation("TotalPromotedSize")),
                    finalizable: field("FinalizationPromotedSize"),
                    pinned: field("PinnedObjectCount"),
                    handles: field("GCHandleCount"),
                };
                self.ended(heap_stats, event.time);
            }
            RESTARTED => self.restarted(event),
            TICK => {
                let is_other = field("AllocationKind") != 0;
                self.has_ticks = true;
                let ticks = &mut self.ticks[usize::from(is_other)];
                *ticks = sum([*ticks, field("AllocationAmount64")]);
            }
            MARKED => self.add_worker(event.thread),
            ALL_HEAPS => self.count = self.count.or(number(&fields, "NumHeaps")),
            PER_HEAP => {
                // The heaps of server GC report a background collection after its end.
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

    /// Records that a thread works on the current collection.
    fn add_worker(&mut self, thread: Tid) {
        let Some(row) = self.current() else { return };
        let workers = &mut self.rows[row].workers;
        if workers.len() < MAX_WORKERS && !workers.contains(&thread) {
            workers.push(thread);
        }
    }

    /// Returns the collection that events refer to.
    fn current(&self) -> Option<usize> {
        let last = self.rows.len().checked_sub(1);
        last.filter(|&row| !self.rows[row].is_complete)
            .or(self.background)
    }

    fn suspended(&mut self, event: &RuntimeEvent) {
        let is_same_thread = |suspension: &&mut Suspension| suspension.thread == event.thread;
        if let Some(gc) = self.for_gc.as_mut().filter(is_same_thread) {
            gc.end = Some(event.time);
        } else if let Some(step) = self.for_step.as_mut().filter(is_same_thread) {
            step.end = Some(event.time);
            if let Some(row) = self.background {
                let ns = event.time.0.saturating_sub(step.start.0);
                self.rows[row].suspend_ns = sum([self.rows[row].suspend_ns, ns]);
            }
        }
    }

    fn start(&mut self, mut row: GarbageCollection) {
        let last = self.rows.last();
        let (Some(gc), false) = (self.for_gc, last.is_some_and(|l| l.number == row.number)) else {
            return;
        };
        if self.rows.len() >= self.max_collections {
            self.omitted += 1;
            return;
        }
        let is_small_of_background = row.kind == BLOCKING
            && last.is_some_and(|last| last.kind == BACKGROUND && !last.is_complete);
        if is_small_of_background || row.reason == FULL_AFTER_SMALL {
            row.pause_start = row.start;
        } else {
            row.pause_start = gc.start;
            row.suspend_ns = gc.end.unwrap_or(row.start).0.saturating_sub(gc.start.0);
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

    fn ended(&mut self, heap_stats: HeapStats, time: Nanos) {
        let ticks = std::mem::take(&mut self.ticks);
        let previous_stats_at = self.heap_stats_at.replace(time);
        let Some(row) = self.current() else { return };
        let collection = &mut self.rows[row];
        (collection.heap_stats, collection.ticks) = (Some(heap_stats), ticks);
        (collection.heap_stats_at, collection.previous_stats_at) = (time, previous_stats_at);
        if collection.kind == BACKGROUND {
            collection.is_complete = true;
            self.last_background = self.background.take();
        }
    }

    fn restarted(&mut self, event: &RuntimeEvent) {
        let is_same_thread = |suspension: &mut Suspension| suspension.thread == event.thread;
        let step = self.for_step.take_if(is_same_thread);
        let Some(pause) = step.or(self.for_gc.take_if(is_same_thread)) else {
            return;
        };
        let since = |start: Nanos| event.time.0.saturating_sub(start.0);
        self.paused_ns = sum([self.paused_ns, since(pause.start)]);
        let Some(row) = self.current() else { return };
        let collection = &mut self.rows[row];
        collection.pause_ns = match step {
            Some(step) if collection.kind == BACKGROUND => {
                sum([collection.pause_ns, since(step.start)])
            }
            _ => since(collection.pause_start),
        };
        if collection.kind != BACKGROUND && collection.heap_stats.is_some() {
            collection.is_complete = true;
        }
    }

    /// Returns the complete collections.
    pub(crate) fn complete(&self) -> impl Iterator<Item = &GarbageCollection> {
        self.rows.iter().filter(|row| row.is_complete)
    }

    /// Returns the part of the pauses that belongs to no collection.
    pub(crate) fn unassigned_ns(&self) -> u64 {
        let pauses = self.rows.iter().map(|row| row.pause_ns);
        self.paused_ns.saturating_sub(sum(pauses))
    }

    /// Returns the time from the first pause of a complete collection to the end of the last one.
    ///
    /// The end is the last heap stats event, or the end of a later pause. PerfView ends at the
    /// event, so its share of pauses exceeds 100 % if the program resumes late.
    pub(crate) fn span_ns(&self) -> Option<u64> {
        let first = self.complete().next()?;
        let pause_ends = self
            .complete()
            .map(|row| sum([row.pause_start.0, row.pause_ns]));
        let end = pause_ends.chain([self.heap_stats_at?.0]).max()?;
        Some(end.saturating_sub(first.pause_start.0))
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
