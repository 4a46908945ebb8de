//! Events and rings of all CPUs as one stream of records in time order.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use thiserror::Error;

use super::event::{self, OpenError, SamplingRequest};
use super::merge::Merge;
use super::record::{Layout, Record};
use super::ring::Ring;
use crate::cpu_list;
use crate::trace::Nanos;

/// How far the merge stays behind the clock. A CPU takes a record's time first and publishes it up to this much
/// later: it copies the stack between, and the hypervisor may take the CPU away.
const MERGE_LAG_NS: u64 = 20_000_000;

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
    /// The events could not be switched on.
    #[error("cannot switch sampling on: {0}")]
    Enable(io::Error),
}

/// A running (or ready) system-wide sampling session.
pub struct Session {
    events: Vec<File>,
    rings: Vec<Ring>,
    layout: Layout,
    merge: Merge,
    malformed: u64,
}

impl Session {
    /// Opens one event and one ring for each online CPU. Nothing is recorded before [`Session::enable`].
    pub fn open(request: &SamplingRequest) -> Result<Self, SessionError> {
        let mut session = Self {
            events: Vec::new(),
            rings: Vec::new(),
            layout: request.layout().map_err(OpenError::from)?,
            merge: Merge::default(),
            malformed: 0,
        };
        for cpu in cpu_list::online().map_err(SessionError::Cpus)? {
            let Some(event) = event::open(request, cpu)? else {
                continue;
            };
            let bytes = request.ring_bytes;
            let ring = Ring::map(&event, bytes).map_err(|source| SessionError::Ring {
                cpu,
                bytes,
                source,
            })?;
            session.events.push(event);
            session.rings.push(ring);
        }
        Ok(session)
    }

    /// Number of CPUs that are sampled.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.events.len()
    }

    /// Starts recording on all CPUs.
    pub fn enable(&self) -> Result<(), SessionError> {
        self.switch(true).map_err(SessionError::Enable)
    }

    /// Stops recording; what is in the rings can still be drained.
    pub fn disable(&self) -> io::Result<()> {
        self.switch(false)
    }

    fn switch(&self, enabled: bool) -> io::Result<()> {
        self.events
            .iter()
            .try_for_each(|event| event::set_enabled(event, enabled))
    }

    /// Descriptors that become readable when a ring is a quarter full.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.events.iter().map(AsFd::as_fd)
    }

    /// Hands what is old enough to be in order to `each`.
    pub fn drain(&mut self, each: impl FnMut(Nanos, Record<'_>)) {
        self.drain_until(Nanos(now().0.saturating_sub(MERGE_LAG_NS)), each);
    }

    /// Hands everything to `each`; for a session that was disabled.
    pub fn drain_all(&mut self, each: impl FnMut(Nanos, Record<'_>)) {
        self.drain_until(Nanos(u64::MAX), each);
    }

    fn drain_until(&mut self, horizon: Nanos, mut each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.iter_mut().for_each(Ring::refresh);
        let Self {
            rings,
            layout,
            merge,
            malformed,
            ..
        } = self;
        merge.round(rings, layout, horizon, |time, bytes| {
            match layout.parse(bytes) {
                Ok(record) => each(time, record),
                Err(_) => *malformed += 1,
            }
        });
    }

    /// Records that could not be parsed, and rings given up.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed + self.rings.iter().filter(|ring| ring.damaged()).count() as u64
    }

    /// Records that came out of order.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.merge.late()
    }
}

/// The clock of all records.
#[must_use]
pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
