//! Requests to block devices: how many, how large, how long from their issue to their end.
//!
//! They come from tracepoints of the kernel. The process is the one that started the request, where the kernel
//! reports that (Linux 6.5), else the one that issued it to the device: that may be a thread of the kernel, if
//! the device was busy. For data that a program has written to a file it mostly is one, some seconds later.

use std::os::fd::BorrowedFd;

use rustc_hash::FxHashMap;

use super::block_requests::{BlockRequests, Owner, Reported};
use super::tracepoint::{TracepointError, TracepointFormat};
use crate::machine::{self, Tracefs};
use crate::perf::{Record, SampleRecord, Tracepoints};
use crate::perf_data::TracepointField;
use crate::trace::{BlockIo, Nanos, Notice, NoticeKind, Pid};

const START: &str = "block/block_io_start";
const ISSUE: &str = "block/block_rq_issue";
const REQUEUE: &str = "block/block_rq_requeue";
const COMPLETE: &str = "block/block_rq_complete";
/// Bytes of a sector, whatever the device has.
const SECTOR_BYTES: u64 = 512;
/// Maximum number of processes with a name.
const MAX_NAMES: usize = 1 << 14;

/// A tracepoint of a request.
struct Tracepoint {
    id: u64,
    device: TracepointField,
    sector: TracepointField,
    /// Number of sectors.
    length: TracepointField,
    letters: TracepointField,
    /// Error of a request that ends.
    error: Option<TracepointField>,
    /// Name of the thread that starts or issues it.
    thread: Option<TracepointField>,
}

impl Tracepoint {
    fn read(tracefs: &Tracefs, tracepoint: &'static str) -> Result<Self, TracepointError> {
        let mut format = TracepointFormat::read(tracefs, tracepoint)?;
        Ok(Self {
            id: format.id,
            device: format.field("dev")?,
            sector: format.field("sector")?,
            length: format.field("nr_sector")?,
            letters: format.field("rwbs")?,
            error: format.field("error").ok(),
            thread: format.field("comm").ok(),
        })
    }

    /// Returns the request of a record.
    fn request<'a>(&self, raw: &'a [u8]) -> Option<Reported<'a>> {
        Some(Reported {
            device: self.device.unsigned(raw)? as u32,
            sector: self.sector.unsigned(raw)?,
            bytes: self.length.unsigned(raw)?.saturating_mul(SECTOR_BYTES),
            letters: self.letters.bytes(raw)?,
        })
    }

    fn has_failed(&self, raw: &[u8]) -> bool {
        let error = self.error.as_ref();
        error.and_then(|error| error.unsigned(raw)) != Some(0)
    }

    /// Returns the name of the thread that starts or issues a request.
    fn thread_name<'a>(&self, raw: &'a [u8]) -> Option<&'a [u8]> {
        let bytes = self.thread.as_ref()?.bytes(raw)?;
        bytes.split(|byte| *byte == 0).next()
    }
}

/// The requests of a capture.
pub(super) struct BlockIoCapture {
    tracepoints: Tracepoints,
    reader: RecordReader,
}

/// Passes what the records report to `requests`.
struct RecordReader {
    start: Option<Tracepoint>,
    issue: Tracepoint,
    requeue: Option<Tracepoint>,
    complete: Tracepoint,
    requests: BlockRequests,
    /// Names of the processes of the target. Untrusted.
    names: FxHashMap<Pid, Vec<u8>>,
    lost: u64,
}

impl BlockIoCapture {
    /// Starts to follow the requests of CPUs.
    ///
    /// # Errors
    /// The tracepoints may not be used.
    pub(super) fn start(cpus: &[u32]) -> Result<Self, Notice> {
        let started = RecordReader::new().and_then(|reader| {
            let required = [reader.issue.id, reader.complete.id];
            let others = reader.start.iter().chain(&reader.requeue);
            let others = others.map(|tracepoint| tracepoint.id);
            let ids: Vec<u64> = required.into_iter().chain(others).collect();
            let tracepoints = Tracepoints::start(&ids, cpus)?;
            Ok(Self {
                tracepoints,
                reader,
            })
        });
        started.map_err(|error| {
            let what = format!("block I/O was not followed: no tracepoints ({error})");
            Notice::new(NoticeKind::CountersMissing, what, error.remedy()).about("block-io")
        })
    }

