//! Dates and times of day in UTC.

const SECOND_NS: u64 = 1_000_000_000;
const DAY_SECONDS: u64 = 86_400;

/// A date and a time of day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UtcTime {
    pub(crate) year: u64,
    pub(crate) month: u64,
    pub(crate) day: u64,
    /// Days since Sunday.
    pub(crate) weekday: u64,
    pub(crate) hour: u64,
    pub(crate) minute: u64,
    pub(crate) second: u64,
    pub(crate) millisecond: u64,
}

impl UtcTime {
    /// Converts nanoseconds since the start of 1970.
    pub(crate) fn from_unix_ns(ns: u64) -> Self {
        let seconds = ns / SECOND_NS;
        let days = seconds / DAY_SECONDS;
        let (year, month, day) = date(days);
        let second = seconds % DAY_SECONDS;
        Self {
            year,
            month,
            day,
            // 1970 started on a Thursday.
            weekday: (days + 4) % 7,
            hour: second / 3600,
            minute: second / 60 % 60,
            second: second % 60,
            millisecond: ns % SECOND_NS / 1_000_000,
        }
    }

    /// Converts year, month, day of the week, day, hour, minute, second and millisecond to
    /// nanoseconds since the start of 1970. Returns `None` if there is no such time.
    pub(crate) fn unix_ns_of(parts: [u16; 8]) -> Option<u64> {
        let [year, month, _, day, hour, minute, second, millisecond] = parts.map(u64::from);
        let is_date = (1970..2500).contains(&year) && (1..=12).contains(&month) && day <= 31;
        let days = is_date.then(|| days(year, month, day))?;
        let seconds = days * DAY_SECONDS + hour * 3600 + minute * 60 + second;
        let ns = seconds * SECOND_NS + millisecond * 1_000_000;
        let time = Self::from_unix_ns(ns);
        let found = [time.year, time.month, time.day, time.hour, time.minute];
        (found == [year, month, day, hour, minute]).then_some(ns)
    }

    /// Formats the time as in `2026-01-02T03:04:05.678Z` (RFC 3339).
    pub(crate) fn rfc3339(&self) -> String {
        format!(
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            self.year, self.month, self.day, self.hour, self.minute, self.second, self.millisecond
        )
    }

    /// Formats the time as in `20260102_030405`, for names of files.
    pub(crate) fn compact(&self) -> String {
        format!(
            "{:04}{:02}{:02}_{:02}{:02}{:02}",
            self.year, self.month, self.day, self.hour, self.minute, self.second
        )
    }
}

/// Returns year, month and day of a number of days after the start of 1970.
fn date(days: u64) -> (u64, u64, u64) {
    // Here, years start in March, so that a leap day is the last day of its year. An era has 400
    // years; the first one starts in year 0.
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

/// Returns the number of days from the start of 1970 to a date, the inverse of [`date`].
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = match month {
        0..3 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400;
    (days + (153 * month + 2) / 5 + day).saturating_sub(719_469)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converts_days_to_dates() {
        for (days, expected) in [
            (0, (1970, 1, 1)),
            (11_016, (2000, 2, 29)),
            (20_454, (2026, 1, 1)),
            (20_453, (2025, 12, 31)),
        ] {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn parts_of_a_time_are_converted_back() {
        for (parts, expected) in [
            ([1970, 1, 4, 1, 0, 0, 0, 0], Some(0)),
            (
                [2023, 11, 2, 14, 22, 13, 20, 123],
                Some(1_700_000_000_123_000_000),
            ),
            (
                [2000, 2, 2, 29, 0, 0, 0, 0],
                Some(11_016 * DAY_SECONDS * SECOND_NS),
            ),
            ([2001, 2, 2, 29, 0, 0, 0, 0], None),
            ([2001, 13, 2, 1, 0, 0, 0, 0], None),
            ([1601, 1, 2, 1, 0, 0, 0, 0], None),
            ([2001, 0, 0, 0, 0, 0, 0, 0], None),
            ([u16::MAX; 8], None),
            ([2026, 0x8002, 2, 1, 0, 0, 0, 0], None),
            ([2026, 2, 2, u16::MAX, 0, 0, 0, 0], None),
            (
                [2499, 12, 0, 31, u16::MAX, u16::MAX, u16::MAX, u16::MAX],
                None,
            ),
        ] {
            assert_eq!(UtcTime::unix_ns_of(parts), expected, "{parts:?}");
        }
    }

    #[test]
    fn formats_times() {
        let formatted = |ns| UtcTime::from_unix_ns(ns).rfc3339();
        assert_eq!(formatted(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(
            formatted(1_700_000_000_123_456_789),
            "2023-11-14T22:13:20.123Z"
        );
        assert_eq!(formatted(u64::MAX), "2554-07-21T23:34:33.709Z");
    }
}
