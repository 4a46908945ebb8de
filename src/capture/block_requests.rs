//! Counts requests to block devices from what the kernel reports about each.
//!
//! A request is known by its device and its first sector. A flush has no sector: the kernel reports 0 at its
//! start and the largest number at its end, so that only its kind identifies it. A write that must be on the
//! disk, as each of a journal, is a flush and a write for the kernel: both have rows. The write then ends
//! twice, the second time with no bytes.

use rustc_hash::FxHashMap;

use super::latencies::Latencies;
use crate::trace::{BlockIo, BlockIoRow, MAX_IO_ROWS, Nanos, Pid};

/// Maximum number of requests that have not ended.
const MAX_PENDING: usize = 1 << 16;
/// Maximum number of earlier ones of them to the same place.
const MAX_SAME: usize = 64;
/// Maximum number of rows of processes while capturing, 4 KB each, and of all processes.
const MAX_ROWS: usize = 1024;

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operation {
    Read,
    Write,
    Discard,
    Flush,
    /// A command of the driver.
    Other,
}

impl Operation {
    /// Reads the letters of the kernel, such as `WS` or `FWM` (blk_fill_rwbs).
    fn of(letters: &[u8]) -> Self {
        let has = |letter| letters.contains(&letter);
        match () {
            () if has(b'R') => Self::Read,
            () if has(b'W') => Self::Write,
            () if has(b'D') => Self::Discard,
            () if has(b'F') => Self::Flush,
            () => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
            Self::Other => "other",
        }
    }

    /// Returns whether such requests have a first sector.
    fn has_sector(self) -> bool {
        !matches!(self, Self::Flush | Self::Other)
    }
}

/// A request as the kernel reports it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reported<'a> {
    /// Device (`dev_t` of the kernel).
    pub(super) device: u32,
    /// First sector, which has no meaning for a flush.
    pub(super) sector: u64,
    /// Number of bytes.
    pub(super) bytes: u64,
    /// Its kind in letters.
    pub(super) letters: &'a [u8],
}

/// The device and the first sector of a request that has not ended, and the operation of one without a sector.
type Place = (u32, Option<u64>, Option<Operation>);

impl Reported<'_> {
    fn operation(&self) -> Operation {
        let letters = self.letters.split(|byte| *byte == 0).next();
        Operation::of(letters.unwrap_or_default())
    }

    fn place(&self) -> Place {
        let operation = self.operation();
        match operation.has_sector() {
            true => (self.device, Some(self.sector), None),
            false => (self.device, None, Some(operation)),
        }
    }

    /// Returns whether the kernel flushes the cache of the device before.
    fn starts_with_flush(&self) -> bool {
        self.letters.first() == Some(&b'F')
    }
}

/// The process of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    pub(super) pid: Pid,
    pub(super) is_of_target: bool,
}

/// A request that has been issued.
struct Request {
    time: Nanos,
    bytes: u64,
    owner: Owner,
    operation: Operation,
    /// Whether the device had no room for it: it will be issued again.
    is_queued: bool,
}

#[derive(Default)]
struct Row {
    latencies: Latencies,
    bytes: u64,
    errors: u64,
}

impl Row {
    fn add(&mut self, request: &Request, end: Nanos, has_failed: bool) {
        let ns = end.0.saturating_sub(request.time.0);
        self.latencies.push(ns);
        self.bytes = self.bytes.saturating_add(request.bytes);
        self.errors += u64::from(has_failed);
    }
}

/// The requests of a capture.
#[derive(Default)]
pub(super) struct BlockRequests {
    /// Owners of the requests that have not been issued.
    started: FxHashMap<Place, Owner>,
    /// The last request that was issued to a place and has not ended.
    pending: FxHashMap<Place, Request>,
    /// Earlier ones to the same places: several processes may read a block at the same time, and a device have a
    /// queue of each CPU for flushes. The last one is taken for the first to end, so that one whose end was not
    /// seen does not lengthen those after it.
    earlier: FxHashMap<Place, Vec<Request>>,
    totals: FxHashMap<(u32, Operation), Row>,
    rows: FxHashMap<(u32, Pid, Operation), Row>,
    incomplete: u64,
    omitted: u64,
    unlisted: u64,
}

