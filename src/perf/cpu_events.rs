//! What watches one CPU: its events and their ring.

use rustix::io::Errno;

use super::effective_request::EffectiveRequest;
use super::event::{Event, Role};
use super::open_error::OpenEventError;
use super::ring::Ring;
use super::session::{SessionError, now};
use crate::ids::{Cpu, Nanos};

/// How far the clocks of an event and of the system may differ in a second.
const CLOCK_SLACK_NS: u64 = 100_000_000;

/// What watches a CPU.
pub(super) struct CpuEvents {
    pub(super) cpu: Cpu,
    /// The ring is the first one's.
    pub(super) events: Vec<Event>,
    /// When the first was last asked how long it was at work, and its answer in nanoseconds.
    asked: Option<(Nanos, u64)>,
    /// When it was found that these events have no CPU any more.
    pub(super) gone: Option<Nanos>,
}

impl CpuEvents {
    pub(super) fn owner(&self) -> &Event {
        &self.events[0]
    }

    pub(super) fn lost(&self) -> Option<u64> {
        self.events.iter().map(Event::lost).sum()
    }

    /// The kernel takes events of the machine off a CPU that goes offline, also for a moment (as when the machine
    /// sleeps), and does not put them back.
    pub(super) fn is_dead(&mut self) -> bool {
        let asking = now();
        let Some(enabled) = self.owner().time_enabled() else {
            return false;
        };
        // Less time than passed for the event: from before this question to after the last one.
        let before = self.asked.replace((now(), enabled));
        before.is_some_and(|(answered, then)| {
            let passed = asking.0.saturating_sub(answered.0);
            enabled.saturating_sub(then) + CLOCK_SLACK_NS < passed
        })
    }
}

/// The event whose ring all of a CPU share.
pub(super) fn first_role(grant: &EffectiveRequest) -> Role {
    match grant.machine {
        true => Role::Tracker,
        false => Role::Children,
    }
}

/// The events of a CPU and their ring; `None`: the CPU is not there.
pub(super) fn open_cpu(
    grant: &EffectiveRequest,
    cpu: u32,
) -> Result<Option<(CpuEvents, Ring)>, SessionError> {
    let open = |role| match Event::open(grant, role, cpu) {
        Err(Errno::NODEV) => Ok(None),
        Err(errno) => Err(OpenEventError::of(
            &grant.request,
            errno,
            "this machine",
            cpu,
        )),
        Ok(event) => Ok(Some(event)),
    };
    let Some(owner) = open(first_role(grant))? else {
        return Ok(None);
    };
    let bytes = grant.request.ring_bytes;
    let ring = Ring::map(owner.file(), bytes).map_err(|source| SessionError::Ring {
        cpu,
        bytes,
        source,
    })?;
    let mut events = vec![owner];
    if grant.machine {
        let Some(sampler) = open(Role::Sampler)? else {
            return Ok(None);
        };
        sampler.write_to(&events[0]).map_err(SessionError::Enable)?;
        events.push(sampler);
    }
    let on = CpuEvents {
        cpu: Cpu(cpu),
        events,
        asked: None,
        gone: None,
    };
    Ok(Some((on, ring)))
}
