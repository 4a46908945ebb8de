//! The tables of compiled methods, with PerfView's headings.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::JitHistory;

use crate::history::jit::{Compilation, Trigger};
use crate::history::sum;
use crate::output::sanitize::{terminal, truncate_with_ellipsis};
use crate::view::count;
use crate::view::events::Processes;
use crate::view::events::columns::{Column, LongTable, decimals, headings, print_row};

/// Maximum lengths of printed names, in bytes.
const MAX_NAME_BYTES: usize = 200;
const MAX_MODULE_BYTES: usize = 60;

const TRIGGERS: [Column; 5] = [
    Column::text("Jitting", "Trigger", 30),
    Column::number("Num", "Compilations", 12),
    Column::number("% of", "Total", 6),
    Column::number("Jit Time", "msec", 11),
    Column::number("% of", "CPU", 6),
];
const MODULES: [Column; 7] = [
    Column::number("JitTime", "msec", 11),
    Column::number("Num", "Compilations", 12),
    Column::number("IL", "Size", 9),
    Column::number("Native", "Size", 10),
    Column::number("Foreground", "msec", 11),
    Column::number("Tiered", "msec", 11),
    Column::text("", "Name", MAX_MODULE_BYTES),
];
const METHODS: [Column; 12] = [
    Column::number("Start", "(msec)", 12),
    Column::number("JitTime", "(msec)", 10),
    Column::number("IL", "Size", 9),
    Column::number("Native", "Size", 10),
    Column::number("JIT Hotcode", "request size", 12),
    Column::number("JIT RO-data", "request size", 12),
    Column::number("Allocated", "size", 9),
    Column::number("JIT", "Flags", 5),
    Column::text("Optimization", "Tier", 26),
    Column::text("", "Trigger", 7),
    Column::text("", "Module", MAX_MODULE_BYTES),
    Column::text("", "Method Name", 0),
];
/// Columns of `METHODS` that need the runtime's events about memory.
const MEMORY_COLUMNS: std::ops::Range<usize> = 4..8;

/// Totals of several compilations.
#[derive(Clone, Copy, Debug, Default)]
struct Total {
    count: usize,
    ns: u64,
    il_bytes: u64,
    native_bytes: u64,
    foreground_ns: u64,
}

impl Total {
    fn add(&mut self, method: &Compilation) {
        self.count += 1;
        self.ns = sum([self.ns, method.ns]);
        self.il_bytes = sum([self.il_bytes, method.il_bytes]);
        self.native_bytes = sum([self.native_bytes, method.native_bytes]);
        if method.trigger == Trigger::Foreground {
            self.foreground_ns = sum([self.foreground_ns, method.ns]);
        }
    }
}

pub(super) fn print(
    history: &JitHistory,
    processes: &Processes,
    cpu_ms: Option<f64>,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut all = Total::default();
    let mut triggers: BTreeMap<Trigger, Total> = BTreeMap::new();
    let mut tiers: BTreeMap<&str, Total> = BTreeMap::new();
    let mut modules: BTreeMap<&str, Total> = BTreeMap::new();
    for method in &history.methods {
        all.add(method);
        triggers.entry(method.trigger).or_default().add(method);
        tiers.entry(method.tier).or_default().add(method);
        let module = history.module(method);
        modules.entry(module).or_default().add(method);
    }
    writeln!(
        out,
        "{} compiled in {} ms: {} bytes of IL, {} of native code",
        count(all.count as u64, "method", "methods"),
        ms(all.ns),
        all.il_bytes,
        all.native_bytes
    )?;
    writeln!(out, "\nSummary of jitting time by trigger")?;
    headings(&TRIGGERS, out)?;
    let triggers = triggers.into_iter();
    let triggers = triggers.map(|(trigger, total)| (trigger.long(), total));
    for (name, total) in [("TOTAL", all)].into_iter().chain(triggers).chain(tiers) {
        let cpu_percent = cpu_ms.map_or(f64::NAN, |cpu_ms| total.ns as f64 / 1e4 / cpu_ms);
        let cells = [
            name.to_owned(),
            total.count.to_string(),
            decimals(100.0 * total.count as f64 / all.count as f64, 1),
            ms(total.ns),
            decimals(cpu_percent, 1),
        ];
        print_row(&TRIGGERS, &cells, out)?;
    }
    writeln!(out, "\nSummary of jitting time by module")?;
    headings(&MODULES, out)?;
    let mut modules: Vec<_> = modules.into_iter().collect();
    modules.sort_by_key(|(_, total)| std::cmp::Reverse(total.ns));
    for (name, total) in [("TOTAL", all)].into_iter().chain(modules) {
        let cells = [
            ms(total.ns),
            total.count.to_string(),
            total.il_bytes.to_string(),
            total.native_bytes.to_string(),
            ms(total.foreground_ns),
            ms(total.ns.saturating_sub(total.foreground_ns)),
            terminal(&truncate_with_ellipsis(name, MAX_MODULE_BYTES)).into_owned(),
        ];
        print_row(&MODULES, &cells, out)?;
    }
    print_methods(history, processes, top, out)
}

fn print_methods(
    history: &JitHistory,
    processes: &Processes,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    writeln!(out, "\nIndividual JIT Events")?;
    let has_memory = history.methods.iter().any(|method| method.memory.is_some());
    let mut columns = METHODS.to_vec();
    if !has_memory {
        columns.drain(MEMORY_COLUMNS);
    }
    let mut table = LongTable::new(&columns, top, out)?;
    for method in &history.methods {
        let mut cells = vec![
            decimals(processes.ms(method.start), 3),
            ms(method.ns),
            method.il_bytes.to_string(),
            method.native_bytes.to_string(),
        ];
        if has_memory {
            let memory = method.memory.map_or([None; 4], |memory| {
                [
                    memory.hot_code,
                    memory.read_only,
                    memory.allocated,
                    memory.flags,
                ]
                .map(Some)
            });
            let cell = |value: Option<u64>| {
                value.map_or_else(|| "-".to_owned(), |value| value.to_string())
            };
            cells.extend(memory.map(cell));
        }
        let module = history.module(method);
        cells.extend([
            method.tier.to_owned(),
            method.trigger.short().to_owned(),
            terminal(&truncate_with_ellipsis(module, MAX_MODULE_BYTES)).into_owned(),
            terminal(&truncate_with_ellipsis(&method.name, MAX_NAME_BYTES)).into_owned(),
        ]);
        table.row(&cells, out)?;
    }
    table.end(out)
}

fn ms(ns: u64) -> String {
    decimals(ns as f64 / 1e6, 3)
}
