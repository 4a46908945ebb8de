//! A part of a trace's time.

use std::ops::Range;

use crate::trace::Nanos;

/// A part of a trace's time, in seconds after the capture's start. By default all of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Start.
    pub from: Option<f64>,
    /// End, which does not belong to it.
    pub to: Option<f64>,
}

impl Times {
    /// Returns whether it is all of the time.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.from.is_none() && self.to.is_none()
    }

    /// Returns it on the clock on which the capture starts at `start_ns`.
    #[must_use]
    pub fn range(&self, start_ns: u64) -> Range<Nanos> {
        let at = |seconds: f64| start_ns.saturating_add((seconds * 1e9) as u64);
        let start = self.from.map_or(0, at);
        let end = self.to.map_or(u64::MAX, at);
        Nanos(start)..Nanos(end)
    }
}
