//! The clock of records.

use crate::ids::Nanos;

/// Returns the current time of the clock of all records, CLOCK_MONOTONIC.
#[must_use]
pub fn now() -> Nanos {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
