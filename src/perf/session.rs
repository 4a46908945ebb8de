//! The events of all CPUs and their ring buffers.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::clock::now;
use super::cpu_events::{CpuEvents, first_role, open_cpu, open_occurrences};
use super::cpu_hotplug::{CpuHotplug, HotplugEvent};
use super::event::Event;
use super::fallbacks::Scope;
use super::granted::Granted;
use super::occurrence_events::{Occurrence, OccurrenceCount, OccurrenceEvents, SampledOccurrence};
use super::open_error::OpenEventError;
use super::record::{Record, SampleRecord};
use super::request::{Clock, EffectiveRequest, SamplingRequest};
use super::ring::Ring;
use super::rings::Rings;
use super::session_error::SessionError;
use super::thread_events::{RingOwner, ThreadEvents};
use crate::ids::{Cpu, Nanos, Tid};
use crate::trace::{Notice, NoticeKind};

/// Age at which records are flushed.
///
/// A CPU reads the time of a record first and publishes the record up to this much later: it copies
/// the stack in between, and the hypervisor may preempt the CPU.
const REORDER_WINDOW_NS: u64 = 20_000_000;

/// Minimum size of a ring buffer: room for a few samples with their stack copies.
const MIN_RING_BYTES: usize = 128 << 10;

/// Time for which the ring buffer of an offline CPU is still read.
///
/// It is much longer than [`REORDER_WINDOW_NS`], so no record is lost.
const LINGER_NS: u64 = 500_000_000;

/// One in so many occurrences that are missing is remarkable.
const MIN_MISSING: u64 = 100;

/// A sampling session, ready or running.
pub struct PerfSession {
    effective: EffectiveRequest,
    cpus: Vec<CpuEvents>,
    /// Groups of ring buffers with the indices of `cpus`.
    rings: Rings,
    threads: ThreadEvents,
    /// What the samples of events stand for that sample occurrences, by id.
    occurrences: FxHashMap<u64, SampledOccurrence>,
    wakeup_filter: Option<CString>,
    hotplug: CpuHotplug,
    started: Nanos,
    is_sampling: bool,
    requested_ring_bytes: usize,
    /// Lost records of closed events, and their occurrences.
    lost_by_closed: Vec<(Cpu, u64)>,
    occurrences_of_closed: Vec<(Occurrence, OccurrenceCount)>,
    /// Occurrences that the drained samples stand for.
    drained_occurrences: FxHashMap<Occurrence, u64>,
    /// Lost occurrences as records of the ring buffers show them.
    reported_losses: FxHashMap<Occurrence, u64>,
    notices: Vec<Notice>,
}

impl PerfSession {
    /// Opens the events and the ring buffer of each online CPU, as far as the kernel permits.
    ///
    /// Records nothing before [`PerfSession::start_tracking`].
    ///
    /// # Errors
    /// Returns [`SessionError`] if the kernel refuses even the smallest fallback.
    pub fn open(request: &SamplingRequest, scope: Scope) -> Result<Self, SessionError> {
        let hotplug = CpuHotplug::new().map_err(SessionError::Cpus)?;
        let (mut effective, notices) = EffectiveRequest::negotiate(request, scope, hotplug.cpus())?;
        effective.request = effective.request.with_stacks_that_fit();
        let layout = first_role(&effective).layout(&effective);
        let mut session = Self {
            effective,
            cpus: Vec::new(),
            rings: Rings::new(layout.map_err(OpenEventError::from)?),
            threads: ThreadEvents::default(),
            occurrences: FxHashMap::default(),
            wakeup_filter: None,
            hotplug,
            started: now(),
            is_sampling: false,
            requested_ring_bytes: request.ring_bytes,
            lost_by_closed: Vec::new(),
            occurrences_of_closed: Vec::new(),
            drained_occurrences: FxHashMap::default(),
            reported_losses: FxHashMap::default(),
            notices,
        };
        let cpus = session.hotplug.cpus().to_vec();
        for (cpu_events, rings) in session.open_cpus(&cpus)? {
            session.push_cpu(cpu_events, rings);
        }
        Ok(session)
    }