impl BlockRequests {
    /// A process starts a request.
    pub(super) fn started(&mut self, request: &Reported<'_>, owner: Owner) {
        if self.started.len() >= MAX_PENDING {
            // A request without an owner here is that of the process that issues it.
            self.started.clear();
        }
        if request.starts_with_flush() {
            let flush = (request.device, None, Some(Operation::Flush));
            self.started.insert(flush, owner);
        }
        // One without data is no more than the flush.
        if request.bytes > 0 {
            self.started.insert(request.place(), owner);
        }
    }

    /// A request goes to the device. `issuer` is the process that issues it.
    pub(super) fn issued(&mut self, time: Nanos, request: &Reported<'_>, issuer: Owner) {
        let place = request.place();
        if let Some(again) = self.queued_at(&place, true) {
            again.is_queued = false;
            return;
        }
        let owner = self.started.remove(&place).unwrap_or(issuer);
        let issued = Request {
            time,
            bytes: request.bytes,
            owner,
            operation: request.operation(),
            is_queued: false,
        };
        if self.pending.len() >= MAX_PENDING {
            self.incomplete += self.pending_count();
            self.pending.clear();
            self.earlier.clear();
        }
        if let Some(earlier) = self.pending.insert(place, issued) {
            let all = self.earlier.entry(place).or_default();
            if all.len() >= MAX_SAME {
                self.incomplete += 1;
                return;
            }
            all.push(earlier);
        }
    }

    /// Returns the number of requests that have not ended.
    fn pending_count(&self) -> u64 {
        let earlier = self.earlier.values().map(Vec::len).sum::<usize>();
        (self.pending.len() + earlier) as u64
    }

    /// The device had no room for a request.
    pub(super) fn requeued(&mut self, request: &Reported<'_>) {
        if let Some(request) = self.queued_at(&request.place(), false) {
            request.is_queued = true;
        }
    }

    /// Returns the request at a place that waits, or does not wait, to be issued again.
    fn queued_at(&mut self, place: &Place, is_queued: bool) -> Option<&mut Request> {
        let earlier = self.earlier.get_mut(place).into_iter().flatten().rev();
        let mut all = self.pending.get_mut(place).into_iter().chain(earlier);
        all.find(|request| request.is_queued == is_queued)
    }

    /// Takes a request that has ended.
    fn take(&mut self, request: &Reported<'_>) -> Option<Request> {
        let place = request.place();
        let pending = self.pending.get(&place)?;
        // The second end of a write has no bytes.
        if request.bytes == 0 && pending.bytes > 0 {
            return None;
        }
        let taken = self.pending.remove(&place);
        if let Some(earlier) = self.earlier.get_mut(&place) {
            if let Some(last) = earlier.pop() {
                self.pending.insert(place, last);
            }
            if earlier.is_empty() {
                self.earlier.remove(&place);
            }
        }
        taken
    }

