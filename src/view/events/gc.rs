//! Garbage collections: the table that PerfView calls GCStats.
//!
//! ```text
//! suspend begin ─ suspend end ─ start ... end ─ heap stats ─ restart end        blocking: one pause
//! suspend begin ─ suspend end ─ start ─ restart end ... (suspend ... restart)   background: several, until its end
//! ```
//! All of a pause is of one thread.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Processes, is_of_runtime, number, sum};
use crate::dotnet::decode;
use crate::trace::{Nanos, Pid, RuntimeEvent, Tid};

/// Events of collections, by number.
const START: u32 = 1;
const END: u32 = 2;
const RESTARTED: u32 = 3;
const HEAP_STATS: u32 = 4;
const SUSPENDED: u32 = 8;
const SUSPEND: u32 = 9;
const TICK: u32 = 10;
const PER_HEAP: u32 = 204;
/// Why the runtime suspends its threads, if for a collection.
const FOR_GC: [u64; 2] = [1, 6];
/// A collection that goes on while the program runs.
const BACKGROUND: u64 = 1;
const KINDS: [&str; 3] = ["N", "B", "F"];
const REASONS: [&str; 14] = [
    "AllocSmall",
    "Induced",
    "LowMemory",
    "Empty",
    "AllocLarge",
    "OutOfSpaceSOH",
    "OutOfSpaceLOH",
    "InducedNotForced",
    "Internal",
    "InducedLowMemory",
    "InducedCompacting",
    "LowMemoryHost",
    "PMFullGC",
    "LowMemoryHostBlocking",
];
/// Most collections that are kept of a process.
const MAX_COLLECTIONS: usize = 1 << 20;
/// The last fields of [`PER_HEAP`]: for each generation ten numbers, the first its size before. Where they begin.
const GENERATIONS_AT: usize = 86;
const GENERATION_BYTES: usize = 80;
const MAX_GENERATIONS: usize = 8;

/// One collection.
#[derive(Clone, Debug, Default, PartialEq)]
struct Collection {
    number: u64,
    generation: u64,
    reason: u64,
    kind: u64,
    start: Nanos,
    pause_start: Nanos,
    suspend_ns: u64,
    pause_ns: u64,
    end: Option<Nanos>,
    allocated: u64,
    before: u64,
    after: Option<u64>,
    promoted: u64,
}

#[derive(Debug)]
struct Pause {
    thread: Tid,
    begin: Nanos,
    suspend_ns: u64,
    /// The row of the collection that began in it.
    of: Option<usize>,
}

/// The collections of a process.
#[derive(Debug, Default)]
struct Heap {
    rows: Vec<Collection>,
    pause: Option<Pause>,
    /// Rows of collections that have begun and not ended, the last one innermost.
    open: Vec<usize>,
    allocated: u64,
    first: Option<Nanos>,
    last: Nanos,
}

impl Heap {
    fn take(&mut self, event: &RuntimeEvent) {
        self.first.get_or_insert(event.time);
        self.last = event.time;
        let id = event.kind.id;
        if !matches!(id, START..=HEAP_STATS | SUSPENDED..=TICK | PER_HEAP) {
            return;
        }
        let (_, fields) = decode(&event.kind, &event.payload);
        let field = |name: &str| number(&fields, name).unwrap_or(0);
        match id {
            SUSPEND if FOR_GC.contains(&field("Reason")) => {
                self.pause = Some(Pause {
                    thread: event.thread,
                    begin: event.time,
                    suspend_ns: 0,
                    of: None,
                });
            }
            SUSPENDED => {
                if let Some(pause) = self.pause_of(event.thread) {
                    pause.suspend_ns = event.time.0 - pause.begin.0;
                }
            }
            START if self.rows.len() < MAX_COLLECTIONS => {
                let row = self.rows.len();
                let allocated = std::mem::take(&mut self.allocated);
                let Some(pause) = &mut self.pause else {
                    return;
                };
                // One that begins while another does, as a background collection may with a small one first.
                if pause.of.is_some() {
                    (pause.begin, pause.suspend_ns) = (event.time, 0);
                }
                pause.of = Some(row);
                self.open.push(row);
                self.rows.push(Collection {
                    number: field("Count"),
                    generation: field("Depth"),
                    reason: field("Reason"),
                    kind: field("Type"),
                    start: event.time,
                    pause_start: pause.begin,
                    suspend_ns: pause.suspend_ns,
                    allocated,
                    ..Collection::default()
                });
            }
            END => {
                let count = field("Count");
                if let Some(at) = self
                    .open
                    .iter()
                    .rposition(|&row| self.rows[row].number == count)
                {
                    let row = self.open.remove(at);
                    self.rows[row].end = Some(event.time);
                }
            }
            HEAP_STATS => {
                let sizes = ["0", "1", "2", "3", "4"];
                let all = |of: &str| sum(sizes.iter().map(|g| field(&format!("{of}{g}"))));
                let (after, promoted) = (all("GenerationSize"), all("TotalPromotedSize"));
                let ended = |row: &&mut Collection| row.end.is_some() && row.after.is_none();
                if let Some(row) = self.rows.iter_mut().rev().find(ended) {
                    (row.after, row.promoted) = (Some(after), promoted);
                }
            }
            PER_HEAP => {
                if let Some(row) = self.open.last().and_then(|&row| self.rows.get_mut(row)) {
                    row.before = sum([row.before, size_before(&event.payload, field("Count"))]);
                }
            }
            RESTARTED => {
                if let Some(pause) = self.pause.take_if(|pause| pause.thread == event.thread) {
                    let ns = event.time.0 - pause.begin.0;
                    let is_background = |row: &&usize| self.rows[**row].kind == BACKGROUND;
                    let row = pause
                        .of
                        .or(self.open.iter().rev().find(is_background).copied());
                    if let Some(row) = row {
                        self.rows[row].pause_ns = sum([self.rows[row].pause_ns, ns]);
                    }
                }
            }
            TICK => self.allocated = sum([self.allocated, field("AllocationAmount64")]),
            _ => {}
        }
    }