    fn push_cpu(&mut self, cpu_events: CpuEvents, rings: Vec<Ring>) {
        let events = cpu_events.occurrences.iter();
        self.occurrences
            .extend(events.flat_map(OccurrenceEvents::sampled));
        self.cpus.push(cpu_events);
        rings.into_iter().for_each(|ring| self.rings.push(ring));
    }

    /// Opens the events of CPUs and maps their ring buffers, which all have the same size and number.
    ///
    /// If a memory limit requires it, the ring buffers are smaller than requested. Offline CPUs are
    /// skipped.
    fn open_cpus(&mut self, cpus: &[u32]) -> Result<Vec<(CpuEvents, Vec<Ring>)>, SessionError> {
        loop {
            let opened = cpus.iter().map(|&cpu| open_cpu(&self.effective, cpu));
            match opened.filter_map(Result::transpose).collect() {
                Err(SessionError::Ring { bytes, source, .. })
                    if matches!(
                        source.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::OutOfMemory
                    ) && bytes > MIN_RING_BYTES =>
                {
                    self.effective.request.ring_bytes /= 2;
                    self.effective.request = self.effective.request.with_stacks_that_fit();
                }
                // Those of CPU samples are worth more.
                Err(SessionError::Open(OpenEventError::Refused {
                    errno: errno @ (Errno::MFILE | Errno::NFILE),
                    ..
                })) if self.cpus.is_empty() && !self.effective.request.kinds().is_empty() => {
                    self.notices
                        .extend(self.effective.without_occurrences(errno));
                }
                other => return other,
            }
        }
    }

    /// Whether per-thread events must be attached, because sampling is not system-wide.
    fn needs_threads(&self) -> bool {
        !self.effective.system_wide
    }

    /// Samples the threads of `list` and everything that they start. `what` names the target.
    ///
    /// Does nothing if sampling is system-wide.
    ///
    /// # Errors
    /// Returns [`SessionError::Open`] if the kernel denies access to all threads.
    pub fn attach(&mut self, what: &str, list: impl Fn() -> Vec<Tid>) -> Result<(), SessionError> {
        self.attach_on(|_| true, list).map_err(|(cpu, errno)| {
            let request = &self.effective.request;
            SessionError::Open(OpenEventError::from_errno(request, errno, what, cpu))
        })
    }

    fn attach_on(
        &mut self,
        is_included: impl Fn(&CpuEvents) -> bool,
        list: impl Fn() -> Vec<Tid>,
    ) -> Result<(), (u32, Errno)> {
        let included = self.cpus.iter().filter(|cpu| is_included(cpu));
        let rings: Vec<_> = included
            .map(|cpu| RingOwner {
                cpu: cpu.cpu,
                event: cpu.owner(),
            })
            .collect();
        match rings.first() {
            Some(first) if self.needs_threads() => self
                .threads
                .attach(&self.effective, &rings, list)
                .map_err(|errno| (first.cpu.0, errno))?,
            _ => {}
        }
        self.occurrences.extend(self.threads.occurrences());
        Ok(())
    }

    /// Returns notices about fallbacks, skipped threads and CPU hotplug events.
    #[must_use]
    pub fn notices(&self) -> Vec<Notice> {
        let mut notices = self.notices.clone();
        let ring_bytes = self.effective.request.ring_bytes;
        if ring_bytes != self.requested_ring_bytes {
            notices.push(Notice::new(
NoticeKind::RingBuffersReduced,
                format!(
                    "ring buffers reduced to {} KiB per CPU (requested {} KiB): memory limit, usually the limit of \
                     locked memory",
                    ring_bytes / 1024,
                    self.requested_ring_bytes / 1024
                ),
                "raise kernel.perf_event_mlock_kb or `ulimit -l`, or run as root or with the capability CAP_IPC_LOCK",
            )
            .counting(ring_bytes / 1024));
        }
        notices.extend(self.short_copy_notice());
        notices.extend(self.threads.notices());
        let kinds = Occurrence::ALL.into_iter();
        notices.extend(kinds.filter_map(|kind| self.occurrence_notice(kind)));
        notices.extend(self.hotplug.notice(self.started));
        notices
    }

