//! The tables of collections, with PerfView's headings.

use std::io::{self, Write};

use super::{mb, ms};
use crate::dotnet::runtime_value;
use crate::history::gc::{GcRow, HeapStats, INDUCED, INDUCED_NOT_FORCED, MAX_GENERATIONS, Rollup};
use crate::view::events::Processes;
use crate::view::events::columns::{Column, LongTable, decimals, headings, print_row};

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

/// Column of `COLLECTIONS` that needs samples.
const SAMPLES_COLUMN: usize = 7;

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

/// Prints totals of all collections, then of each generation.
pub(super) fn print_rollup(rows: &[GcRow<'_>], out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\nGC Rollup By Generation (times in msec)")?;
    headings(&ROLLUP, out)?;
    let all = Rollup::new(rows.iter());
    print_sum("ALL", all, all, out)?;
    for generation in 0..=2 {
        let selected = rows
            .iter()
            .filter(|row| row.collection.generation == generation);
        print_sum(&generation.to_string(), Rollup::new(selected), all, out)?;
    }
    Ok(())
}

fn print_sum(name: &str, row: Rollup, all: Rollup, out: &mut impl Write) -> io::Result<()> {
    let pause = ms(row.pause_ns);
    let cells = [
        name.to_owned(),
        row.count.to_string(),
        decimals(ms(row.max_pause_ns), 3),
        mb(row.max_peak),
        decimals(row.max_rate, 3),
        decimals(pause, 3),
        decimals(row.allocated as f64 / 1e6, 3),
        // As in PerfView, the allocated bytes are those of all collections.
        decimals(all.allocated as f64 / 1e6 / pause, 3),
        decimals(row.promoted as f64 / row.cpu_ns as f64, 3),
        decimals(pause / row.count as f64, 3),
        row.induced.to_string(),
    ];
    print_row(&ROLLUP, &cells, out)
}

/// Prints pauses and heap sizes of collections.
pub(super) fn print_collections<'a>(
    title: &str,
    rows: impl Iterator<Item = &'a GcRow<'a>>,
    processes: &Processes,
    top: usize,
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
        columns.remove(SAMPLES_COLUMN);
    }
    let mut table = LongTable::new(&columns, top, out)?;
    for row in rows {
        let collection = row.collection;
        let stats = |bytes: fn(HeapStats) -> u64| {
            collection
                .heap_stats
                .map_or_else(none, |stats| mb(bytes(stats)))
        };
        let allocated = |bytes: i64| decimals(bytes as f64 / 1e6, 3);
        let mut cells = vec![
            collection.number.to_string(),
            decimals(processes.ms(collection.pause_start), 3),
            runtime_value("GCStart", "Reason", collection.reason),
            generation(row),
            decimals(ms(collection.suspend_ns), 3),
            decimals(row.pause_ms(), 3),
            decimals(row.pause_percent, 1),
            allocated(row.allocated.small),
            decimals(row.rate(row.allocated.small), 2),
            allocated(row.allocated.all()),
            mb(row.peak),
            stats(|stats| stats.size()),
            decimals(row.ratio(), 2),
            stats(|stats| stats.promoted),
            collection
                .duration_ns
                .map_or_else(none, |ns| decimals(ms(ns), 3)),
        ];
        if let Some(percent) = row.cpu_percent() {
            cells.insert(SAMPLES_COLUMN, decimals(percent, 1));
        }
        table.row(&cells, out)?;
    }
    table.end(out)
}

/// Prints the generations after each collection.
pub(super) fn print_generations(
    rows: &[GcRow<'_>],
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\nGenerations after each GC")?;
    let mut table = LongTable::new(&GENERATIONS, top, out)?;
    for row in rows {
        let Some(stats) = row.collection.heap_stats else {
            continue;
        };
        let totals = &row.collection.totals;
        let mut cells = vec![row.collection.number.to_string(), generation(row)];
        for at in 0..MAX_GENERATIONS {
            let size = stats.sizes[at];
            let survival = totals.survival_percent(at, row.collection.generation);
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
            mb(stats.finalizable),
            stats.pinned.to_string(),
            stats.handles.to_string(),
        ]);
        table.row(&cells, out)?;
    }
    table.end(out)
}

/// Returns the collected generation, with the kind of collection and whether the program induced
/// it.
fn generation(row: &GcRow<'_>) -> String {
    let collection = row.collection;
    let induced = match collection.reason {
        INDUCED => "I",
        INDUCED_NOT_FORCED => "i",
        _ => "",
    };
    let kind = name(&KINDS, collection.kind);
    format!("{}{kind}{induced}", collection.generation)
}

fn name(names: &[&'static str], index: u64) -> &'static str {
    let index = usize::try_from(index).ok();
    index
        .and_then(|index| names.get(index))
        .copied()
        .unwrap_or("?")
}

fn none() -> String {
    "-".to_owned()
}