    fn pause_of(&mut self, thread: Tid) -> Option<&mut Pause> {
        self.pause.as_mut().filter(|pause| pause.thread == thread)
    }

    fn print(&self, processes: &Processes, out: &mut impl Write) -> io::Result<()> {
        let pause_ns = sum(self.rows.iter().map(|row| row.pause_ns));
        let span = self.last.0 - self.first.map_or(self.last.0, |first| first.0);
        let longest = self.rows.iter().map(|row| row.pause_ns).max().unwrap_or(0);
        let of = |generation| {
            let of = self.rows.iter().filter(|row| row.generation == generation);
            of.count()
        };
        writeln!(
            out,
            "{} collections (gen0 {}, gen1 {}, gen2 {}), paused {:.3} ms in all ({:.1} % of {:.1} s), {:.3} ms at most",
            self.rows.len(),
            of(0),
            of(1),
            of(2),
            ms(pause_ns),
            100.0 * pause_ns as f64 / (span as f64).max(1.0),
            span as f64 / 1e9,
            ms(longest)
        )?;
        writeln!(
            out,
            "{:>6} {:>12} {:<21} {:>4} {:>11} {:>9} {:>11} {:>9} {:>9} {:>9} {:>11}",
            "GC",
            "pause start",
            "reason",
            "gen",
            "suspend ms",
            "pause ms",
            "duration ms",
            "alloc MB",
            "peak MB",
            "after MB",
            "promoted MB"
        )?;
        for row in &self.rows {
            let reason = REASONS.get(row.reason as usize).copied().unwrap_or("?");
            let kind = KINDS.get(row.kind as usize).copied().unwrap_or("?");
            let duration = row.end.map_or_else(
                || "-".to_owned(),
                |end| format!("{:.3}", ms(end.0 - row.start.0)),
            );
            let after = row.after.map_or_else(|| "-".to_owned(), mb);
            writeln!(
                out,
                "{:>6} {:>12.3} {reason:<21} {:>4} {:>11.3} {:>9.3} {duration:>11} {:>9} {:>9} {after:>9} {:>11}",
                row.number,
                processes.ms(row.pause_start),
                format!("{}{kind}", row.generation),
                ms(row.suspend_ns),
                ms(row.pause_ns),
                mb(row.allocated),
                mb(row.before),
                mb(row.promoted)
            )?;
        }
        Ok(())
    }
}

/// What all generations of a heap held before a collection.
fn size_before(payload: &[u8], generations: u64) -> u64 {
    let generations = usize::try_from(generations)
        .unwrap_or(0)
        .min(MAX_GENERATIONS);
    let sizes = payload.get(GENERATIONS_AT..).unwrap_or_default();
    let sizes = sizes.chunks_exact(GENERATION_BYTES).take(generations);
    let size = |of: &[u8]| {
        of.first_chunk()
            .map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    sum(sizes.map(size))
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn mb(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e6)
}

pub(super) fn print(
    events: impl Iterator<Item = RuntimeEvent>,
    processes: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut heaps: BTreeMap<Pid, Heap> = BTreeMap::new();
    for event in events.filter(is_of_runtime) {
        heaps.entry(event.process).or_default().take(&event);
    }
    for (pid, heap) in &heaps {
        processes.heading(*pid, out)?;
        heap.print(processes, out)?;
    }
    Ok(())
}