    /// Returns a notice if stack copies are shorter than requested to fit the ring buffers.
    fn short_copy_notice(&self) -> Option<Notice> {
        let request = &self.effective.request;
        let (copied, requested) = (request.stack_bytes(), request.call_graph.stack_bytes());
        (copied < requested).then(|| {
            let what = format!(
                "copied at most {copied} bytes of each stack (requested {requested}): ring buffers of {} KiB hold no \
                 more at {} Hz; deeper stacks may be truncated",
                request.ring_bytes / 1024,
                request.frequency_hz
            );
            Notice::new(
NoticeKind::StackCopiesReduced,
                what,
                "raise -buffersize, unless locked memory is limited, or lower -freq",
            )
            .counting(copied)
        })
    }

    /// Returns a notice if more than one in a hundred occurrences is missing among the samples.
    fn occurrence_notice(&self, kind: Occurrence) -> Option<Notice> {
        let open = self.cpus.iter().flat_map(|cpu| &cpu.occurrences);
        let open = open.filter(|events| events.kind() == kind);
        let open = open.filter_map(OccurrenceEvents::count);
        let closed = self.occurrences_of_closed.iter();
        let closed = closed
            .filter(|(of, _)| *of == kind)
            .map(|(_, count)| *count);
        let [mut all, mut not_sampled, mut sampled, mut dropped] = [0_u64; 4];
        for count in open.chain(closed) {
            all = all.saturating_add(count.all);
            not_sampled = not_sampled.saturating_add(count.not_sampled);
            sampled = sampled.saturating_add(count.sampled);
            dropped = dropped.saturating_add(count.dropped.unwrap_or_default());
        }
        let of_kind = |counts: &FxHashMap<_, u64>| counts.get(&kind).copied().unwrap_or_default();
        let dropped = dropped.max(of_kind(&self.reported_losses));
        let without_record = sampled.saturating_sub(of_kind(&self.drained_occurrences));
        let without_record = without_record.saturating_sub(dropped);
        let explained = not_sampled.saturating_add(dropped);
        let missing = explained.saturating_add(without_record);
        (missing.saturating_mul(MIN_MISSING) > all).then(|| {
            let name = kind.name();
            let (what, remedy) = match without_record > explained {
                true => (
                    format!(
                        "{missing} of {all} {name} are missing: the kernel made no records of them, as Linux 6.18 does \
                         for interrupts of an idle CPU that was offline once"
                    ),
                    "those by timers and devices are too few",
                ),
                false => (
                    format!(
                        "{missing} of {all} {name} are missing: the first 25 ms of a burst are not sampled in full, \
                         nor what follows while perfcollect gets no CPU"
                    ),
                    "a longer capture misses a smaller part",
                ),
            };
            let notice = Notice::new(NoticeKind::CountersMissing, what, remedy);
            notice.about(name).counting(missing as usize)
        })
    }

    /// Returns the kernel's counts of lost records by CPU, but for occurrences. They are empty before Linux 6.0.
    #[must_use]
    pub fn lost(&self) -> BTreeMap<u32, u64> {
        let mut lost = BTreeMap::new();
        let cpus = self.cpus.iter();
        let by_open = cpus.filter_map(|cpu| Some((cpu.cpu, cpu.lost()?)));
        let by_closed = self.lost_by_closed.iter().copied();
        for (cpu, records) in by_open.chain(by_closed).chain(self.threads.lost()) {
            *lost.entry(cpu.0).or_default() += records;
        }
        lost
    }

    /// Returns the ids of the sampled CPUs.
    #[must_use]
    pub fn cpu_ids(&self) -> Vec<u32> {
        let alive = self.cpus.iter().filter(|cpu| cpu.dead_since.is_none());
        alive.map(|cpu| cpu.cpu.0).collect()
    }

