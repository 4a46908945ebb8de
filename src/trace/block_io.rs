//! Requests to block devices, by device and process.

use serde::{Deserialize, Serialize};

/// Maximum number of rows.
pub(crate) const MAX_IO_ROWS: usize = 200;

/// Requests to block devices that ended during a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockIo {
    /// The rows of all processes of the machine first, then those of the target, each with most time first: at
    /// most 200.
    pub rows: Vec<BlockIoRow>,
    /// Requests whose start or end was not seen: it was before or after the capture, or the kernel did not
    /// record it.
    pub incomplete: u64,
    /// Requests that could not be counted: their records were malformed, or there were too many rows.
    pub omitted: u64,
    /// Requests of processes of the target that only the rows of all processes have: there were too many rows.
    pub unlisted: u64,
    /// Records that the kernel dropped because a ring buffer was full: up to four of a request.
    pub lost_records: u64,
}

/// Requests of one kind to a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BlockIoRow {
    /// Name of the device, or its numbers.
    pub device: String,
    /// Process that issued the requests; `None` for all processes of the machine.
    pub pid: Option<i32>,
    /// Name of the process. Untrusted.
    pub process: String,
    /// `read`, `write`, `discard`, `flush`, or `other` for a command of a driver.
    pub operation: String,
    /// Number of requests.
    pub requests: u64,
    /// Number of requests that failed.
    pub errors: u64,
    /// Bytes.
    pub bytes: u64,
    /// Time of all requests from their issue to their end, in milliseconds.
    pub total_ms: f64,
    /// Time that half of the requests took at most, to 12.5 %.
    pub p50_ms: f64,
    /// Time that 99 % of the requests took at most, to 12.5 %.
    pub p99_ms: f64,
    /// Time that the longest took.
    pub max_ms: f64,
}

impl BlockIo {
    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(crate) fn truncate(&mut self) {
        self.rows.truncate(MAX_IO_ROWS);
    }

    /// Keeps the rows of these processes only, by id and name. A row of all processes is not one of them.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(i32, &str) -> bool) {
        let is_kept = |row: &BlockIoRow| row.pid.is_some_and(|pid| is_kept(pid, &row.process));
        self.rows.retain(is_kept);
    }
}