    /// A request, or a part of it, has ended.
    pub(super) fn completed(&mut self, time: Nanos, request: &Reported<'_>, has_failed: bool) {
        let Some(pending) = self.take(request) else {
            // Nor has that of one that was no more than its flush.
            let is_second = request.bytes == 0 && request.operation().has_sector();
            self.incomplete += u64::from(!is_second);
            return;
        };
        let (device, operation) = (request.device, pending.operation);
        let total = (device, operation);
        if self.totals.len() >= MAX_ROWS && !self.totals.contains_key(&total) {
            self.omitted += 1;
            return;
        }
        let total = self.totals.entry(total).or_default();
        total.add(&pending, time, has_failed);
        if pending.owner.is_of_target {
            let key = (device, pending.owner.pid, operation);
            if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
                self.drop_smallest();
            }
            let row = self.rows.entry(key).or_default();
            row.add(&pending, time, has_failed);
        }
    }

    /// Drops the half of the rows of processes with least time: a process may start to work at any time.
    fn drop_smallest(&mut self) {
        let times = self.rows.iter();
        let mut times: Vec<_> = times
            .map(|(key, row)| (row.latencies.total_ns, *key))
            .collect();
        times.sort_unstable();
        for (_, key) in times.drain(..times.len() / 2) {
            let dropped = self.rows.remove(&key);
            self.unlisted += dropped.map_or(0, |row| row.latencies.count);
        }
    }

    /// Records were lost: the ends of the requests that have not ended may be among them.
    pub(super) fn forget_pending(&mut self) {
        self.started.clear();
        self.pending.clear();
        self.earlier.clear();
    }

    /// Counts malformed records.
    pub(super) fn omit(&mut self, records: u64) {
        self.omitted += records;
    }

    /// Returns the rows. `lost_records` is the number of records that the kernel dropped.
    pub(super) fn finish(
        self,
        lost_records: u64,
        device_name: impl Fn(u32) -> String,
        process_name: impl Fn(Pid) -> String,
    ) -> BlockIo {
        let incomplete = self.incomplete + self.pending_count();
        let totals = self.totals.into_iter();
        let totals = totals.map(|((device, operation), row)| (device, None, operation, row));
        let rows = self.rows.into_iter();
        let rows = rows.map(|((device, pid, operation), row)| (device, Some(pid), operation, row));
        let mut rows: Vec<_> = totals.chain(rows).collect();
        rows.sort_by_key(|(device, pid, operation, row)| {
            let time = std::cmp::Reverse(row.latencies.total_ns);
            (pid.is_some(), time, *device, *pid, *operation)
        });
        let (mut omitted, mut unlisted) = (self.omitted, self.unlisted);
        for (_, pid, _, row) in rows.drain(MAX_IO_ROWS.min(rows.len())..) {
            // What a process did is in the row of all processes, too.
            let beyond = match pid {
                Some(_) => &mut unlisted,
                None => &mut omitted,
            };
            *beyond += row.latencies.count;
        }
        let rows = rows.into_iter().map(|(device, pid, operation, row)| {
            let Row {
                latencies,
                bytes,
                errors,
            } = row;
            let ms = |ns: u64| ns as f64 / 1e6;
            BlockIoRow {
                device: device_name(device),
                pid: pid.map(|pid| pid.0),
                process: pid.map_or_else(String::new, &process_name),
                operation: operation.name().into(),
                requests: latencies.count,
                errors,
                bytes,
                total_ms: ms(latencies.total_ns),
                p50_ms: ms(latencies.quantile(0.5)),
                p99_ms: ms(latencies.quantile(0.99)),
                max_ms: ms(latencies.max_ns),
            }
        });
        BlockIo {
            rows: rows.collect(),
            incomplete,
            omitted,
            unlisted,
            lost_records,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: u32 = 7 << 20;

    fn reported(letters: &str, sector: u64, bytes: u64) -> Reported<'_> {
        Reported {
            device: DISK,
            sector,
            bytes,
            letters: letters.as_bytes(),
        }
    }

    fn owner(pid: i32) -> Owner {
        Owner {
            pid: Pid(pid),
            is_of_target: true,
        }
    }

    fn finish(requests: BlockRequests) -> BlockIo {
        requests.finish(0, |device| device.to_string(), |pid| format!("p{pid}"))
    }

    /// The rows of processes: process, operation, requests, bytes and milliseconds.
    fn rows(block_io: &BlockIo) -> Vec<(i32, &str, u64, u64, f64)> {
        let rows = block_io.rows.iter();
        let rows = rows.filter_map(|row| {
            let operation = &*row.operation;
            Some((row.pid?, operation, row.requests, row.bytes, row.total_ms))
        });
        rows.collect()
    }

    const MS: u64 = 1_000_000;

    #[test]
    fn a_write_of_a_journal_is_a_flush_and_a_write() {
        let mut requests = BlockRequests::default();
        let write = reported("FWFS\0", 800, 4096);
        requests.started(&write, owner(5));
        requests.issued(Nanos(0), &reported("FF", 0, 0), owner(9));
        requests.completed(Nanos(2 * MS), &reported("FF", u64::MAX, 0), false);
        requests.issued(Nanos(2 * MS), &write, owner(9));
        requests.completed(Nanos(3 * MS), &write, false);
        // The next sector has a request, which the second end of the first one does not end.
        let next = reported("WS", 808, 4096);
        requests.issued(Nanos(3 * MS), &next, owner(6));
        requests.completed(Nanos(3 * MS), &reported("FWFS", 808, 0), false);
        requests.completed(Nanos(7 * MS), &next, false);
        // An fsync without data.
        requests.started(&reported("FWS", 0, 0), owner(7));
        requests.issued(Nanos(7 * MS), &reported("FF", 0, 0), owner(9));
        requests.completed(Nanos(8 * MS), &reported("FF", u64::MAX, 0), false);
        requests.completed(Nanos(8 * MS), &reported("WS", 0, 0), false);
        let block_io = finish(requests);
        assert_eq!(
            rows(&block_io),
            [
                (6, "write", 1, 4096, 4.0),
                (5, "flush", 1, 0, 2.0),
                (5, "write", 1, 4096, 1.0),
                (7, "flush", 1, 0, 1.0),
            ]
        );
        assert_eq!((block_io.incomplete, block_io.omitted), (0, 0));
    }

    #[test]
    fn a_request_that_the_device_had_no_room_for_keeps_owner_and_time() {
        let mut requests = BlockRequests::default();
        for (read, end) in [("R", 64), ("FF", u64::MAX)] {
            let bytes = if read == "R" { 4096 } else { 0 };
            let read = reported(read, 64, bytes);
            requests.issued(Nanos(0), &read, owner(5));
            requests.requeued(&read);
            requests.issued(Nanos(MS), &read, owner(9));
            let read = Reported {
                sector: end,
                ..read
            };
            requests.completed(Nanos(3 * MS), &read, false);
        }
        let block_io = finish(requests);
        assert_eq!(
            rows(&block_io),
            [(5, "read", 1, 4096, 3.0), (5, "flush", 1, 0, 3.0)]
        );
        assert_eq!(block_io.incomplete, 0);
    }

    #[test]
    fn a_process_that_comes_late_has_a_row_and_all_requests_are_in_the_totals() {
        let mut requests = BlockRequests::default();
        let mut read = |pid, ms: u64| {
            let read = reported("R", 64, 512);
            requests.issued(Nanos(0), &read, owner(pid));
            requests.completed(Nanos(ms * MS), &read, false);
        };
        let all = 2 * MAX_ROWS as i32;
        (1..=all).for_each(|pid| read(pid, 1));
        (0..3).for_each(|_| read(all + 1, 9));
        let block_io = finish(requests);
        let total = block_io.rows.iter().find(|row| row.pid.is_none()).unwrap();
        assert_eq!(total.requests, all as u64 + 3);
        assert_eq!(rows(&block_io)[0], (all + 1, "read", 3, 1536, 27.0));
        let listed: u64 = rows(&block_io).iter().map(|row| row.2).sum();
        assert_eq!(listed + block_io.unlisted, total.requests);
        assert_eq!(block_io.omitted, 0);
    }

    #[test]
    fn requests_without_a_start_or_an_end_are_incomplete() {
        let mut requests = BlockRequests::default();
        requests.completed(Nanos(1), &reported("R", 8, 512), false);
        requests.completed(Nanos(1), &reported("FF", u64::MAX, 0), false);
        requests.issued(Nanos(2), &reported("R", 8, 512), owner(5));
        requests.issued(Nanos(3), &reported("R", 8, 512), owner(5));
        requests.issued(Nanos(4), &reported("FF", 0, 0), owner(5));
        assert_eq!(finish(requests).incomplete, 5);
    }

    #[test]
    fn a_request_whose_end_was_lost_is_not_that_of_another() {
        let mut requests = BlockRequests::default();
        let read = reported("R", 8, 512);
        requests.issued(Nanos(0), &read, owner(5));
        requests.forget_pending();
        requests.completed(Nanos(900 * MS), &read, false);
        let block_io = finish(requests);
        assert_eq!((block_io.rows.len(), block_io.incomplete), (0, 1));
    }

    #[test]
    fn several_processes_read_a_block_at_the_same_time() {
        let mut requests = BlockRequests::default();
        let read = reported("R", 8, 512);
        (1..4).for_each(|pid| requests.issued(Nanos(0), &read, owner(pid)));
        (1..4).for_each(|ms| requests.completed(Nanos(ms * MS), &read, false));
        let block_io = finish(requests);
        assert_eq!(rows(&block_io).len(), 3);
        assert_eq!((block_io.rows[0].requests, block_io.incomplete), (3, 0));
        assert_eq!(block_io.rows[0].total_ms, 6.0);
    }
}
