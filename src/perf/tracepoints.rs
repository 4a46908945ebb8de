//! Samples of tracepoints on all CPUs, in ring buffers for themselves: each occurrence has a record.

use std::io;
use std::ops::ControlFlow;

use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;
use thiserror::Error;

use super::event::{Event, open};
use super::layout::Layout;
use super::record::Record;
use super::ring::Ring;
use super::rings::Rings;
use crate::ids::Nanos;

/// Size of the ring buffer of a CPU: ten thousand records.
const RING_BYTES: usize = 1 << 20;
/// The same where less memory may be locked: the ring buffers of samples have most of it.
const MIN_RING_BYTES: usize = 64 << 10;
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
    events: Vec<Event>,
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
            events: Vec::new(),
            rings: Rings::new(layout),
        };
        for &cpu in cpus {
            let first = tracepoints.events.len();
            for &id in ids {
                let event = match open(&mut attributes(id), -1, cpu as i32, None) {
                    Err(Errno::NODEV) => break,
                    opened => Event::counting(opened.map_err(io::Error::from)?),
                };
                match tracepoints.events.get(first) {
                    Some(owner) => event.write_to(owner)?,
                    None => {
                        let ring = map(&event);
                        let ring = ring.map_err(|source| TracepointsError::Ring { cpu, source })?;
                        tracepoints.rings.push(ring);
                    }
                }
                tracepoints.events.push(event);
            }
        }
        let mut events = tracepoints.events.iter();
        events.try_for_each(|event| event.set_enabled(true))?;
        Ok(tracepoints)
    }

    /// Stops, but for the records in the ring buffers.
    pub fn stop(&self) {
        for event in &self.events {
            // Closing it stops it, too.
            let _ = event.set_enabled(false);
        }
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
        clockid: rustix::time::ClockId::Monotonic as i32,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.__bindgen_anon_2.wakeup_watermark = (RING_BYTES / 2) as u32;
    attr.set_watermark(1);
    attr.set_disabled(1);
    attr.set_sample_id_all(1);
    attr.set_use_clockid(1);
    attr
}
