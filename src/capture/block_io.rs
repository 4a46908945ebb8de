//! Requests to block devices: how many, how large, how long from their issue to their end.
//!
//! They come from tracepoints of the kernel. The process is the one that started the request, where the kernel
//! reports that (Linux 6.5), else the one that issued it to the device: that may be a thread of the kernel, if
//! the device was busy. For data that a program has written to a file it mostly is one, some seconds later.

use rustc_hash::FxHashMap;

use super::latencies::Latencies;
use super::tracepoint::{TracepointError, TracepointFormat};
use crate::machine::{self, Tracefs};
use crate::perf::{Record, SampleRecord, Tracepoints};
use crate::perf_data::TracepointField;
use crate::trace::{BlockIo, BlockIoRow, MAX_IO_ROWS, Nanos, Notice, NoticeKind, Pid};

const START: &str = "block/block_io_start";
const ISSUE: &str = "block/block_rq_issue";
const COMPLETE: &str = "block/block_rq_complete";
/// Maximum number of requests that have not ended.
const MAX_PENDING: usize = 1 << 16;
/// Maximum number of rows while capturing, 4 KB each.
const MAX_ROWS: usize = 1024;

/// A tracepoint of a request.
struct Tracepoint {
    id: u64,
    device: TracepointField,
    sector: TracepointField,
    kind: TracepointField,
    /// Bytes of a request that is issued, or the error of one that ends.
    result: TracepointField,
    /// Name of the thread that issues it.
    thread: Option<TracepointField>,
}

impl Tracepoint {
    fn read(
        tracefs: &Tracefs,
        tracepoint: &'static str,
        result: &'static str,
    ) -> Result<Self, TracepointError> {
        let mut format = TracepointFormat::read(tracefs, tracepoint)?;
        Ok(Self {
            id: format.id,
            device: format.field("dev")?,
            sector: format.field("sector")?,
            kind: format.field("rwbs")?,
            result: format.field(result)?,
            thread: format.field("comm").ok(),
        })
    }

    /// Returns the name of the thread that issues a request.
    fn thread_name(&self, raw: &[u8]) -> Option<String> {
        let bytes = self.thread.as_ref()?.bytes(raw)?;
        let text = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        Some(String::from_utf8_lossy(text).into_owned())
    }
}

/// An unsigned number in a sample.
fn number(raw: &[u8], field: &TracepointField) -> Option<u64> {
    let mut number = [0; 8];
    let bytes = field.bytes(raw)?;
    number.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(number))
}

/// A kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Operation {
    Read,
    Write,
    Discard,
    Flush,
}

impl Operation {
    /// Reads the letters of the kernel, such as `WS` or `FWM` (blk_fill_rwbs).
    fn of(letters: &[u8]) -> Self {
        let has = |letter| letters.contains(&letter);
        match () {
            () if has(b'R') => Self::Read,
            () if has(b'W') => Self::Write,
            () if has(b'D') => Self::Discard,
            () => Self::Flush,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Discard => "discard",
            Self::Flush => "flush",
        }
    }
}

/// A device, a process or none for all, and an operation.
type Key = (u32, Option<Pid>, Operation);

/// The device and the first sector of a request that has not ended.
type Place = (u32, u64);

/// A request that has been issued.
struct Request {
    time: Nanos,
    bytes: u64,
    owner: Owner,
    operation: Operation,
}

/// The process of a request.
#[derive(Clone, Copy)]
struct Owner {
    pid: Pid,
    is_of_target: bool,
}

#[derive(Default)]
struct Row {
    latencies: Latencies,
    bytes: u64,
    errors: u64,
}

/// The requests of a capture.
pub(super) struct BlockIoCapture {
    tracepoints: Tracepoints,
    requests: Requests,
}

struct Requests {
    start: Option<Tracepoint>,
    issue: Tracepoint,
    complete: Tracepoint,
    /// Owners of the requests that have not been issued.
    started: FxHashMap<Place, Owner>,
    pending: FxHashMap<Place, Request>,
    rows: FxHashMap<Key, Row>,
    names: FxHashMap<Pid, String>,
    incomplete: u64,
    omitted: u64,
}

