//! The events that sample the page faults of one CPU: one for each period, of which one is enabled.

use std::io;

use super::clock::now;
use super::event::{Event, Role};
use super::fault_period::{FaultPeriod, PERIODS, THREAD_PERIOD};
use super::request::EffectiveRequest;

/// Events that sample page faults.
pub(super) struct FaultEvents {
    /// In the order of [`PERIODS`]; one event if threads inherit it.
    events: Vec<FaultEvent>,
    period: FaultPeriod,
}

struct FaultEvent {
    id: u64,
    period: u64,
    event: Event,
}

impl FaultEvents {
    /// Returns the roles of the events and their periods.
    pub(super) fn roles(effective: &EffectiveRequest) -> Vec<(Role, u64)> {
        match (effective.request.faults, effective.system_wide) {
            (false, _) => Vec::new(),
            (true, true) => PERIODS.map(|period| (Role::Faults(period), period)).into(),
            (true, false) => vec![(Role::FaultsOfChildren, THREAD_PERIOD)],
        }
    }

    /// Takes open events with their periods. They write to the ring buffer of `owner`.
    pub(super) fn new(opened: Vec<(Event, u64)>, owner: &Event) -> io::Result<Option<Self>> {
        let events = opened.into_iter().map(|(event, period)| {
            event.write_to(owner)?;
            let id = event.id()?;
            Ok(FaultEvent { id, period, event })
        });
        let events: Vec<_> = events.collect::<io::Result<_>>()?;
        let period = FaultPeriod::new(now());
        Ok((!events.is_empty()).then_some(Self { events, period }))
    }

    pub(super) fn events(&self) -> impl Iterator<Item = &Event> {
        self.events.iter().map(|of_period| &of_period.event)
    }

    /// Returns the id and the period of each event.
    pub(super) fn periods(&self) -> impl Iterator<Item = (u64, u64)> {
        self.events
            .iter()
            .map(|of_period| (of_period.id, of_period.period))
    }

    /// Starts sampling.
    pub(super) fn start(&self) -> io::Result<()> {
        match self.events.get(self.period.current()) {
            Some(current) => current.event.set_enabled(true),
            None => Ok(()),
        }
    }

    /// Chooses the period, from the number of page faults since the last call.
    pub(super) fn adapt(&mut self, faults: u64, frequency_hz: u32) {
        let before = self.period.current();
        if !self.period.note(faults, frequency_hz, now()) {
            return;
        }
        let [off, on] = [before, self.period.current()].map(|row| self.events.get(row));
        // If that fails, faults are missing or have a longer period: each sample still counts for its own.
        if let (Some(off), Some(on)) = (off, on) {
            let _ = off.event.set_enabled(false);
            let _ = on.event.set_enabled(true);
        }
    }
}
