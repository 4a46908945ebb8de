//! Garbage collections: the table that PerfView calls GCStats.

mod generations;
mod heap;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{Processes, is_of_runtime, sum};
use crate::trace::{Pid, RuntimeEvent};
use heap::Heap;

const KINDS: [&str; 3] = ["N", "B", "F"];
const REASONS: [&str; 18] = [
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
    "BGCTuningSOH",
    "BGCTuningLOH",
    "BGCStepping",
    "InducedAggressive",
];

fn print_heap(heap: &Heap, processes: &Processes, out: &mut impl Write) -> io::Result<()> {
    if heap.rows.is_empty() {
        return writeln!(
            out,
            "no collections, or their events were not asked for (keyword gc)"
        );
    }
    let pauses = || heap.complete().map(|row| row.pause_ns);
    let of = |generation| {
        let of = heap.complete().filter(|row| row.generation == generation);
        of.count()
    };
    let (pause_ns, span) = (sum(pauses()), heap.span_ns() as f64);
    writeln!(
        out,
        "{} collections (gen0 {}, gen1 {}, gen2 {}), paused {:.3} ms in all ({:.1} % of {:.1} s), {:.3} ms at most",
        heap.complete().count(),
        of(0),
        of(1),
        of(2),
        ms(pause_ns),
        100.0 * pause_ns as f64 / span.max(1.0),
        span / 1e9,
        ms(pauses().max().unwrap_or(0))
    )?;
    let going_on = heap.rows.len() - heap.complete().count();
    if going_on > 0 {
        writeln!(out, "{going_on} more had not ended")?;
    }
    let unassigned = ms(heap.unassigned_ns());
    if unassigned >= 0.001 {
        writeln!(
            out,
            "{unassigned:.3} ms more of pauses that PerfView counts to no collection"
        )?;
    }
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
    for (at, (row, peak)) in heap.rows.iter().zip(heap.peaks()).enumerate() {
        let name = |names: &[&'static str], of| {
            let of = usize::try_from(of).ok();
            of.and_then(|of| names.get(of)).copied().unwrap_or("?")
        };
        let induced = match row.reason {
            1 => "I",
            7 => "i",
            _ => "",
        };
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
        writeln!(
            out,
            "{:>6} {:>12.3} {:<21} {:>4} {:>11.3} {:>9.3} {:>11} {:>9.3} {:>9.3} {:>9} {:>11}",
            row.number,
            processes.ms(row.pause_start),
            name(&REASONS, row.reason),
            format!("{}{}{induced}", row.generation, name(&KINDS, row.kind)),
            ms(row.suspend_ns),
            ms(row.pause_ns),
            or_none(row.duration_ns.map(|ns| format!("{:.3}", ms(ns)))),
            heap.allocated(at) as f64 / 1e6,
            peak as f64 / 1e6,
            or_none(row.left.map(|left| mb(left.size()))),
            or_none(row.left.map(|left| mb(left.promoted)))
        )?;
    }
    Ok(())
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
        print_heap(heap, processes, out)?;
    }
    Ok(())
}
