//! The events that sample one kind of occurrences on one CPU: one for each period, of which one is enabled.

use std::ffi::CStr;
use std::io;

use super::clock::now;
use super::event::{Event, Role};
use super::occurrence_period::{OccurrencePeriod, PERIODS};
use super::request::EffectiveRequest;
use crate::ids::Nanos;

/// Frequency for which the periods are chosen.
const USUAL_HZ: u32 = 999;

/// Returns the first prime from a small number on.
fn prime_from(number: u64) -> u64 {
    let is_prime = |n: &u64| {
        (2..)
            .take_while(|d| d * d <= *n)
            .all(|d| !n.is_multiple_of(d))
    };
    (number.max(2)..).find(is_prime).unwrap_or(number)
}

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
    fn periods(self, frequency_hz: u32) -> [u64; PERIODS] {
        let periods = match self {
            // A page fault is one of many of a loop over a block of memory.
            Self::Fault => [31, 499, 8009],
            Self::Wakeup => [1, 31, 499],
        };
        // What is rare is worth a sample each at any frequency.
        let factor = USUAL_HZ.div_ceil(frequency_hz.max(1));
        let [shortest, longer @ ..] = periods;
        let [longer, longest] = longer.map(|period| prime_from(period * u64::from(factor)));
        [shortest, longer, longest]
    }

    /// Returns the row of the first period.
    fn first_period(self) -> usize {
        match self {
            Self::Fault => 0,
            // The first burst fits into the ring buffer.
            Self::Wakeup => 1,
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
///
/// The kernel disables an event after a number of samples until the next choice of the period: a reader that is
/// slow or stopped costs the other processes nothing.
pub(super) struct OccurrenceEvents {
    kind: Occurrence,
    /// Of those that have a ring buffer for themselves.
    own: Option<OwnRing>,
    /// In the order of the periods; one event if threads inherit it.
    events: Vec<OccurrenceEvent>,
    /// Events that were replaced. The first may own the ring buffer.
    replaced: Vec<OccurrenceEvent>,
}

/// What belongs to a ring buffer of occurrences.
struct OwnRing {
    /// Counts all occurrences.
    counter: Event,
    /// The count of counters that were replaced.
    counted_before: u64,
    /// Its count at the last choice of the period.
    counted: u64,
    period: OccurrencePeriod,
    /// Maximum number of samples between two choices.
    budget: u32,
}

struct OccurrenceEvent {
    id: u64,
    period: u64,
    event: Event,
    /// Number of samples that it may take in all.
    allowed: u64,
    /// Samples that the kernel had dropped at the last choice of the period.
    lost: u64,
}

impl OccurrenceEvent {
    fn new(event: Event, period: u64) -> io::Result<Self> {
        Ok(Self {
            id: event.id()?,
            period,
            event,
            allowed: 0,
            lost: 0,
        })
    }

    /// Returns how many of the allowed samples are left (0 if the kernel has disabled the event), and whether
    /// some were dropped since the last call. A read may interrupt the CPU of the event.
    fn follow(&mut self) -> (u64, bool) {
        let (count, lost) = self.event.count_and_lost().unwrap_or_default();
        let lost = lost.unwrap_or_default();
        let has_lost = std::mem::replace(&mut self.lost, lost) < lost;
        let taken = count / self.period.max(1);
        (self.allowed.saturating_sub(taken), has_lost)
    }

    /// Enables it for `budget` samples from now on, of which `left` are left.
    fn allow(&mut self, budget: u32, left: u64) -> io::Result<()> {
        let more = u64::from(budget).saturating_sub(left) as u32;
        match more {
            0 => self.event.set_enabled(true)?,
            more => self.event.allow(more)?,
        }
        self.allowed += u64::from(more);
        Ok(())
    }
}

/// Number of occurrences of a CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OccurrenceCount {
    /// All of them.
    pub(super) all: u64,
    /// Those while no event was enabled.
    pub(super) not_sampled: u64,
    /// Those that all samples stand for.
    pub(super) sampled: u64,
    /// Those that dropped samples stand for. `None` before Linux 6.0.
    pub(super) dropped: Option<u64>,
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
                let periods = kind.periods(effective.request.frequency_hz).into_iter();
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
    pub(super) fn sharing(
        kind: Occurrence,
        opened: Vec<(Event, u64)>,
        owner: &Event,
    ) -> io::Result<Self> {
        let events = opened.into_iter().map(|(event, period)| {
            event.write_to(owner)?;
            OccurrenceEvent::new(event, period)
        });
        Ok(Self {
            kind,
            own: None,
            events: events.collect::<io::Result<_>>()?,
            replaced: Vec::new(),
        })
    }

    /// Takes open events with their periods. They write to the ring buffer of the first of them. Between two
    /// choices of the period, they take at most `budget` samples.
    pub(super) fn with_ring(
        kind: Occurrence,
        opened: Vec<(Event, u64)>,
        counter: Event,
        budget: u32,
    ) -> io::Result<Self> {
        let mut periods = opened.iter().map(|(_, period)| *period);
        let periods = std::array::from_fn(|_| periods.next().unwrap_or(1));
        let mut events: Vec<OccurrenceEvent> = Vec::new();
        for (event, period) in opened {
            if let Some(first) = events.first() {
                event.write_to(&first.event)?;
            }
            events.push(OccurrenceEvent::new(event, period)?);
        }
        let own = OwnRing {
            counter,
            counted_before: 0,
            counted: 0,
            period: OccurrencePeriod::new(periods, kind.first_period(), now()),
            budget,
        };
        Ok(Self {
            kind,
            own: Some(own),
            events,
            replaced: Vec::new(),
        })
    }

    /// Replaces the events of a ring buffer by open ones with the same periods, and starts these.
    pub(super) fn replace(&mut self, opened: Vec<(Event, u64)>, counter: Event) -> io::Result<()> {
        let Some(owner) = self.owner() else {
            return Ok(());
        };
        let events = opened.into_iter().map(|(event, period)| {
            event.write_to(owner)?;
            OccurrenceEvent::new(event, period)
        });
        let events = events.collect::<io::Result<_>>()?;
        self.stop()?;
        self.replaced.append(&mut self.events);
        self.events = events;
        if let Some(own) = &mut self.own {
            let counted = own.counter.count().unwrap_or_default();
            own.counted_before = own.counted_before.saturating_add(counted);
            own.counter = counter;
            own.counted = 0;
        }
        self.start()
    }

    pub(super) fn kind(&self) -> Occurrence {
        self.kind
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|of_period| &of_period.event)
    }

    /// Returns the event that owns their ring buffer, if that is for themselves.
    pub(super) fn owner(&self) -> Option<&Event> {
        let first = self.replaced.iter().chain(&self.events).next();
        first.filter(|_| self.own.is_some()).map(|row| &row.event)
    }

    /// Returns how many occurrences there were, if they are counted.
    pub(super) fn count(&self) -> Option<OccurrenceCount> {
        let own = self.own.as_ref()?;
        let (all, _) = own.counter.count_and_lost()?;
        let all = all.saturating_add(own.counted_before);
        let (mut counted, mut sampled, mut dropped) = (0_u64, 0_u64, Some(0_u64));
        for row in self.replaced.iter().chain(&self.events) {
            let (count, lost) = row.event.count_and_lost().unwrap_or_default();
            counted = counted.saturating_add(count);
            sampled = sampled.saturating_add(count - count % row.period.max(1));
            let lost = lost.map(|samples| samples.saturating_mul(row.period));
            dropped = dropped
                .zip(lost)
                .map(|(sum, lost)| sum.saturating_add(lost));
        }
        Some(OccurrenceCount {
            all,
            not_sampled: all.saturating_sub(counted),
            sampled,
            dropped,
        })
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

    /// Samples only what a filter of the tracepoint lets pass. Without it, there are more samples than
    /// needed.
    pub(super) fn set_filter(&self, filter: &CStr) {
        let counter = self.own.iter().map(|own| &own.counter);
        for event in counter.chain(self.events()) {
            let _ = event.set_filter(filter);
        }
    }

    /// Starts sampling.
    pub(super) fn start(&mut self) -> io::Result<()> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        own.counter.set_enabled(true)?;
        match self.events.get_mut(own.period.current()) {
            Some(current) => current.allow(own.budget, 0),
            None => Ok(()),
        }
    }

    /// Stops sampling.
    pub(super) fn stop(&self) -> io::Result<()> {
        let counter = self.own.iter().map(|own| &own.counter);
        self.events()
            .chain(counter)
            .try_for_each(|event| event.set_enabled(false))
    }

    /// Chooses the period, from the number of occurrences since the last choice.
    pub(super) fn adapt(&mut self, frequency_hz: u32, now: Nanos) {
        let Some(own) = self.own.as_mut().filter(|own| own.period.is_due(now)) else {
            return;
        };
        let counted = own.counter.count().unwrap_or_default();
        let count = counted.saturating_sub(std::mem::replace(&mut own.counted, counted));
        let before = own.period.current();
        let Some(row) = self.events.get_mut(before) else {
            return;
        };
        let (left, has_lost) = row.follow();
        match has_lost || left == 0 {
            true => own.period.note_lost(count, frequency_hz, now),
            false => own.period.note(count, frequency_hz, now),
        };
        let current = own.period.current();
        // If that fails, samples are missing or have a longer period: each still counts for its own.
        if current == before {
            // Enabled without samples left, it would have no limit.
            if left < own.budget.into() {
                let _ = row.allow(own.budget, left);
            }
            return;
        }
        let _ = row.event.set_enabled(false);
        if let Some(row) = self.events.get_mut(current) {
            let (left, _) = row.follow();
            let _ = row.allow(own.budget, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lower_frequency_has_longer_periods() {
        let periods = |hz| Occurrence::Wakeup.periods(hz);
        assert_eq!([periods(999), periods(10_000)], [[1, 31, 499]; 2]);
        assert_eq!(periods(99), [1, 347, 5501]);
        assert_eq!(Occurrence::Fault.periods(999), [31, 499, 8009]);
        assert!(Occurrence::Fault.periods(0)[2] > 8_000_000);
    }
}
