//! The tables of collections, with PerfView's headings.

use std::io::{self, Write};

use super::generations::MAX_GENERATIONS;
use super::rollup::{INDUCED, INDUCED_NOT_FORCED, Rollup};
use super::row::GcRow;
use super::{mb, ms};
use crate::dotnet::runtime_value;
use crate::view::events::Processes;
use crate::view::events::columns::{Column, decimals, headings, row};

const KINDS: [&str; 3] = ["N", "B", "F"];

const ROLLUP: [Column; 11] = [
    Column::number("", "Gen", 4),
    Column::number("", "Count", 7),
    Column::number("Max", "Pause", 10),
    Column::number("Max", "Peak MB", 10),
    Column::number("Max Alloc", "MB/sec", 10),
    Column::number("Total", "Pause", 11),
    Column::number("Total", "Alloc MB", 12),
    Column::number("Alloc MB/", "MSec GC", 10),
    Column::number("Survived MB/", "MSec GC", 12),
    Column::number("Mean", "Pause", 10),
    Column::number("", "Induced", 7),
];

const COLLECTIONS: [Column; 16] = [
    Column::number("GC", "Index", 6),
    Column::number("Pause", "Start", 12),
    Column::text("Trigger", "Reason", 21),
    Column::number("", "Gen", 4),
    Column::number("Suspend", "MSec", 10),
    Column::number("Pause", "MSec", 10),
    Column::number("% Pause", "Time", 7),
    Column::number("%", "GC", 6),
    Column::number("Gen0", "Alloc MB", 10),
    Column::number("Gen0 Alloc", "MB/sec", 10),
    Column::number("All", "Alloc MB", 10),
    Column::number("Peak", "MB", 10),
    Column::number("After", "MB", 10),
    Column::number("Peak/", "After", 7),
    Column::number("Promoted", "MB", 10),
    Column::number("Duration", "MSec", 11),
];

/// Of them, the one that is there where there are samples.
const OF_SAMPLES: usize = 7;

const GENERATIONS: [Column; 20] = [
    Column::number("GC", "Index", 6),
    Column::number("", "Gen", 4),
    Column::number("Gen0", "MB", 9),
    Column::number("Gen0", "Surv %", 6),
    Column::number("Gen0", "Frag %", 6),
    Column::number("Gen1", "MB", 9),
    Column::number("Gen1", "Surv %", 6),
    Column::number("Gen1", "Frag %", 6),
    Column::number("Gen2", "MB", 9),
    Column::number("Gen2", "Surv %", 6),
    Column::number("Gen2", "Frag %", 6),
    Column::number("LOH", "MB", 9),
    Column::number("LOH", "Surv %", 6),
    Column::number("LOH", "Frag %", 6),
    Column::number("POH", "MB", 9),
    Column::number("POH", "Surv %", 6),
    Column::number("POH", "Frag %", 6),
    Column::number("Finalizable", "Surv MB", 11),
    Column::number("Pinned", "Obj", 7),
    Column::number("", "Handles", 7),
];

