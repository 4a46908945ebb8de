//! The events of one CPU and their ring buffers.

use std::ffi::CStr;
use std::io;

use rustix::io::Errno;

use super::clock::now;
use super::copy_length::CopyLength;
use super::event::{Event, Role};
use super::occurrence_events::{Occurrence, OccurrenceEvents};
use super::open_error::OpenEventError;
use super::request::EffectiveRequest;
use super::ring::Ring;
use super::session_error::SessionError;
use crate::ids::{Cpu, Nanos};

/// Tolerated difference between an event's enabled time and the elapsed time, per second.
const CLOCK_SLACK_NS: u64 = 100_000_000;

/// Open events of a CPU.
pub(super) struct CpuEvents {
    pub(super) cpu: Cpu,
    /// The first event owns the first ring buffer.
    pub(super) events: Vec<Event>,
    /// A sampler, disabled at first, that may take the place of the last event.
    short: Option<(Event, CopyLength)>,
    /// Sample what else was requested, each kind in a ring buffer for itself.
    pub(super) occurrences: Vec<OccurrenceEvents>,
    /// Time of the last check and the first event's enabled time (in nanoseconds) at that time.
    last_check: Option<(Nanos, u64)>,
    /// Time when perfcollect detected that the kernel had removed these events from their CPU.
    pub(super) dead_since: Option<Nanos>,
}

impl CpuEvents {
    pub(super) fn owner(&self) -> &Event {
        &self.events[0]
    }

    /// Returns how many records of the first ring buffer the kernel has dropped.
    pub(super) fn lost(&self) -> Option<u64> {
        let short = self.short.iter().map(|(event, _)| event);
        let events = self.events.iter().chain(short);
        events.map(Event::lost).sum()
    }

    /// Returns the event of each ring buffer that owns it.
    pub(super) fn owners(&self) -> impl Iterator<Item = &Event> {
        let first = self.events.first().into_iter();
        let own = self.occurrences.iter().filter_map(OccurrenceEvents::owner);
        first.chain(own)
    }

    /// Samples only those occurrences of a kind that a filter lets pass.
    pub(super) fn filter(&self, kind: Occurrence, filter: &CStr) {
        let mut kinds = self.occurrences.iter();
        if let Some(events) = kinds.find(|events| events.kind() == kind) {
            events.set_filter(filter);
        }
    }

    /// Stops recording.
    pub(super) fn stop(&self) -> io::Result<()> {
        let mut occurrences = self.occurrences.iter();
        occurrences.try_for_each(OccurrenceEvents::stop)?;
        let short = self.short.iter().map(|(event, _)| event);
        let mut events = short.chain(self.events.iter().rev());
        events.try_for_each(|event| event.set_enabled(false))
    }

    /// Chooses the length of stack copies. `bytes` is the most that a sample of this CPU has needed
    /// since the last call.
    pub(super) fn adapt_copies(&mut self, bytes: u64) {
        let Some((short, length)) = &mut self.short else {
            return;
        };
        let (Some(is_short), Some(long)) = (length.note(bytes, now()), self.events.last()) else {
            return;
        };
        let (off, on) = match is_short {
            true => (long, &*short),
            false => (&*short, long),
        };
        // Never both, as each sample counts for its whole period.
        let switched = off.set_enabled(false).and_then(|()| on.set_enabled(true));
        if switched.is_err() {
            // Long copies serve all stacks.
            let _ = long.set_enabled(true);
            self.short = None;
        }
    }

    /// Whether the kernel has removed the events from their CPU.
    ///
    /// The kernel removes system-wide events from a CPU that goes offline, even briefly during
    /// suspend, and does not restore them.
    pub(super) fn is_dead(&mut self) -> bool {
        let check = now();
        let Some(enabled) = self.owner().time_enabled() else {
            return false;
        };
        // `elapsed` is a lower bound: from after the previous read to before this one.
        let previous = self.last_check.replace((now(), enabled));
        previous.is_some_and(|(previous_check, previously_enabled)| {
            let elapsed = check.0.saturating_sub(previous_check.0);
            enabled.saturating_sub(previously_enabled) + CLOCK_SLACK_NS < elapsed
        })
    }
}

