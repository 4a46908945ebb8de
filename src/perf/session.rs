//! The events of all CPUs and their rings.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;
use thiserror::Error;

use super::cpu_events::{CpuEvents, first_role, open_cpu};
use super::cpu_hotplug::{CpuHotplug, HotplugEvent};
use super::effective_request::{EffectiveRequest, Scope};
use super::event::Event;
use super::open_error::OpenEventError;
use super::record::Record;
use super::request::{Clock, SamplingRequest};
use super::ring::Ring;
use super::rings::Rings;
use super::thread_events::{RingOf, ThreadEvents};
use crate::ids::{Cpu, Nanos, Tid};
use crate::trace::Notice;

/// How far the merge stays behind the clock. A CPU takes a record's time first and publishes it up to this much
/// later: it copies the stack between, and the hypervisor may take the CPU away.
const REORDER_WINDOW_NS: u64 = 20_000_000;

/// Holds a few samples with their stack copies.
const SMALLEST_RING_BYTES: usize = 128 << 10;

/// Why there is no session.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The kernel refused an event.
    #[error(transparent)]
    Open(#[from] OpenEventError),
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

/// How long the ring of a CPU that is gone is still read: much longer than the merge waits.
const LINGER_NS: u64 = 500_000_000;

/// A running (or ready) sampling session.
pub struct PerfSession {
    grant: EffectiveRequest,
    cpus: Vec<CpuEvents>,
    /// By position in `cpus`.
    rings: Rings,
    threads: ThreadEvents,
    online: CpuHotplug,
    started: Nanos,
    wanted_ring_bytes: usize,
    /// Dropped on CPUs that are gone.
    lost_before: Vec<(Cpu, u64)>,
    notices: Vec<Notice>,
}

impl PerfSession {
    /// Opens the events and the ring of each online CPU, or as much of them as the kernel grants. Nothing is recorded
    /// before [`PerfSession::start_tracking`].
    pub fn open(request: &SamplingRequest, scope: Scope) -> Result<Self, SessionError> {
        let online = CpuHotplug::look().map_err(SessionError::Cpus)?;
        let (mut grant, notices) = EffectiveRequest::negotiate(request, scope, online.cpus())?;
        grant.request = grant.request.with_stacks_that_fit();
        let layout = first_role(&grant).layout(&grant);
        let mut session = Self {
            grant,
            cpus: Vec::new(),
            rings: Rings::new(layout.map_err(OpenEventError::from)?),
            threads: ThreadEvents::default(),
            online,
            started: now(),
            wanted_ring_bytes: request.ring_bytes,
            lost_before: Vec::new(),
            notices,
        };
        let cpus = session.online.cpus().to_vec();
        for (on, ring) in session.open_cpus(&cpus)? {
            session.cpus.push(on);
            session.rings.push(ring);
        }
        Ok(session)
    }

    /// Opens the events of CPUs and maps their rings: all alike, smaller than wanted where a limit of memory
    /// demands it. CPUs that are not there (any more) are left out.
    fn open_cpus(&mut self, cpus: &[u32]) -> Result<Vec<(CpuEvents, Ring)>, SessionError> {
        loop {
            let opened = cpus.iter().map(|&cpu| open_cpu(&self.grant, cpu));
            match opened.filter_map(Result::transpose).collect() {
                Err(SessionError::Ring { bytes, source, .. })
                    if matches!(
                        source.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::OutOfMemory
                    ) && bytes > SMALLEST_RING_BYTES =>
                {
                    self.grant.request.ring_bytes /= 2;
                    self.grant.request = self.grant.request.with_stacks_that_fit();
                }
                other => return other,
            }
        }
    }

    /// Whether the target's threads must be told of, as the machine is not watched.
    #[must_use]
    pub fn needs_threads(&self) -> bool {
        !self.grant.machine
    }

    /// Watches the threads of `list` and all they start, where the machine is not watched. `what` names them.
    pub fn attach(&mut self, what: &str, list: impl Fn() -> Vec<Tid>) -> Result<(), SessionError> {
        self.attach_on(|_| true, list).map_err(|(cpu, errno)| {
            SessionError::Open(OpenEventError::of(&self.grant.request, errno, what, cpu))
        })
    }

    fn attach_on(
        &mut self,
        wanted: impl Fn(&CpuEvents) -> bool,
        list: impl Fn() -> Vec<Tid>,
    ) -> Result<(), (u32, Errno)> {
        let on = self.cpus.iter().filter(|on| wanted(on));
        let rings: Vec<_> = on
            .map(|on| RingOf {
                cpu: on.cpu,
                owner: on.owner(),
            })
            .collect();
        match rings.first() {
            Some(first) if self.needs_threads() => self
                .threads
                .attach(&self.grant, &rings, list)
                .map_err(|errno| (first.cpu.0, errno)),
            _ => Ok(()),
        }
    }

    /// What was granted less than asked, and what became of the CPUs.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = self.notices.clone();
        let ring_bytes = self.grant.request.ring_bytes;
        if ring_bytes != self.wanted_ring_bytes {
            notices.push(Notice::new(
                format!(
                    "rings have {} KiB instead of {} KiB: a limit of memory, as a rule of locked memory",
                    ring_bytes / 1024,
                    self.wanted_ring_bytes / 1024
                ),
                "raise kernel.perf_event_mlock_kb or `ulimit -l`, or run as root",
            ));
        }
        notices.extend(self.short_stacks());
        notices.extend(self.threads.notices());
        notices.extend(self.online.notice(self.started));
        notices
    }

    /// What is copied less of the stacks than asked, as the rings are small for it.
    fn short_stacks(&self) -> Option<Notice> {
        let request = &self.grant.request;
        let (copied, wanted) = (request.stack_bytes(), request.call_graph.stack_bytes());
        (copied < wanted).then(|| {
            let what = format!(
                "copied at most {copied} bytes of each stack, not {wanted}, for the rings of {} KiB hold no more at {} \
                 samples a second: deeper stacks may be cut",
                request.ring_bytes / 1024,
                request.frequency_hz
            );
            Notice::new(
                what,
                "use a larger -buffersize, if there is no limit of locked memory, or a lower -freq",
            )
        })
    }

    /// Records dropped by CPU, as the kernel itself counts them; nothing before Linux 6.0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<u32, u64> {
        let mut lost = BTreeMap::new();
        let on_cpus = self.cpus.iter().filter_map(|on| Some((on.cpu, on.lost()?)));
        let before = self.lost_before.iter().copied();
        for (cpu, records) in on_cpus.chain(before).chain(self.threads.lost()) {
            *lost.entry(cpu.0).or_default() += records;
        }
        lost
    }

    /// Number of CPUs that are sampled.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpus.iter().filter(|on| on.gone.is_none()).count()
    }

    /// What is sampled.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.grant.request.clock
    }

    /// Starts telling of mappings, names, forks and exits of the machine. Where it is not watched, threads that were
    /// attached are at work already, and a command will be from its exec on.
    pub fn start_tracking(&self) -> Result<(), SessionError> {
        self.enable(0)
    }

    /// Starts taking samples of the machine.
    pub fn start_sampling(&mut self) -> Result<(), SessionError> {
        self.started = now();
        self.enable(1)
    }

    fn enable(&self, event: usize) -> Result<(), SessionError> {
        if self.needs_threads() {
            return Ok(());
        }
        let events = self.cpus.iter().filter_map(|on| on.events.get(event));
        enable_all(events, true)
    }

    /// Stops recording; what is in the rings can still be drained.
    pub fn stop(&self) -> Result<(), SessionError> {
        let events = self.cpus.iter().flat_map(|on| on.events.iter().rev());
        enable_all(events, false)?;
        self.threads.stop().map_err(SessionError::Enable)
    }

    /// Descriptors that become readable when a ring is a quarter full.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus.iter().map(|on| on.owner().as_fd())
    }

    /// Follows CPUs that go offline and come online; looks once a second at most. `list` tells whom to watch where the
    /// machine is not watched.
    pub fn follow_cpus(&mut self, list: impl Fn() -> Vec<Tid>) {
        let now = now();
        let Some((new, gone)) = self.online.changes(now) else {
            return;
        };
        self.forget_gone(now);
        for &cpu in &gone {
            self.online.tell(now, Cpu(cpu), HotplugEvent::WentOffline);
        }
        let mut missing = new.clone();
        if self.needs_threads() {
            // Events of threads sleep while their CPU is offline.
            missing.retain(|cpu| !self.cpus.iter().any(|on| on.cpu.0 == *cpu));
        } else {
            let dead = self.cpus.iter_mut().filter(|on| on.gone.is_none());
            for on in dead {
                let cpu = on.cpu.0;
                let was_offline = gone.contains(&cpu) || new.contains(&cpu);
                if was_offline || on.is_dead() {
                    on.gone = Some(now);
                    if !was_offline {
                        missing.push(cpu);
                    }
                }
            }
        }
        for &cpu in &new {
            self.online.tell(now, Cpu(cpu), HotplugEvent::CameOnline);
        }
        for cpu in missing {
            if !new.contains(&cpu) {
                self.online.tell(now, Cpu(cpu), HotplugEvent::WasOffline);
            }
            if let Err(error) = self.add_cpu(cpu, &list) {
                let change = HotplugEvent::NotSampled(error.to_string());
                self.online.tell(now, Cpu(cpu), change);
            }
        }
    }

    /// Samples one more CPU.
    fn add_cpu(&mut self, cpu: u32, list: &impl Fn() -> Vec<Tid>) -> Result<(), SessionError> {
        for (on, ring) in self.open_cpus(&[cpu])? {
            if !self.needs_threads() {
                enable_all(&on.events, true)?;
            }
            self.cpus.push(on);
            self.rings.push(ring);
        }
        self.attach_on(|on| on.cpu.0 == cpu, list)
            .map_err(|(cpu, errno)| {
                OpenEventError::of(&self.grant.request, errno, "the target", cpu)
            })?;
        Ok(())
    }

    /// Gives back the rings of CPUs that are gone, once they were read.
    fn forget_gone(&mut self, now: Nanos) {
        let is_over = |on: &CpuEvents| {
            on.gone
                .is_some_and(|gone| now.0.saturating_sub(gone.0) > LINGER_NS)
        };
        while let Some(at) = self.cpus.iter().position(is_over) {
            let on = self.cpus.swap_remove(at);
            self.rings.swap_remove(at);
            self.lost_before.push((on.cpu, on.lost().unwrap_or(0)));
        }
    }

    /// Hands what is old enough to be in order to `each`, and tells how old that is.
    pub fn drain(&mut self, each: impl FnMut(Nanos, Record<'_>)) -> Nanos {
        let horizon = Nanos(now().0.saturating_sub(REORDER_WINDOW_NS));
        self.drain_until(horizon, each);
        horizon
    }

    /// Hands everything to `each`; for a session that was disabled.
    pub fn drain_all(&mut self, each: impl FnMut(Nanos, Record<'_>)) {
        self.drain_until(Nanos(u64::MAX), each);
    }

    /// Shows, without order, what has come since the last look and is not old enough to be drained.
    pub fn preview(&mut self, each: impl FnMut(&Record<'_>)) {
        self.rings.preview(each);
    }

    fn drain_until(&mut self, horizon: Nanos, mut each: impl FnMut(Nanos, Record<'_>)) {
        let Self { rings, threads, .. } = self;
        rings.drain_until(horizon, |time, record| {
            if threads.accepts(&record) {
                each(time, record);
            }
        });
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

fn enable_all<'a>(
    events: impl IntoIterator<Item = &'a Event>,
    enabled: bool,
) -> Result<(), SessionError> {
    events
        .into_iter()
        .try_for_each(|event| event.set_enabled(enabled))
        .map_err(SessionError::Enable)
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