impl BlockIoCapture {
    /// Starts to follow the requests of CPUs.
    ///
    /// # Errors
    /// The tracepoints may not be used.
    pub(super) fn start(cpus: &[u32]) -> Result<Self, Notice> {
        let started = Requests::new().and_then(|requests| {
            let required = [requests.issue.id, requests.complete.id];
            let start = requests.start.iter().map(|start| start.id);
            let ids: Vec<u64> = required.into_iter().chain(start).collect();
            let tracepoints = Tracepoints::start(&ids, cpus)?;
            Ok(Self {
                tracepoints,
                requests,
            })
        });
        started.map_err(|error| {
            let what = format!("block I/O was not followed: no tracepoints ({error})");
            Notice::new(NoticeKind::CountersMissing, what, error.remedy()).about("block-io")
        })
    }

    /// Processes the records before a time, up to which the processes of the target are known.
    /// `is_of_target` returns whether a process is one of them: it has rows.
    pub(super) fn follow(&mut self, until: Nanos, is_of_target: impl Fn(Pid) -> bool) {
        let Self {
            tracepoints,
            requests,
        } = self;
        tracepoints.drain_until(until, |time, record| {
            requests.record(time, &record, &is_of_target);
        });
    }

    /// Follows no more requests.
    pub(super) fn stop(&self) {
        self.tracepoints.stop();
    }

    /// Processes the last records. Returns the requests.
    pub(super) fn finish(mut self, is_of_target: impl Fn(Pid) -> bool) -> BlockIo {
        self.follow(Nanos(u64::MAX), is_of_target);
        self.requests.finish()
    }
}

impl Requests {
    fn new() -> Result<Self, TracepointError> {
        let tracefs = Tracefs::open()?;
        Ok(Self {
            start: Tracepoint::read(&tracefs, START, "bytes").ok(),
            issue: Tracepoint::read(&tracefs, ISSUE, "bytes")?,
            complete: Tracepoint::read(&tracefs, COMPLETE, "error")?,
            started: FxHashMap::default(),
            pending: FxHashMap::default(),
            rows: FxHashMap::default(),
            names: FxHashMap::default(),
            incomplete: 0,
            omitted: 0,
        })
    }

    fn record(&mut self, time: Nanos, record: &Record<'_>, is_of_target: &impl Fn(Pid) -> bool) {
        match record {
            Record::Sample(sample) => {
                let id = sample.raw.first_chunk().copied().map(u16::from_le_bytes);
                let id = id.map(u64::from);
                if id == Some(self.issue.id) {
                    self.issued(time, sample, is_of_target);
                } else if id == Some(self.complete.id) {
                    self.completed(time, sample);
                } else if id == self.start.as_ref().map(|start| start.id) {
                    self.started(sample, is_of_target);
                }
            }
            Record::Lost { records: count, .. } | Record::LostSamples { samples: count, .. } => {
                self.omitted = self.omitted.saturating_add(*count);
            }
            _ => {}
        }
    }

    fn place(tracepoint: &Tracepoint, raw: &[u8]) -> Option<Place> {
        let device = number(raw, &tracepoint.device)?;
        Some((device as u32, number(raw, &tracepoint.sector)?))
    }

    fn started(&mut self, sample: &SampleRecord<'_>, is_of_target: &impl Fn(Pid) -> bool) {
        let Some(start) = &self.start else {
            return;
        };
        let thread = start.thread_name(sample.raw);
        let Some(place) = Self::place(start, sample.raw) else {
            return;
        };
        if self.started.len() >= MAX_PENDING {
            // A request without an owner here is that of the process that issues it.
            self.started.clear();
        }
        let owner = self.owner(sample.pid, thread, is_of_target);
        self.started.insert(place, owner);
    }