/// Returns the role of the event whose ring buffer all events of a CPU share.
pub(super) fn first_role(effective: &EffectiveRequest) -> Role {
    match effective.system_wide {
        true => Role::Tracker,
        false => Role::Children,
    }
}

/// Opens the events of a CPU and maps their ring buffers: the first one, and one for each of
/// [`CpuEvents::occurrences`]. Returns `None` if the CPU is offline.
pub(super) fn open_cpu(
    effective: &EffectiveRequest,
    cpu: u32,
) -> Result<Option<(CpuEvents, Vec<Ring>)>, SessionError> {
    let open = |role| open_event(effective, role, cpu);
    let Some(owner) = open(first_role(effective))? else {
        return Ok(None);
    };
    let map = |event: &Event| {
        let bytes = match effective.system_wide {
            true => effective.request.bytes_of_each_ring(),
            false => effective.request.ring_bytes,
        };
        Ring::map(event.file(), bytes).map_err(|source| SessionError::Ring { cpu, bytes, source })
    };
    let mut rings = vec![map(&owner)?];
    let mut events = vec![owner];
    let mut short = None;
    if effective.system_wide {
        let Some(sampler) = open(Role::Sampler)? else {
            return Ok(None);
        };
        sampler.write_to(&events[0]).map_err(SessionError::Enable)?;
        events.push(sampler);
        // Without it, for example at the limit of open files, all copies are long.
        if effective.request.may_copy_less()
            && let Ok(sampler) = Event::open(effective, Role::ShortSampler, cpu)
            && sampler.write_to(&events[0]).is_ok()
        {
            short = Some((sampler, CopyLength::new(now())));
        }
    }
    let mut occurrences = Vec::new();
    for kind in Occurrence::ALL {
        let Some((opened, counter)) = open_occurrences(effective, kind, cpu)? else {
            return Ok(None);
        };
        let Some((first, _)) = opened.first() else {
            continue;
        };
        let opened = match counter {
            Some(counter) => {
                rings.push(map(first)?);
                let budget = effective.request.occurrence_budget(kind);
                OccurrenceEvents::with_ring(kind, opened, counter, budget)
            }
            None => OccurrenceEvents::sharing(kind, opened, &events[0]),
        };
        occurrences.push(opened.map_err(SessionError::Enable)?);
    }
    let cpu_events = CpuEvents {
        cpu: Cpu(cpu),
        events,
        short,
        occurrences,
        last_check: None,
        dead_since: None,
    };
    Ok(Some((cpu_events, rings)))
}

/// The events that sample a kind of occurrences with their periods, and the one that counts all of them.
type OpenedOccurrences = (Vec<(Event, u64)>, Option<Event>);

/// Opens the events that sample a kind of occurrences, none if it was not requested. They are counted on the
/// whole system only. Returns `None` if the CPU is offline.
pub(super) fn open_occurrences(
    effective: &EffectiveRequest,
    kind: Occurrence,
    cpu: u32,
) -> Result<Option<OpenedOccurrences>, SessionError> {
    let mut opened = Vec::new();
    for (role, period) in OccurrenceEvents::roles(effective, kind) {
        let Some(event) = open_event(effective, role, cpu)? else {
            return Ok(None);
        };
        opened.push((event, period));
    }
    let is_counted = effective.system_wide && !opened.is_empty();
    let counter = is_counted.then(|| open_event(effective, Role::OccurrenceCounter(kind), cpu));
    Ok(match counter.transpose()? {
        Some(None) => None,
        counter => Some((opened, counter.flatten())),
    })
}

/// Opens an event. Returns `None` if the CPU is offline.
fn open_event(
    effective: &EffectiveRequest,
    role: Role,
    cpu: u32,
) -> Result<Option<Event>, OpenEventError> {
    match Event::open(effective, role, cpu) {
        Err(Errno::NODEV) => Ok(None),
        Err(errno) => Err(OpenEventError::from_errno(
            &effective.request,
            errno,
            "the whole system",
            cpu,
        )),
        Ok(event) => Ok(Some(event)),
    }
}
