//! Requests to block devices.

use super::count;
use super::table::{Cell, Table};
use crate::output::sanitize::terminal;
use crate::output::summary::Summary;
use crate::trace::BlockIoRow;

/// Columns that a terminal may have no room for.
pub(super) const OPTIONAL_COLUMNS: [&str; 2] = ["total_ms", "max_us"];
/// Number of rows in the line about disks.
const MAX_SHORT: usize = 3;

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
            "the trace has no requests to disks: a capture with -io, by root, follows them (one whose perfcollect \
             was killed has none)"
                .to_owned(),
        );
    };
    let mut lacks = Vec::new();
    let missing = block_io.omitted.saturating_add(block_io.incomplete);
    if missing > 0 {
        let requests = count(missing, "request is", "requests are");
        lacks.push(format!(
            "{requests} not in the table: the start or end was not seen, or there are too many rows"
        ));
    }
    if block_io.lost_records > 0 {
        let records = count(block_io.lost_records, "record", "records");
        lacks.push(format!(
            "the kernel dropped {records} of requests, up to four of each: more may be missing"
        ));
    }
    if block_io.unlisted > 0 {
        let requests = count(block_io.unlisted, "request is", "requests are");
        lacks.push(format!(
            "{requests} only in the rows of all processes: there are too many processes"
        ));
    }
    if lacks.is_empty() && block_io.rows.is_empty() {
        return Some("no request to a disk ended".to_owned());
    }
    (!lacks.is_empty()).then(|| lacks.join("; "))
}

/// Returns the requests of the target to each device in a line; those of all processes if it is the whole machine,
/// or has none. Returns `None` if none were followed.
pub(super) fn in_short(summary: &Summary) -> Option<String> {
    let block_io = summary.info.block_io.as_ref()?;
    let is_of_target = |row: &&BlockIoRow| row.pid.is_some() && !summary.info.system_wide;
    let has_own = block_io.rows.iter().any(|row| is_of_target(&row));
    let rows = block_io.rows.iter();
    let rows = rows.filter(|row| match has_own {
        true => is_of_target(row),
        false => row.pid.is_none(),
    });
    let rows = rows.map(|row| {
        let (one, many) = match &*row.operation {
            "flush" => ("flush", "flushes".to_owned()),
            "other" => ("other request", "other requests".to_owned()),
            operation => (operation, format!("{operation}s")),
        };
        let requests = count(row.requests, &terminal(one), &terminal(&many));
        let bytes = match row.bytes {
            0 => String::new(),
            bytes => format!(" of {:.1} MB", bytes as f64 / 1e6),
        };
        let process = match has_own {
            true => format!(" by {}", terminal(&row.process)),
            false => String::new(),
        };
        format!(
            "{} {requests}{bytes}{process}, median {:.2} ms, 99 % below {:.2} ms",
            terminal(&row.device),
            row.p50_ms,
            row.p99_ms
        )
    });
    let rows: Vec<String> = rows.take(MAX_SHORT).collect();
    let whose = match summary.info.system_wide || has_own {
        true => "disks",
        false => "disks, all processes",
    };
    (!rows.is_empty()).then(|| format!("{whose}: {}", rows.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{BlockIo, CaptureInfo, Trace};

    fn row(pid: Option<i32>, operation: &str, requests: u64) -> BlockIoRow {
        BlockIoRow {
            device: "vda\u{1b}".into(),
            pid,
            process: "db".into(),
            operation: operation.into(),
            requests,
            bytes: requests / 2,
            ..BlockIoRow::default()
        }
    }

    fn summary(system_wide: bool, rows: Vec<BlockIoRow>) -> Summary {
        let block_io = BlockIo {
            rows,
            ..BlockIo::default()
        };
        Summary::new(&Trace {
            info: CaptureInfo {
                system_wide,
                block_io: Some(block_io),
                ..CaptureInfo::default()
            },
            ..Trace::default()
        })
    }

    #[test]
    fn the_line_is_about_the_target() {
        let all = row(None, "write\u{1b}[31m", 4_000_000);
        let own = row(Some(7), "flush", 1);
        let short = |is_whole, rows| in_short(&summary(is_whole, rows)).unwrap();
        let times = "median 0.00 ms, 99 % below 0.00 ms";
        let of_target = short(false, vec![all.clone(), own.clone()]);
        assert_eq!(
            of_target,
            format!("disks: vda\\u{{1b}} 1 flush by db, {times}")
        );
        let whole = short(true, vec![all.clone(), own]);
        assert!(whole.starts_with("disks: vda"), "{whole}");
        assert!(
            whole.contains(" 4000000 write\\u{1b}[31ms of 2.0 MB, "),
            "{whole}"
        );
        let others = short(false, vec![all]);
        assert!(others.starts_with("disks, all processes: vda"), "{others}");
    }

    #[test]
    fn the_last_line_says_what_is_missing() {
        let mut summary = summary(true, vec![row(None, "read", 2)]);
        assert_eq!(omitted(&summary), None);
        let block_io = summary.info.block_io.as_mut().unwrap();
        (
            block_io.incomplete,
            block_io.unlisted,
            block_io.lost_records,
        ) = (1, 2, 3);
        let text = omitted(&summary).unwrap();
        assert!(
            text.starts_with("1 request is not in the table: "),
            "{text}"
        );
        assert!(
            text.contains("; the kernel dropped 3 records of requests, "),
            "{text}"
        );
        assert!(
            text.contains("; 2 requests are only in the rows of all"),
            "{text}"
        );
    }
}