    /// Returns descriptors that become readable when a ring buffer fills up.
    pub(super) fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.tracepoints.wake_fds()
    }

    /// Processes the records before a time, up to which the processes of the target are known.
    /// `is_of_target` returns whether a process is one of them: it has rows.
    pub(super) fn follow(&mut self, until: Nanos, is_of_target: impl Fn(Pid) -> bool) {
        let Self {
            tracepoints,
            reader,
        } = self;
        tracepoints.drain_until(until, |time, record| {
            reader.record(time, &record, &is_of_target);
        });
    }

    /// Follows no more requests.
    pub(super) fn stop(&self) {
        self.tracepoints.stop();
    }

    /// Processes the last records. Returns the requests.
    pub(super) fn finish(mut self, is_of_target: impl Fn(Pid) -> bool) -> BlockIo {
        self.follow(Nanos(u64::MAX), is_of_target);
        let Self {
            tracepoints,
            reader,
        } = self;
        // The kernel reports a loss with the next record only, but it also counts them.
        let lost = reader.lost.max(tracepoints.lost().unwrap_or_default());
        let name = |pid: Pid| {
            let ended = || {
                let name = reader.names.get(&pid)?;
                Some(String::from_utf8_lossy(name).into_owned())
            };
            let name = machine::process_name(pid).map(without_work);
            name.or_else(ended).unwrap_or_default()
        };
        reader.requests.finish(lost, device_name, name)
    }
}

impl RecordReader {
    fn new() -> Result<Self, TracepointError> {
        let tracefs = Tracefs::open()?;
        Ok(Self {
            start: Tracepoint::read(&tracefs, START).ok(),
            issue: Tracepoint::read(&tracefs, ISSUE)?,
            requeue: Tracepoint::read(&tracefs, REQUEUE).ok(),
            complete: Tracepoint::read(&tracefs, COMPLETE)?,
            requests: BlockRequests::default(),
            names: FxHashMap::default(),
            lost: 0,
        })
    }

    fn record(&mut self, time: Nanos, record: &Record<'_>, is_of_target: &impl Fn(Pid) -> bool) {
        match record {
            Record::Sample(sample) => {
                let is_malformed = self.sample(time, sample, is_of_target).is_none();
                self.requests.omit(u64::from(is_malformed));
            }
            Record::Lost { records: count, .. } | Record::LostSamples { samples: count, .. } => {
                self.lost = self.lost.saturating_add(*count);
                self.requests.forget_pending();
            }
            _ => {}
        }
    }

    /// Processes a sample. Returns `None` if it is malformed.
    fn sample(
        &mut self,
        time: Nanos,
        sample: &SampleRecord<'_>,
        is_of_target: &impl Fn(Pid) -> bool,
    ) -> Option<()> {
        let Self {
            start,
            issue,
            requeue,
            complete,
            requests,
            names,
            ..
        } = self;
        let raw = sample.raw;
        let id = u64::from(u16::from_le_bytes(*raw.first_chunk()?));
        let mut owner = |tracepoint: &Tracepoint| {
            let is_of_target = is_of_target(sample.pid);
            if is_of_target {
                keep_name(names, sample, tracepoint.thread_name(raw));
            }
            Owner {
                pid: sample.pid,
                is_of_target,
            }
        };
        let is = |tracepoint: &&Tracepoint| tracepoint.id == id;
        if is(&&*issue) {
            let owner = owner(issue);
            requests.issued(time, &issue.request(raw)?, owner);
        } else if is(&&*complete) {
            let has_failed = complete.has_failed(raw);
            requests.completed(time, &complete.request(raw)?, has_failed);
        } else if let Some(start) = start.as_ref().filter(is) {
            let owner = owner(start);
            requests.started(&start.request(raw)?, owner);
        } else if let Some(requeue) = requeue.as_ref().filter(is) {
            requests.requeued(&requeue.request(raw)?);
        }
        Some(())
    }
}

/// Keeps the name that a process has now, for when it has ended: its first thread has the same.
fn keep_name(
    names: &mut FxHashMap<Pid, Vec<u8>>,
    sample: &SampleRecord<'_>,
    thread: Option<&[u8]>,
) {
    let is_first = sample.tid.0 == sample.pid.0;
    if let Some(known) = names.get_mut(&sample.pid) {
        if let Some(thread) = thread.filter(|thread| is_first && known != thread) {
            thread.clone_into(known);
        }
    } else if names.len() < MAX_NAMES {
        let name = machine::process_name(sample.pid).map(String::into_bytes);
        let name = name.or_else(|| thread.map(<[u8]>::to_vec));
        names.insert(sample.pid, name.unwrap_or_default());
    }
}

/// Returns the name of a thread of the kernel without its current work: `kworker/0:1` for `kworker/0:1-events`.
fn without_work(name: String) -> String {
    let worker = name.strip_prefix("kworker/");
    match worker.and_then(|rest| rest.split_once(['-', '+'])) {
        Some((worker, _)) => format!("kworker/{worker}"),
        None => name,
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
