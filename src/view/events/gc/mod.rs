//! Garbage collections: PerfView's GCStats tables.

mod tables;

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::Processes;
use super::columns::decimals;
use crate::history::gc::{CpuTime, GcHistory, Rollup, rows};
use crate::history::{CpuSample, is_from_runtime};
use crate::trace::{Pid, RuntimeEvent};
use crate::view::{ViewError, count};
use tables::{print_collections, print_generations, print_rollup};

/// Minimum length of pauses in the table of long pauses, in milliseconds.
const LONG_PAUSE_MS: f64 = 200.0;

fn print_heap(
    heap: &GcHistory,
    cpu: Option<&CpuTime>,
    processes: &Processes,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    if heap.rows.is_empty() {
        return writeln!(
            out,
            "no collections, or their events were not requested (keyword gc)"
        );
    }
    // A row may be compared with an incomplete collection before it.
    let mut rows = rows(heap, cpu, |time| processes.ms(time));
    rows.retain(|row| row.collection.is_complete);
    let pending = heap.rows.len() - rows.len();
    if rows.is_empty() {
        return writeln!(
            out,
            "no complete collections, {pending} had started when the events end"
        );
    }
    let all = Rollup::new(rows.iter());
    let count_of = |generation| {
        let complete = heap.complete().filter(|row| row.generation == generation);
        complete.count()
    };
    let pause_ms = ms(all.pause_ns);
    let span_ms = heap.span_ns().map_or(f64::NAN, ms);
    writeln!(
        out,
        "{} (gen0 {}, gen1 {}, gen2 {}), paused {pause_ms:.3} ms in all, {:.3} ms at most",
        count(all.count as u64, "collection", "collections"),
        count_of(0),
        count_of(1),
        count_of(2),
        ms(all.max_pause_ns)
    )?;
    if pending > 0 {
        writeln!(
            out,
            "{pending} more had not ended when the events end: no table contains them, as in PerfView"
        )?;
    }
    writeln!(
        out,
        "% Time paused for Garbage Collection: {} of the {} s from the first pause to the end of the last",
        decimals(100.0 * pause_ms / span_ms, 1),
        decimals(span_ms / 1e3, 3)
    )?;
    writeln!(
        out,
        "Total Allocs: {:.3} MB, Max GC Heap Size: {} MB, Number of Heaps: {}",
        all.allocated as f64 / 1e6,
        mb(all.max_peak),
        heap.count
            .map_or_else(|| "-".to_owned(), |count| count.to_string())
    )?;
    if !heap.has_ticks {
        writeln!(
            out,
            "no allocation ticks: Alloc MB and Total Allocs come from the heap sizes of\n\
             consecutive collections, without allocations before the first collection and\n\
             during a background one; to record them: -clrevents gc -clreventlevel verbose"
        )?;
    }
    match cpu {
        Some(cpu) => {
            let (cpu_ms, gc_ms) = (ms(cpu.total()), ms(all.cpu_ns));
            writeln!(
                out,
                "Total CPU Time: {cpu_ms:.0} msec, Total GC CPU Time: {gc_ms:.0} msec, {:.1} % CPU Time spent Garbage Collecting, GC CPU MSec/MB Alloc: {}",
                100.0 * gc_ms / cpu_ms,
                decimals(gc_ms * 1e6 / all.allocated as f64, 3)
            )?;
        }
        None => writeln!(
            out,
            "no samples of it, so no % GC and no Survived MB/MSec GC"
        )?,
    }
    let unassigned = ms(heap.unassigned_ns());
    if unassigned >= 0.001 {
        writeln!(
            out,
            "{unassigned:.3} ms more of pauses that belong to no collection, as in PerfView"
        )?;
    }
    print_rollup(&rows, out)?;
    let long = rows.iter().filter(|row| row.pause_ms() > LONG_PAUSE_MS);
    print_collections("Pause > 200 Msec GC Events", long, processes, top, out)?;
    let full = rows.iter().filter(|row| row.collection.generation > 1);
    print_collections("Gen 2 GC Events", full, processes, top, out)?;
    print_collections("GC Events by Time", rows.iter(), processes, top, out)?;
    print_generations(&rows, top, out)
}

fn ms(ns: u64) -> f64 {
    ns as f64 / 1e6
}

fn mb(bytes: u64) -> String {
    decimals(bytes as f64 / 1e6, 3)
}

/// Collections and CPU time of each process.
#[derive(Debug)]
pub(super) struct Heaps(BTreeMap<Pid, (GcHistory, CpuTime)>);

impl Heaps {
    pub(super) fn read(events: impl Iterator<Item = RuntimeEvent>) -> Self {
        let mut heaps: BTreeMap<Pid, (GcHistory, CpuTime)> = BTreeMap::new();
        for event in events {
            let (heap, _) = heaps.entry(event.process).or_default();
            if is_from_runtime(&event) {
                heap.take(&event);
            }
        }
        for (heap, cpu) in heaps.values_mut() {
            *cpu = CpuTime::new(heap);
        }
        Self(heaps)
    }

    /// Adds the CPU time of the samples, if any process has collections.
    ///
    /// If the samples cannot be read, the CPU time stays unknown.
    pub(super) fn charge(
        &mut self,
        samples: impl FnOnce(&mut dyn FnMut(CpuSample)) -> Result<(), ViewError>,
    ) -> Result<(), ViewError> {
        if self.0.values().all(|(heap, _)| heap.rows.is_empty()) {
            return Ok(());
        }
        let read = samples(&mut |sample| {
            if let Some((_, cpu)) = self.0.get_mut(&sample.process) {
                cpu.add(&sample);
            }
        });
        // A percentage of part of the CPU time would be wrong.
        if read.is_err() {
            for (heap, cpu) in self.0.values_mut() {
                *cpu = CpuTime::new(heap);
            }
        }
        read
    }

    pub(super) fn print(
        &self,
        processes: &Processes,
        top: usize,
        out: &mut impl Write,
    ) -> io::Result<()> {
        for (pid, (heap, cpu)) in &self.0 {
            processes.heading(*pid, out)?;
            let cpu = Some(cpu).filter(|cpu| cpu.total() > 0);
            print_heap(heap, cpu, processes, top, out)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
