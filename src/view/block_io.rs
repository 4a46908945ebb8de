//! Requests to block devices.

use super::count;
use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;

/// Returns the requests by device, process and operation.
pub(super) fn table(summary: &Summary) -> Table {
    let block_io = summary.info.block_io.as_ref();
    let rows = block_io.into_iter().flat_map(|block_io| &block_io.rows);
    let rows = rows.map(|row| {
        let process = match row.pid {
            Some(_) => &*row.process,
            None => "(all processes)",
        };
        [
            (&*row.device).into(),
            row.pid.map_or(Cell::None, Cell::from),
            process.into(),
            (&*row.operation).into(),
            row.requests.into(),
            row.errors.into(),
            Cell::Number(row.bytes as f64 / 1e6),
            Cell::Number(row.total_ms),
            Cell::Number(row.p50_ms * 1e3),
            Cell::Number(row.p99_ms * 1e3),
            Cell::Number(row.max_ms * 1e3),
        ]
    });
    let columns = [
        "device",
        "pid",
        "process",
        "operation",
        "requests",
        "errors",
        "mb",
        "total_ms",
        "p50_us",
        "p99_us",
        "max_us",
    ];
    Table::new("io", columns, rows)
}

/// Returns what the table lacks, or why there is none.
pub(super) fn omitted(summary: &Summary) -> Option<String> {
    let Some(block_io) = &summary.info.block_io else {
        return Some(
            "requests to disks were not followed: a capture with -io, by root, follows them; they are of the whole \
             capture, so that -from and -to leave them out"
                .to_owned(),
        );
    };
    match block_io.omitted.saturating_add(block_io.incomplete) {
        0 if block_io.rows.is_empty() => Some("no request to a disk ended".to_owned()),
        0 => None,
        missing => Some(format!(
            "{missing} requests are not in the table: their start or end was not seen, or there are too many rows"
        )),
    }
}

/// Returns the requests to each device in a line; `None` if none were followed.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let block_io = summary.info.block_io.as_ref()?;
    let devices = block_io.rows.iter().filter(|row| row.pid.is_none());
    let devices = devices.map(|row| {
        let requests = count(row.requests, &row.operation, &format!("{}s", row.operation));
        format!(
            "{} {requests} of {:.1} MB, median {:.2} ms, 99 % below {:.2} ms",
            terminal(&row.device),
            row.bytes as f64 / 1e6,
            row.p50_ms,
            row.p99_ms
        )
    });
    let devices: Vec<String> = devices.take(3).collect();
    (!devices.is_empty()).then(|| format!("disks: {}", devices.join("; ")))
}
