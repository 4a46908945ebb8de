//! The events that sample one kind of occurrences on one CPU: one for each period, of which one is enabled.

use std::io;

use super::clock::now;
use super::event::{Event, Role};
use super::occurrence_period::{OccurrencePeriod, PERIODS};
use super::request::EffectiveRequest;
use crate::ids::Nanos;

/// What is sampled once in a number of times, beside CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Occurrence {
    /// A page fault.
    Fault,
    /// A thread wakes another one.
    Wakeup,
}

impl Occurrence {
    pub(super) const ALL: [Self; 2] = [Self::Fault, Self::Wakeup];

    /// Returns the periods, the smallest first. Primes do not fall in step with a loop.
    fn periods(self) -> [u64; PERIODS] {
        match self {
            // A page fault is one of many of a loop over a block of memory.
            Self::Fault => [31, 499, 8009],
            Self::Wakeup => [1, 31, 499],
        }
    }

    /// Returns the row of the first period.
    fn first_period(self) -> usize {
        match self {
            Self::Fault => 0,
            // A program that switches as often as it can does so all the time.
            Self::Wakeup => PERIODS - 1,
        }
    }

    /// Returns the period of events that threads inherit, which cannot change, if there are such events.
    pub(super) fn thread_period(self) -> Option<u64> {
        match self {
            Self::Fault => Some(61),
            // The thread that wakes another one is of any process.
            Self::Wakeup => None,
        }
    }

    /// Returns its name in a notice.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Fault => "page-faults",
            Self::Wakeup => "wake-ups",
        }
    }
}

/// Events that sample one kind of occurrences.
pub(super) struct OccurrenceEvents {
    kind: Occurrence,
    /// In the order of the periods; one event if threads inherit it.
    events: Vec<OccurrenceEvent>,
    period: OccurrencePeriod,
    /// Records that the kernel had dropped at the last choice.
    lost: u64,
}

struct OccurrenceEvent {
    id: u64,
    period: u64,
    event: Event,
}

/// A kind of samples, and how many occurrences each stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SampledOccurrence {
    pub(super) kind: Occurrence,
    pub(super) period: u64,
}

impl OccurrenceEvents {
    /// Returns the roles of the events of a kind and their periods.
    pub(super) fn roles(effective: &EffectiveRequest, kind: Occurrence) -> Vec<(Role, u64)> {
        let inherited = kind.thread_period();
        match (effective.request.samples(kind), effective.system_wide) {
            (false, _) => Vec::new(),
            (true, true) => {
                let periods = kind.periods().into_iter();
                periods
                    .map(|period| (Role::Occurrences(kind, period), period))
                    .collect()
            }
            (true, false) => {
                let inherited = inherited.map(|period| (Role::OccurrencesOfChildren(kind), period));
                inherited.into_iter().collect()
            }
        }
    }

    /// Takes open events with their periods. They write to the ring buffer of `owner`.
    pub(super) fn new(
        kind: Occurrence,
        opened: Vec<(Event, u64)>,
        owner: &Event,
    ) -> io::Result<Option<Self>> {
        let events = opened.into_iter().map(|(event, period)| {
            event.write_to(owner)?;
            let id = event.id()?;
            Ok(OccurrenceEvent { id, period, event })
        });
        let events: Vec<_> = events.collect::<io::Result<_>>()?;
        let period = OccurrencePeriod::new(kind.periods(), kind.first_period(), now());
        Ok((!events.is_empty()).then_some(Self {
            kind,
            events,
            period,
            lost: 0,
        }))
    }

    pub(super) fn kind(&self) -> Occurrence {
        self.kind
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|of_period| &of_period.event)
    }

    /// Returns the id of each event, and what its samples stand for.
    pub(super) fn sampled(&self) -> impl Iterator<Item = (u64, SampledOccurrence)> {
        self.events.iter().map(|of_period| {
            let sampled = SampledOccurrence {
                kind: self.kind,
                period: of_period.period,
            };
            (of_period.id, sampled)
        })
    }

    /// Starts sampling.
    pub(super) fn start(&self) -> io::Result<()> {
        match self.events.get(self.period.current()) {
            Some(current) => current.event.set_enabled(true),
            None => Ok(()),
        }
    }

    /// Chooses the period, from the number of occurrences since the last call.
    pub(super) fn adapt(&mut self, count: u64, frequency_hz: u32, now: Nanos) {
        let before = self.period.current();
        let lost = match self.period.is_due(now) {
            true => self.events().filter_map(Event::lost).sum(),
            false => self.lost,
        };
        let has_changed = match std::mem::replace(&mut self.lost, lost) < lost {
            true => self.period.note_lost(now),
            false => self.period.note(count, frequency_hz, now),
        };
        if !has_changed {
            return;
        }
        let [off, on] = [before, self.period.current()].map(|row| self.events.get(row));
        // If that fails, samples are missing or have a longer period: each still counts for its own.
        if let (Some(off), Some(on)) = (off, on) {
            let _ = off.event.set_enabled(false);
            let _ = on.event.set_enabled(true);
        }
    }
}
