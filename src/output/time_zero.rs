//! The moment from which PerfView's views of a trace count: those of the samples and those of the events.

use crate::trace::{Nanos, Trace};

const SECOND_NS: u64 = 1_000_000_000;
/// Sessions of events begin shortly before sampling. A time before that is no time, whoever says so.
const LEAD_NS: u64 = 10 * SECOND_NS;
const DAY_SECONDS: u64 = 86_400;

/// A whole second of UTC, before the first sample and the first event.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeZero {
    /// Nanoseconds on the clock of the trace, moved by `shift`; never 0.
    zero: u64,
    /// Where the machine has just started there is no whole second before; times are one later then.
    shift: u64,
    /// The same moment in nanoseconds since 1970.
    unix: u64,
}

impl TimeZero {
    pub(super) fn of(trace: &Trace) -> Self {
        let sample = trace.samples.iter().next().map(|sample| sample.time);
        let first = [sample, trace.events.first_time()]
            .into_iter()
            .flatten()
            .min()
            .map_or(trace.info.start_ns, |first| first.0)
            .max(trace.info.start_ns.saturating_sub(LEAD_NS));
        // A time of exactly 0.0 does not count as time zero in PerfView.
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

    /// On the clock of the trace, not moved: negative where the machine had just started.
    pub(super) fn unmoved(self) -> i64 {
        self.zero as i64 - self.shift as i64
    }

    /// On the clock of the trace, moved.
    pub(super) fn monotonic(self) -> u64 {
        self.zero
    }

    /// A time on the clock of the trace, moved.
    pub(super) fn moved(self, time: Nanos) -> u64 {
        time.0.saturating_add(self.shift)
    }

    /// What the clock of a CTF trace is ahead, so that a mark at 1 stands at this moment: PerfView takes the whole
    /// seconds below it for the time of the first event.
    pub(super) fn ctf_offset(self) -> u64 {
        self.unix.saturating_add(1)
    }

    /// A time on that clock.
    pub(super) fn ctf_time(self, time: Nanos) -> u64 {
        let since = self.moved(time).saturating_sub(self.zero);
        since.saturating_sub(1).max(1)
    }

    /// Year, month, day of the week, day, hour, minute, second, millisecond.
    pub(super) fn system_time(self) -> [u16; 8] {
        let seconds = self.unix / SECOND_NS;
        let days = seconds / DAY_SECONDS;
        let (year, month, day) = date(days);
        // 1970 began on a Thursday; weeks begin on Sunday.
        let weekday = (days + 4) % 7;
        let second = seconds % DAY_SECONDS;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        [year, month, weekday, day, hour, minute, second, 0].map(|part| part as u16)
    }

    /// Such as `20260102-030405`.
    pub(super) fn date_and_time(self) -> String {
        let [year, month, _, day, hour, minute, second, _] = self.system_time();
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

/// The date so many days after 1970 began.
fn date(days: u64) -> (u64, u64, u64) {
    // Years begin in March here, so that a leap day is the last of one. Eras are 400 years, the first begins in year 0.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = match month {
        0..10 => (year, month + 3),
        _ => (year + 1, month - 9),
    };
    (400 * era + year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::CaptureInfo;

    fn zero(start_ns: u64, start_unix_ns: u64) -> TimeZero {
        TimeZero::of(&Trace {
            info: CaptureInfo {
                start_ns,
                start_unix_ns,
                ..CaptureInfo::default()
            },
            ..Trace::default()
        })
    }

    #[test]
    fn a_whole_second_of_utc_on_both_clocks() {
        let zero = zero(5_300_000_000, 1_700_000_000_100_000_000);
        assert_eq!(zero.monotonic(), 5_200_000_000);
        assert_eq!(zero.ctf_offset(), 1_700_000_000_000_000_001);
        // 1 and this are the nanoseconds since the second.
        assert_eq!(zero.ctf_time(Nanos(5_300_000_000)), 99_999_999);
        assert_eq!(zero.date_and_time(), "20231114-221320");
        // It was a Tuesday.
        assert_eq!(zero.system_time(), [2023, 11, 2, 14, 22, 13, 20, 0]);
        assert_eq!(
            super::TimeZero::of(&Trace::default()).monotonic(),
            1_000_000_000
        );
    }

    #[test]
    fn dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (20_454, (2026, 1, 1)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(date(days), expected);
        }
    }
}
