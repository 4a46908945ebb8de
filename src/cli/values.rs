//! Parsers of option values that several commands share.

use std::time::Duration;

/// Parses a number of seconds above 0.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|&seconds: &f64| seconds > 0.0)
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| "not a time: expected seconds above 0, such as 10 or 2.5".into())
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