/// Prints collections summed up: all of them, then those of each generation.
pub(super) fn print_rollup(rows: &[GcRow<'_>], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nGC Rollup By Generation (times in msec)")?;
    headings(&ROLLUP, out)?;
    let all = Rollup::of(rows.iter());
    print_sum("ALL", all, all, out)?;
    for generation in 0..=2 {
        let of = rows
            .iter()
            .filter(|row| row.collection.generation == generation);
        print_sum(&generation.to_string(), Rollup::of(of), all, out)?;
    }
    Ok(())
}

fn print_sum(name: &str, of: Rollup, all: Rollup, out: &mut impl Write) -> io::Result<()> {
    let pause = ms(of.pause_ns);
    let cells = [
        name.to_owned(),
        of.count.to_string(),
        decimals(ms(of.max_pause_ns), 3),
        mb(of.max_peak),
        decimals(of.max_rate, 3),
        decimals(pause, 3),
        decimals(of.allocated as f64 / 1e6, 3),
        // As in PerfView, what is allocated is that of all.
        decimals(all.allocated as f64 / 1e6 / pause, 3),
        decimals(of.promoted as f64 / of.cpu_ns as f64, 3),
        decimals(pause / of.count as f64, 3),
        of.induced.to_string(),
    ];
    row(&ROLLUP, &cells, out)
}

/// Prints pauses and sizes of collections.
pub(super) fn print_collections<'a>(
    title: &str,
    rows: impl Iterator<Item = &'a GcRow<'a>>,
    processes: &Processes,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\n{title}")?;
    let mut rows = rows.peekable();
    if rows.peek().is_none() {
        return writeln!(out, "none");
    }
    let has_samples = rows.peek().is_some_and(|row| row.cpu.is_some());
    let mut columns = COLLECTIONS.to_vec();
    if !has_samples {
        columns.remove(OF_SAMPLES);
    }
    headings(&columns, out)?;
    for of in rows {
        let collection = of.collection;
        let left = |bytes: fn(super::generations::HeapStats) -> u64| {
            collection.left.map_or_else(none, |left| mb(bytes(left)))
        };
        let allocated = |bytes: i64| decimals(bytes as f64 / 1e6, 3);
        let mut cells = vec![
            collection.number.to_string(),
            decimals(processes.ms(collection.pause_start), 3),
            runtime_value("GCStart", "Reason", collection.reason),
            generation(of),
            decimals(ms(collection.suspend_ns), 3),
            decimals(of.pause_ms(), 3),
            decimals(of.pause_percent, 1),
            allocated(of.allocated.small),
            decimals(of.rate(of.allocated.small), 2),
            allocated(of.allocated.all()),
            mb(of.peak),
            left(|left| left.size()),
            decimals(of.ratio(), 2),
            left(|left| left.promoted),
            collection
                .duration_ns
                .map_or_else(none, |ns| decimals(ms(ns), 3)),
        ];
        if let Some(percent) = of.cpu_percent() {
            cells.insert(OF_SAMPLES, decimals(percent, 1));
        }
        row(&columns, &cells, out)?;
    }
    Ok(())
}

/// Prints what is in the generations after collections.
pub(super) fn print_generations(rows: &[GcRow<'_>], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nGenerations after each GC")?;
    headings(&GENERATIONS, out)?;
    for of in rows {
        let Some(left) = of.collection.left else {
            continue;
        };
        let totals = &of.collection.totals;
        let mut cells = vec![of.collection.number.to_string(), generation(of)];
        for at in 0..MAX_GENERATIONS {
            let size = left.sizes[at];
            let survival = totals.survival_percent(at, of.collection.generation);
            let free = totals
                .free(at)
                .map(|free| free as f64 * 100.0 / size as f64);
            cells.extend([
                mb(size),
                survival.map_or_else(none, |percent| percent.to_string()),
                free.map_or_else(none, |percent| decimals(percent, 2)),
            ]);
        }
        cells.extend([
            mb(left.finalizable),
            left.pinned.to_string(),
            left.handles.to_string(),
        ]);
        row(&GENERATIONS, &cells, out)?;
    }
    Ok(())
}

/// Which generation was collected, how, and whether the program asked for it.
fn generation(of: &GcRow<'_>) -> String {
    let collection = of.collection;
    let induced = match collection.reason {
        INDUCED => "I",
        INDUCED_NOT_FORCED => "i",
        _ => "",
    };
    let kind = name(&KINDS, collection.kind);
    format!("{}{kind}{induced}", collection.generation)
}

fn name(names: &[&'static str], of: u64) -> &'static str {
    let of = usize::try_from(of).ok();
    of.and_then(|of| names.get(of)).copied().unwrap_or("?")
}

fn none() -> String {
    "-".to_owned()
}
