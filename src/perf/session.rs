//! The events of all CPUs and their rings.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use super::event::{Event, OpenError, Role, SamplingRequest};
use super::record::Record;
use super::ring::Ring;
use super::rings::Rings;
use crate::cpu_list;
use crate::trace::{Cpu, Nanos, Notice};

/// How far the merge stays behind the clock. A CPU takes a record's time first and publishes it up to this much
/// later: it copies the stack between, and the hypervisor may take the CPU away.
const MERGE_LAG_NS: u64 = 20_000_000;

/// Holds a few samples with their stack copies.
const SMALLEST_RING_BYTES: usize = 128 << 10;

/// Why there is no session.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The kernel refused an event.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The ring could not be made.
    #[error(
        "cannot map a ring of {bytes} bytes for CPU {cpu}: {source}; raise kernel.perf_event_mlock_kb or `ulimit -l`, \
         or run as root"
    )]
    Ring {
        /// CPU of the ring.
        cpu: u32,
        /// Size asked for.
        bytes: usize,
        /// Answer of the kernel.
        source: io::Error,
    },
    /// The list of CPUs could not be read.
    #[error("cannot read the list of online CPUs, /sys/devices/system/cpu/online: {0}")]
    Cpus(io::Error),
    /// The events could not be switched on or off.
    #[error("cannot switch the perf events: {0}")]
    Enable(io::Error),
}

struct CpuEvents {
    cpu: Cpu,
    tracker: Event,
    sampler: Event,
}

/// A running (or ready) system-wide sampling session.
pub struct Session {
    cpus: Vec<CpuEvents>,
    /// By position in `cpus`.
    rings: Rings,
    ring_bytes: usize,
    wanted_ring_bytes: usize,
}

impl Session {
    /// Opens one event and one ring for each online CPU. Nothing is recorded before [`Session::start_tracking`].
    pub fn open(request: &SamplingRequest) -> Result<Self, SessionError> {
        let mut session = Self {
            cpus: Vec::new(),
            rings: Rings::new(request.layout().map_err(OpenError::from)?),
            ring_bytes: request.ring_bytes,
            wanted_ring_bytes: request.ring_bytes,
        };
        for cpu in cpu_list::online().map_err(SessionError::Cpus)? {
            let tracker = Event::open(request, Role::Tracker, cpu)?;
            let sampler = Event::open(request, Role::Sampler, cpu)?;
            if let (Some(tracker), Some(sampler)) = (tracker, sampler) {
                let ring = session.map_ring(&tracker, cpu)?;
                sampler.write_to(&tracker).map_err(SessionError::Enable)?;
                session.rings.push(ring);
                session.cpus.push(CpuEvents {
                    cpu: Cpu(cpu),
                    tracker,
                    sampler,
                });
            }
        }
        Ok(session)
    }

    /// Maps a ring, smaller than wanted where the limit of locked memory demands it.
    fn map_ring(&mut self, event: &Event, cpu: u32) -> Result<Ring, SessionError> {
        loop {
            let bytes = self.ring_bytes;
            match Ring::map(event.file(), bytes) {
                Ok(ring) => return Ok(ring),
                Err(error)
                    if error.kind() == io::ErrorKind::PermissionDenied
                        && bytes > SMALLEST_RING_BYTES =>
                {
                    self.ring_bytes /= 2;
                }
                Err(source) => return Err(SessionError::Ring { cpu, bytes, source }),
            }
        }
    }

    /// What was granted less than asked.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let Self {
            ring_bytes,
            wanted_ring_bytes,
            ..
        } = self;
        if ring_bytes == wanted_ring_bytes {
            return Vec::new();
        }
        vec![Notice::new(
            format!(
                "rings have {} KiB instead of {} KiB: the limit of locked memory",
                ring_bytes / 1024,
                wanted_ring_bytes / 1024
            ),
            "raise kernel.perf_event_mlock_kb or `ulimit -l`, or run as root",
        )]
    }

    /// Records dropped by CPU, as the kernel itself counts them; nothing before Linux 6.0.
    pub fn lost(&self) -> impl Iterator<Item = (Cpu, u64)> {
        self.cpus
            .iter()
            .filter_map(|on| Some((on.cpu, on.tracker.lost()? + on.sampler.lost()?)))
    }

    /// Number of CPUs that are sampled.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Starts telling of mappings, names, forks and exits.
    pub fn start_tracking(&self) -> Result<(), SessionError> {
        self.cpus
            .iter()
            .try_for_each(|on| on.tracker.set_enabled(true))
            .map_err(SessionError::Enable)
    }

    /// Starts taking samples.
    pub fn start_sampling(&self) -> Result<(), SessionError> {
        self.cpus
            .iter()
            .try_for_each(|on| on.sampler.set_enabled(true))
            .map_err(SessionError::Enable)
    }

    /// Stops recording; what is in the rings can still be drained.
    pub fn stop(&self) -> Result<(), SessionError> {
        self.cpus
            .iter()
            .flat_map(|on| [&on.sampler, &on.tracker])
            .try_for_each(|event| event.set_enabled(false))
            .map_err(SessionError::Enable)
    }

    /// Descriptors that become readable when a ring is a quarter full.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|on| on.tracker.as_fd())
    }

    /// Hands what is old enough to be in order to `each`, and tells how old that is.
    pub fn drain(&mut self, each: impl FnMut(Nanos, Record<'_>)) -> Nanos {
        let horizon = Nanos(now().0.saturating_sub(MERGE_LAG_NS));
        self.rings.drain_until(horizon, each);
        horizon
    }

    /// Hands everything to `each`; for a session that was disabled.
    pub fn drain_all(&mut self, each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.drain_until(Nanos(u64::MAX), each);
    }

    /// Records that could not be parsed, and rings given up.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.rings.malformed()
    }

    /// Records that came out of order.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.rings.late()
    }
}

/// The clock of all records.
#[must_use]
pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

#[cfg(test)]
#[path = "recorder.rs"]
mod recorder;
#[cfg(test)]
pub(crate) use recorder::record;
