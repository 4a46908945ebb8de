//! Tables of CPU time: by method, call path, thread, process and module.

use super::table::{Cell, Table};
use super::{OpenTrace, ViewError, code_rows, report, roles};
use crate::output::summary::{Share, Summary};

/// Part of the samples (0.1 %) that a frame of the call tree has at least.
const MIN_TREE_PART: f64 = 0.001;

/// Returns the user's code, with the libraries it calls.
pub(super) fn own(summary: &Summary) -> Table {
    let shares = &summary.shares;
    let rows = shares.own_methods.iter().map(|row| {
        let module: Cell = (&*row.module).into();
        let name: Cell = (&*row.name).into();
        [
            percent(summary, row.samples),
            row.samples.into(),
            row.pid.into(),
            module,
            name,
        ]
    });
    Table::new(
        "own",
        ["cpu_percent", "samples", "pid", "module", "method"],
        rows,
    )
}

/// Returns the methods: those of the summary, or all of a trace that was read in full.
pub(super) fn methods(summary: &Summary, full: bool) -> Table {
    let rows = code_rows::of(summary, full).into_iter().map(|row| {
        let parts = [row.self_samples, row.total_samples];
        let [own, total] = parts.map(|samples| percent(summary, samples));
        [
            own,
            total,
            row.self_samples.into(),
            report::kind(row.kind).into(),
            row.name.into(),
        ]
    });
    let columns = [
        "self_percent",
        "total_percent",
        "self_samples",
        "kind",
        "method",
    ];
    Table::new("cpu", columns, rows)
}

/// Returns the threads by name.
pub(super) fn threads(summary: &Summary) -> Table {
    let shares = &summary.shares;
    let rows = shares.threads.iter().map(|row| {
        let role = roles::of_thread(&row.name).unwrap_or_default();
        let part = percent(summary, row.samples);
        [
            part,
            row.samples.into(),
            row.pid.into(),
            row.threads.into(),
            role.into(),
            (&*row.name).into(),
        ]
    });
    let columns = ["cpu_percent", "samples", "pid", "threads", "role", "name"];
    Table::new("threads", columns, rows)
}

pub(super) fn processes(summary: &Summary) -> Table {
    let pressure = summary.info.cpu_pressure.as_ref();
    let waits = pressure.map_or(&[][..], |pressure| &pressure.processes);
    let rows = summary.processes.iter().map(|row| {
        let text = |text: &str| Cell::from(text);
        let waits = waits.iter().find(|waits| waits.pid == row.pid);
        [
            percent(summary, row.samples),
            row.cpu_ms.into(),
            row.samples.into(),
            waits.map_or(Cell::None, |waits| waits.waited_ms.into()),
            row.pid.into(),
            text(row.program()),
            text(&row.command_line),
        ]
    });
    let columns = [
        "cpu_percent",
        "cpu_ms",
        "samples",
        "waited_ms",
        "pid",
        "program",
        "command_line",
    ];
    Table::new("processes", columns, rows)
}

pub(super) fn each_thread(summary: &Summary) -> Table {
    let rows = summary.threads.iter().map(|row| {
        let role = roles::of_thread(&row.name).unwrap_or_default();
        [
            percent(summary, row.samples),
            row.samples.into(),
            row.pid.into(),
            row.tid.into(),
            role.into(),
            (&*row.name).into(),
        ]
    });
    let columns = ["cpu_percent", "samples", "pid", "tid", "role", "name"];
    Table::new("threads", columns, rows)
}

/// Returns the `top` rows of the call tree, those of little apart.
///
/// # Errors
/// Returns an error if the stacks of the trace cannot be read.
pub(super) fn call_tree(trace: &OpenTrace, top: usize) -> Result<Table, ViewError> {
    let summary = &trace.summary;
    let tree = trace.call_tree(MIN_TREE_PART)?;
    let rows = tree.rows(top);
    let rows = rows.iter().map(|row| {
        let [total, own] = [row.samples, row.own].map(|samples| percent(summary, samples));
        [
            total,
            own,
            row.samples.into(),
            (row.depth as u64).into(),
            row.frame.into(),
        ]
    });
    let columns = ["total_percent", "self_percent", "samples", "depth", "frame"];
    Ok(Table::new("calltree", columns, rows))
}

pub(super) fn parts(kind: &'static str, summary: &Summary, shares: &[Share]) -> Table {
    let rows = shares.iter().map(|row| {
        let part = percent(summary, row.samples);
        [
            part,
            row.samples.into(),
            row.pid.into(),
            (&*row.name).into(),
        ]
    });
    Table::new(kind, ["cpu_percent", "samples", "pid", "name"], rows)
}

fn percent(summary: &Summary, samples: u64) -> Cell {
    Cell::Number(samples as f64 * 100.0 / summary.samples.max(1) as f64)
}
