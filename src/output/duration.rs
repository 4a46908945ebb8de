//! Times in words.

/// Returns a time in milliseconds, seconds, minutes, hours or days.
pub(crate) fn duration(seconds: f64) -> String {
    let minutes = seconds / 60.0;
    match () {
        () if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        () if seconds < 100.0 => format!("{seconds:.1} s"),
        () if minutes < 100.0 => format!("{minutes:.0} min"),
        () if minutes < 60.0 * 48.0 => format!("{:.0} h", minutes / 60.0),
        () => format!("{:.0} days", minutes / 60.0 / 24.0),
    }
}
