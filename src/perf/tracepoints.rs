//! Samples of tracepoints on all CPUs, in ring buffers for themselves: each occurrence has a record.

use std::ffi::CStr;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;
use thiserror::Error;

use super::event::Event;
use super::layout::Layout;
use super::record::Record;
use super::ring::Ring;
use super::rings::Rings;
use crate::ids::Nanos;

/// Size of the ring buffer of a CPU: twenty thousand records, those of 20 ms of the fastest disks and some more.
const RING_BYTES: usize = 2 << 20;
/// The same where less memory may be locked: the ring buffers of samples have most of it.
const MIN_RING_BYTES: usize = 64 << 10;
/// Bytes after which the kernel wakes the reader.
const WAKEUP_BYTES: usize = RING_BYTES / 4;
const SAMPLE_TYPE: u32 =
    sys::PERF_SAMPLE_TID | sys::PERF_SAMPLE_TIME | sys::PERF_SAMPLE_CPU | sys::PERF_SAMPLE_RAW;

/// The records of tracepoints cannot be read.
#[derive(Debug, Error)]
pub enum TracepointsError {
    /// The kernel refused an event.
    #[error("perf_event_open: {0}")]
    Open(#[from] io::Error),
    /// A ring buffer cannot be mapped, mostly for the limit of locked memory.
    #[error("cannot map a ring buffer of {MIN_RING_BYTES} bytes for CPU {cpu}: {source}")]
    Ring {
        /// CPU of the ring buffer.
        cpu: u32,
        /// Error of the kernel.
        source: io::Error,
    },
}

/// Open events of tracepoints.
pub struct Tracepoints {
    /// The events of each CPU. The first one owns the ring buffer.
    cpus: Vec<Vec<Event>>,
    rings: Rings,
}

impl Tracepoints {
    /// Opens the tracepoints with these ids on CPUs, and starts them. CPUs that are offline are skipped.
    ///
    /// # Errors
    /// The kernel refuses an event or a ring buffer.
    pub fn start(ids: &[u64], cpus: &[u32]) -> Result<Self, TracepointsError> {
        let layout = Layout::new(SAMPLE_TYPE.into(), 0).map_err(io::Error::other)?;
        let mut tracepoints = Self {
            cpus: Vec::new(),
            rings: Rings::new(layout),
        };
        for &cpu in cpus {
            let mut events: Vec<Event> = Vec::new();
            for &id in ids {
                let event = match Event::counting_lost(attributes(id), -1, cpu) {
                    Err(Errno::NODEV) => break,
                    opened => opened.map_err(io::Error::from)?,
                };
                match events.first() {
                    Some(owner) => event.write_to(owner)?,
                    None => {
                        let ring = map(&event);
                        let ring = ring.map_err(|source| TracepointsError::Ring { cpu, source })?;
                        tracepoints.rings.push(ring);
                    }
                }
                events.push(event);
            }
            tracepoints.cpus.push(events);
        }
        let mut events = tracepoints.cpus.iter().flatten();
        events.try_for_each(|event| event.set_enabled(true))?;
        Ok(tracepoints)
    }

    /// Has the kernel record only the occurrences that a condition is true for (Documentation/trace/events.rst of
    /// Linux). Without it, all are recorded.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn filter(&self, condition: &CStr) -> io::Result<()> {
        let mut events = self.cpus.iter().flatten();
        events.try_for_each(|event| event.set_filter(condition))
    }

    /// Stops, but for the records in the ring buffers.
    pub fn stop(&self) {
        for event in self.cpus.iter().flatten() {
            // Closing it stops it, too.
            let _ = event.set_enabled(false);
        }
    }

    /// Returns descriptors that become readable when a ring buffer is a quarter full.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus
            .iter()
            .filter_map(|events| Some(events.first()?.as_fd()))
    }

    /// Returns how many records the kernel has dropped, if it counts them (Linux 6.0).
    #[must_use]
    pub fn lost(&self) -> Option<u64> {
        let events = self.cpus.iter().flatten();
        events.map(Event::lost).sum()
    }

    /// Passes the records before a time to `each`. [`super::PerfSession::drain`] returns up to when they are
    /// in order.
    pub fn drain_until(&mut self, limit: Nanos, mut each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.drain_until(limit, |time, record| {
            each(time, record);
            ControlFlow::Continue(())
        });
    }
}

/// Maps a ring buffer as large as the limit of locked memory permits.
fn map(event: &Event) -> io::Result<Ring> {
    let mut bytes = RING_BYTES;
    loop {
        match Ring::map(event.file(), bytes) {
            Err(_) if bytes > MIN_RING_BYTES => bytes /= 2,
            mapped => return mapped,
        }
    }
}

fn attributes(id: u64) -> sys::perf_event_attr {
    let mut attr = sys::perf_event_attr {
        type_: sys::PERF_TYPE_TRACEPOINT,
        config: id,
        size: size_of::<sys::perf_event_attr>() as u32,
        sample_type: SAMPLE_TYPE.into(),
        read_format: sys::PERF_FORMAT_TOTAL_TIME_ENABLED.into(),
        clockid: rustix::time::ClockId::Monotonic as i32,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = WAKEUP_BYTES as u32;
    attr.set_watermark(1);
    attr.set_disabled(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr
}