    fn owner(
        &mut self,
        pid: Pid,
        thread: Option<String>,
        is_of_target: &impl Fn(Pid) -> bool,
    ) -> Owner {
        let is_of_target = is_of_target(pid);
        if is_of_target && self.names.len() < MAX_ROWS {
            // A process that has ended has the name of its thread.
            let name = || machine::process_name(pid).or(thread).unwrap_or_default();
            self.names.entry(pid).or_insert_with(name);
        }
        Owner { pid, is_of_target }
    }

    fn issued(
        &mut self,
        time: Nanos,
        sample: &SampleRecord<'_>,
        is_of_target: &impl Fn(Pid) -> bool,
    ) {
        let (raw, issue) = (sample.raw, &self.issue);
        let parts = (
            Self::place(issue, raw),
            number(raw, &issue.result),
            issue.kind.bytes(raw),
        );
        let (Some(place), Some(length), Some(letters)) = parts else {
            self.omitted += 1;
            return;
        };
        if self.pending.len() >= MAX_PENDING {
            self.incomplete += self.pending.len() as u64;
            self.pending.clear();
        }
        let thread = issue.thread_name(raw);
        let owner = match self.started.remove(&place) {
            Some(owner) => owner,
            None => self.owner(sample.pid, thread, is_of_target),
        };
        let request = Request {
            time,
            bytes: length,
            owner,
            operation: Operation::of(letters),
        };
        // The end of an earlier request to the same place was not seen.
        let earlier = self.pending.insert(place, request);
        self.incomplete += u64::from(earlier.is_some());
    }

    fn completed(&mut self, time: Nanos, sample: &SampleRecord<'_>) {
        let place = Self::place(&self.complete, sample.raw);
        let request = place.and_then(|place| Some((place.0, self.pending.remove(&place)?)));
        let Some((device, request)) = request else {
            self.incomplete += 1;
            return;
        };
        let has_failed = number(sample.raw, &self.complete.result) != Some(0);
        let of_target = request
            .owner
            .is_of_target
            .then_some(Some(request.owner.pid));
        for pid in [None].into_iter().chain(of_target) {
            let key = (device, pid, request.operation);
            if self.rows.len() >= MAX_ROWS && !self.rows.contains_key(&key) {
                self.omitted += 1;
                continue;
            }
            let row = self.rows.entry(key).or_default();
            row.latencies.push(time.0.saturating_sub(request.time.0));
            row.bytes = row.bytes.saturating_add(request.bytes);
            row.errors += u64::from(has_failed);
        }
    }

    fn finish(self) -> BlockIo {
        let mut rows: Vec<_> = self.rows.into_iter().collect();
        rows.sort_by_key(|((device, pid, operation), row)| {
            let time = std::cmp::Reverse(row.latencies.total_ns);
            (pid.is_some(), time, *device, *pid, *operation)
        });
        let omitted: u64 = rows
            .iter()
            .skip(MAX_IO_ROWS)
            .map(|(_, row)| row.latencies.count)
            .sum();
        rows.truncate(MAX_IO_ROWS);
        let rows = rows.into_iter().map(|((device, pid, operation), row)| {
            let Row {
                latencies,
                bytes,
                errors,
            } = row;
            let ms = |ns: u64| ns as f64 / 1e6;
            BlockIoRow {
                device: device_name(device),
                pid: pid.map(|pid| pid.0),
                process: pid
                    .and_then(|pid| self.names.get(&pid).cloned())
                    .unwrap_or_default(),
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
            incomplete: self.incomplete + self.pending.len() as u64,
            omitted: self.omitted + omitted,
        }
    }
}

/// Returns the name of a device, or its numbers (`dev_t` of the kernel: 20 bits are the minor one).
fn device_name(device: u32) -> String {
    let numbers = format!("{}:{}", device >> 20, device & 0xf_ffff);
    let link = std::fs::read_link(format!("/sys/dev/block/{numbers}"));
    let name = link
        .ok()
        .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    name.unwrap_or(numbers)
}