    /// Returns the number of sampled CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cpu_ids().len()
    }

    /// Returns the sampling that the kernel granted.
    #[must_use]
    pub fn granted(&self) -> Granted {
        Granted::new(&self.effective)
    }

    /// Returns the event that triggers samples.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.effective.request.clock
    }

    /// Returns whether samples of the clock have a period. Otherwise it is the requested one.
    #[must_use]
    pub fn has_periods(&self) -> bool {
        self.effective.request.has_periods()
    }

    /// Starts recording mappings, names, forks and exits of all processes.
    ///
    /// Does nothing if sampling is not system-wide. Attached threads are then sampled already, and
    /// a command is sampled from its exec on.
    ///
    /// # Errors
    /// Returns [`SessionError::Enable`] if an event cannot be enabled.
    pub fn start_tracking(&self) -> Result<(), SessionError> {
        self.enable(0)
    }

    /// Samples only those wake-ups that a filter of the tracepoint lets pass. Call once, before sampling starts.
    pub fn filter_wakeups(&mut self, filter: CString) {
        for cpu in &self.cpus {
            cpu.filter(Occurrence::Wakeup, &filter);
        }
        self.wakeup_filter = Some(filter);
    }

    /// Samples all wake-ups from now on.
    ///
    /// # Errors
    /// Events cannot be opened or enabled. Then some CPUs keep the filter.
    pub fn unfilter_wakeups(&mut self) -> Result<(), SessionError> {
        const KIND: Occurrence = Occurrence::Wakeup;
        self.wakeup_filter = None;
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.dead_since.is_none()) {
            let opened = open_occurrences(&self.effective, KIND, cpu.cpu.0)?;
            let mut kinds = cpu.occurrences.iter_mut();
            let events = kinds.find(|events| events.kind() == KIND);
            if let (Some(events), Some((opened, Some(counter)))) = (events, opened) {
                let replaced = events.replace(opened, counter);
                replaced.map_err(SessionError::Enable)?;
                self.occurrences.extend(events.sampled());
            }
        }
        Ok(())
    }

    /// Starts sampling all processes.
    ///
    /// # Errors
    /// Returns [`SessionError::Enable`] if an event cannot be enabled.
    pub fn start_sampling(&mut self) -> Result<(), SessionError> {
        self.started = now();
        self.is_sampling = true;
        self.enable(1)?;
        match self.needs_threads() {
            true => Ok(()),
            false => start_occurrences(&mut self.cpus),
        }
    }

    fn enable(&self, event: usize) -> Result<(), SessionError> {
        if self.needs_threads() {
            return Ok(());
        }
        let events = self.cpus.iter().filter_map(|cpu| cpu.events.get(event));
        enable_all(events)
    }

    /// Stops recording. The records in the ring buffers can still be drained.
    ///
    /// # Errors
    /// Returns [`SessionError::Enable`] if an event cannot be disabled.
    pub fn stop(&self) -> Result<(), SessionError> {
        let mut cpus = self.cpus.iter();
        cpus.try_for_each(CpuEvents::stop)
            .map_err(SessionError::Enable)?;
        self.threads.stop().map_err(SessionError::Enable)
    }

    /// Chooses the lengths of stack copies.
    ///
    /// `needed` has the largest number of stack bytes that a sample of each CPU has needed since
    /// the last call.
    pub fn adapt_copies(&mut self, needed: impl IntoIterator<Item = (Cpu, u64)>) {
        for (cpu, bytes) in needed {
            let mut alive = self.cpus.iter_mut();
            if let Some(events) = alive.find(|of| of.cpu == cpu && of.dead_since.is_none()) {
                events.adapt_copies(bytes);
            }
        }
    }

    /// Returns descriptors that become readable when a ring buffer is a quarter full.
    pub fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.cpus
            .iter()
            .flat_map(CpuEvents::owners)
            .map(AsFd::as_fd)
    }

    /// Handles CPUs that went offline or came online, at most once per second.
    ///
    /// `list` returns the threads to sample if sampling is not system-wide.
    pub fn follow_cpus(&mut self, list: impl Fn() -> Vec<Tid>) {
        let now = now();
        let Some((online, offline)) = self.hotplug.changes(now) else {
            return;
        };
        self.close_dead(now);
        for &cpu in &offline {
            self.hotplug
                .record(now, Cpu(cpu), HotplugEvent::WentOffline);
        }
        let mut missing = online.clone();
        if self.needs_threads() {
            // The kernel resumes per-thread events when their CPU comes online.
            missing.retain(|id| !self.cpus.iter().any(|cpu| cpu.cpu.0 == *id));
        } else {
            let alive = self.cpus.iter_mut().filter(|cpu| cpu.dead_since.is_none());
            for cpu in alive {
                let id = cpu.cpu.0;
                let has_changed = offline.contains(&id) || online.contains(&id);
                if has_changed || cpu.is_dead() {
                    cpu.dead_since = Some(now);
                    if !has_changed {
                        missing.push(id);
                    }
                }
            }
        }
        for &cpu in &online {
            self.hotplug.record(now, Cpu(cpu), HotplugEvent::CameOnline);
        }
        for cpu in missing {
            if !online.contains(&cpu) {
                self.hotplug.record(now, Cpu(cpu), HotplugEvent::WasOffline);
            }
            if let Err(error) = self.add_cpu(cpu, &list) {
                let event = HotplugEvent::NotSampled(error.to_string());
                self.hotplug.record(now, Cpu(cpu), event);
            }
        }
    }

    /// Samples one more CPU.
    fn add_cpu(&mut self, id: u32, list: &impl Fn() -> Vec<Tid>) -> Result<(), SessionError> {
        for (mut cpu, rings) in self.open_cpus(&[id])? {
            if let Some(filter) = &self.wakeup_filter {
                cpu.filter(Occurrence::Wakeup, filter);
            }
            if !self.needs_threads() {
                let count = if self.is_sampling {
                    cpu.events.len()
                } else {
                    1
                };
                enable_all(&cpu.events[..count])?;
                if self.is_sampling {
                    start_occurrences([&mut cpu])?;
                }
            }
            self.push_cpu(cpu, rings);
        }
        self.attach_on(|cpu| cpu.cpu.0 == id, list)
            .map_err(|(cpu, errno)| {
                OpenEventError::from_errno(&self.effective.request, errno, "the target", cpu)
            })?;
        Ok(())
    }

    /// Closes dead events and unmaps their ring buffers, after [`LINGER_NS`].
    fn close_dead(&mut self, now: Nanos) {
        let is_drained = |cpu: &CpuEvents| {
            cpu.dead_since
                .is_some_and(|since| now.0.saturating_sub(since.0) > LINGER_NS)
        };
        while let Some(at) = self.cpus.iter().position(is_drained) {
            let cpu = self.cpus.swap_remove(at);
            self.rings.swap_remove(at, cpu.owners().count());
            let counts = cpu.occurrences.iter();
            let counts = counts.filter_map(|events| Some((events.kind(), events.count()?)));
            self.occurrences_of_closed.extend(counts);
            self.lost_by_closed.push((cpu.cpu, cpu.lost().unwrap_or(0)));
        }
    }

    /// Passes records older than the reorder window to `each`, until that returns
    /// [`ControlFlow::Break`]. Returns the time before which no record is left.
    pub fn drain(&mut self, each: impl FnMut(Nanos, Record<'_>) -> ControlFlow<()>) -> Nanos {
        let flush_limit = Nanos(now().0.saturating_sub(REORDER_WINDOW_NS));
        let drained = self.drain_until(flush_limit, each);
        if !self.needs_threads() {
            let frequency_hz = self.effective.request.frequency_hz;
            for cpu in self.cpus.iter_mut().filter(|cpu| cpu.dead_since.is_none()) {
                for events in &mut cpu.occurrences {
                    events.adapt(frequency_hz, now());
                }
            }
        }
        drained
    }

    /// Returns whether the ring buffers have room for the records of some more time.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.rings.have_room()
    }

    /// Passes all records to `each`. Call after [`PerfSession::stop`].
    pub fn drain_all(&mut self, mut each: impl FnMut(Nanos, Record<'_>)) {
        self.drain_until(Nanos(u64::MAX), |time, record| {
            each(time, record);
            ControlFlow::Continue(())
        });
    }

    /// Passes records that are new since the last preview to `each`, before they are in order.
    ///
    /// The records stay in the ring buffers until they are drained.
    pub fn preview(&mut self, mut each: impl FnMut(&Record<'_>)) {
        let occurrences = &self.occurrences;
        let is_occurrence = |record: &Record<'_>| match record {
            Record::Sample(sample) => occurrences.contains_key(&sample.event),
            _ => false,
        };
        self.rings.preview(|record| {
            // Only the stacks of CPU samples are walked early.
            if !is_occurrence(record) {
                each(record);
            }
        });
    }

    fn drain_until(
        &mut self,
        flush_limit: Nanos,
        mut each: impl FnMut(Nanos, Record<'_>) -> ControlFlow<()>,
    ) -> Nanos {
        let needs_threads = self.needs_threads();
        let Self {
            rings,
            threads,
            occurrences,
            drained_occurrences,
            reported_losses,
            ..
        } = self;
        // Those of threads are in the ring buffers of CPU samples.
        let of_own_ring = |event: Option<u64>| occurrences.get(&event.filter(|_| !needs_threads)?);
        rings.drain_until(flush_limit, |time, record| {
            let sampled = match &record {
                Record::Sample(sample) => occurrences.get(&sample.event),
                Record::Lost { records, event, .. } => {
                    if let Some(of) = of_own_ring(*event) {
                        *reported_losses.entry(of.kind).or_default() +=
                            records.saturating_mul(of.period);
                        return ControlFlow::Continue(());
                    }
                    None
                }
                Record::Throttle { event, .. } | Record::Unthrottle { event, .. } => {
                    // What is not sampled meanwhile is counted.
                    if of_own_ring(*event).is_some() {
                        return ControlFlow::Continue(());
                    }
                    None
                }
                _ => None,
            };
            let (record, drained) = match (record, sampled) {
                (Record::Sample(sample), Some(&SampledOccurrence { kind, period })) => {
                    let record = Record::Occurrences(kind, SampleRecord { period, ..sample });
                    (record, Some((kind, period)))
                }
                (record, _) => (record, None),
            };
            if needs_threads && !threads.accepts(&record) {
                return ControlFlow::Continue(());
            }
            // A record that waits comes again.
            each(time, record)?;
            if let Some((kind, period)) = drained {
                *drained_occurrences.entry(kind).or_default() += period;
            }
            ControlFlow::Continue(())
        })
    }

    /// Returns the number of malformed records plus corrupt ring buffers.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.rings.malformed()
    }

    /// Returns the number of records that were drained out of order.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.rings.late()
    }
}

fn start_occurrences<'a>(
    cpus: impl IntoIterator<Item = &'a mut CpuEvents>,
) -> Result<(), SessionError> {
    let mut events = cpus.into_iter().flat_map(|cpu| &mut cpu.occurrences);
    events
        .try_for_each(OccurrenceEvents::start)
        .map_err(SessionError::Enable)
}

fn enable_all<'a>(events: impl IntoIterator<Item = &'a Event>) -> Result<(), SessionError> {
    events
        .into_iter()
        .try_for_each(|event| event.set_enabled(true))
        .map_err(SessionError::Enable)
}

#[cfg(test)]
#[path = "recorder.rs"]
mod recorder;
#[cfg(test)]
pub(crate) use recorder::record;
#[cfg(test)]
#[path = "occurrence_tests.rs"]
mod occurrence_tests;
