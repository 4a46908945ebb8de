//! Time zero of PerfView's views of samples and of events.

use super::utc::UtcTime;
use crate::trace::{Nanos, Sample, Trace};

const SECOND_NS: u64 = 1_000_000_000;
/// Maximum time between the start of event sessions and of sampling. Earlier times are invalid.
const LEAD_NS: u64 = 10 * SECOND_NS;

/// PerfView loses a time without a CPU that starts at time zero or before.
const BEFORE_WAITS_NS: u64 = 1000;

/// A whole second of UTC, before the first sample, the first event and the start of the first wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeZero {
    /// Nanoseconds on the clock of the trace, shifted by `shift`; never 0.
    zero: u64,
    /// One second if the first time is in the first second after boot, else 0.
    shift: u64,
    /// The same time in nanoseconds since 1970.
    unix: u64,
}

impl TimeZero {
    pub(super) fn new(trace: &Trace) -> Self {
        let sample = trace.samples.iter().next().map(|sample| sample.time);
        let waits = trace.blocked.iter();
        let start = |wait: Sample| wait.time.0.saturating_sub(wait.weight.0);
        let wait = waits
            .map(start)
            .min()
            .map(|start| Nanos(start.saturating_sub(BEFORE_WAITS_NS)));
        let first = [sample, trace.events.first_time(), wait]
            .into_iter()
            .flatten()
            .min()
            .map_or(trace.info.start_ns, |first| first.0)
            .max(trace.info.start_ns.saturating_sub(LEAD_NS));
        // PerfView does not accept 0.0 as time zero.
        let shift = if first < SECOND_NS { SECOND_NS } else { 0 };
        let (start, start_unix) = (trace.info.start_ns, trace.info.start_unix_ns);
        let first = first.saturating_add(shift);
        let unix = (u128::from(first) + u128::from(start_unix)).saturating_sub(u128::from(start));
        let unix = u64::try_from(unix).unwrap_or(u64::MAX);
        Self {
            zero: first - unix % SECOND_NS,
            shift,
            unix: unix - unix % SECOND_NS,
        }
    }

    /// Returns time zero on the clock of the trace, not shifted. Negative shortly after boot.
    pub(super) fn unshifted(self) -> i64 {
        self.zero as i64 - self.shift as i64
    }

    /// Returns time zero on the shifted clock of the trace.
    pub(super) fn monotonic(self) -> u64 {
        self.zero
    }

    /// Converts a time to the shifted clock of the trace.
    pub(super) fn shifted(self, time: Nanos) -> u64 {
        time.0.saturating_add(self.shift)
    }

    /// Returns the clock offset of a CTF trace, which places a marker event with time 1 at time
    /// zero.
    ///
    /// PerfView rounds the offset down to whole seconds and uses it as the time of the first event.
    pub(super) fn ctf_offset(self) -> u64 {
        self.unix.saturating_add(1)
    }

    /// Converts a time to the clock of the CTF trace.
    pub(super) fn ctf_time(self, time: Nanos) -> u64 {
        let since = self.shifted(time).saturating_sub(self.zero);
        since.saturating_sub(1).max(1)
    }

    /// Returns year, month, day of the week, day, hour, minute, second, millisecond.
    pub(super) fn system_time(self) -> [u16; 8] {
        let time = UtcTime::from_unix_ns(self.unix);
        [
            time.year,
            time.month,
            time.weekday,
            time.day,
            time.hour,
            time.minute,
            time.second,
            0,
        ]
        .map(|part| part as u16)
    }

    /// Formats time zero as in `20260102-030405`.
    pub(super) fn date_and_time(self) -> String {
        let [year, month, _, day, hour, minute, second, _] = self.system_time();
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::CaptureInfo;

    fn zero(start_ns: u64, start_unix_ns: u64) -> TimeZero {
        TimeZero::new(&Trace {
            info: CaptureInfo {
                start_ns,
                start_unix_ns,
                ..CaptureInfo::default()
            },
            ..Trace::default()
        })
    }

    #[test]
    fn time_zero_is_whole_utc_second_on_both_clocks() {
        let zero = zero(5_300_000_000, 1_700_000_000_100_000_000);
        assert_eq!(zero.monotonic(), 5_200_000_000);
        assert_eq!(zero.ctf_offset(), 1_700_000_000_000_000_001);
        // The nanoseconds since the second, minus 1 in the offset.
        assert_eq!(zero.ctf_time(Nanos(5_300_000_000)), 99_999_999);
        assert_eq!(zero.date_and_time(), "20231114-221320");
        // This day was a Tuesday.
        assert_eq!(zero.system_time(), [2023, 11, 2, 14, 22, 13, 20, 0]);
        assert_eq!(
            super::TimeZero::new(&Trace::default()).monotonic(),
            1_000_000_000
        );
    }
}
