//! Parsers of option values that several commands share.

use std::time::Duration;

/// Parses a time above 0: seconds, a number with the unit `ms`, `s`, `m` or `h`, or as in dotnet-trace `[DD:]HH:MM[:SS]`.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let units = [("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let mut units = units.into_iter();
    let with_unit = units.find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, seconds)));
    let (number, unit) = with_unit.unwrap_or((text, 1.0));
    let seconds: Option<f64> = match number.contains(':') && with_unit.is_none() {
        true => clock_seconds(number),
        false => number.parse().ok().map(|number: f64| number * unit),
    };
    seconds
        .filter(|&seconds| seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| {
            "not a time: expected seconds above 0, such as 10 or 2.5, or 10s, 1m, 00:00:30".into()
        })
}

/// Parses a percentage of a CPU. Returns the part, from 0.001 to 1.
pub(super) fn cpu_share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text);
    let percent = number.parse().ok();
    let percent = percent.filter(|percent| (0.1..=100.0).contains(percent));
    percent.map(|percent| percent / 100.0).ok_or_else(|| {
        "not a part of a CPU: expected a percentage from 0.1 to 100, such as 2 or 0.5".into()
    })
}

/// Parses `HH:MM`, `HH:MM:SS` or `DD:HH:MM:SS`, as .NET's TimeSpan.
fn clock_seconds(text: &str) -> Option<f64> {
    let parts: Option<Vec<u32>> = text.split(':').map(|part| part.parse().ok()).collect();
    let [days, hours, minutes, seconds] = match parts?[..] {
        [hours, minutes] => [0, hours, minutes, 0],
        [hours, minutes, seconds] => [0, hours, minutes, seconds],
        [days, hours, minutes, seconds] => [days, hours, minutes, seconds],
        _ => return None,
    };
    let is_clock = hours < 24 && minutes < 60 && seconds < 60;
    let hours = f64::from(days) * 24.0 + f64::from(hours);
    is_clock.then(|| (hours * 60.0 + f64::from(minutes)) * 60.0 + f64::from(seconds))
}

/// Parses a time in a trace, in seconds.
pub(super) fn second(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('s').unwrap_or(text).parse().ok();
    number
        .filter(|seconds| (0.0..1e9).contains(seconds))
        .ok_or_else(|| "not a time in the trace: expected seconds, such as 2.5".into())
}

/// Parses a number above 0 with the unit `B`, `K`, `M` or `G`; the unit of a bare number is `bare` bytes.
pub(super) fn scaled(text: &str, bare: u64) -> Option<u64> {
    let units = [('B', 1), ('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)];
    let unit = units
        .into_iter()
        .find(|(suffix, _)| text.ends_with([*suffix, suffix.to_ascii_lowercase()]));
    let (digits, unit) = match unit {
        Some((_, bytes)) => (&text[..text.len() - 1], bytes),
        None => (text, bare),
    };
    digits
        .parse()
        .ok()
        .and_then(|count: u64| count.checked_mul(unit))
        .filter(|&bytes| bytes > 0)
}
