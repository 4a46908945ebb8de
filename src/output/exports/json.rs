//! JSON that is written as it comes: lists of any length.

use std::fmt::Display;
use std::io::{self, Write};

use crate::output::sanitize::json_text;

/// Writes a string, without characters that a terminal must not get.
pub(super) fn string(out: &mut impl Write, text: &str) -> io::Result<()> {
    let json = serde_json::to_string(text)?;
    out.write_all(json_text(&json).as_bytes())
}

/// Writes a list of numbers or other texts that are JSON.
pub(super) fn list<T: Display>(
    out: &mut impl Write,
    values: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    each(out, values, |out, value| write!(out, "{value}"))
}

/// Writes a list of strings.
pub(super) fn strings<T: AsRef<str>>(
    out: &mut impl Write,
    values: impl IntoIterator<Item = T>,
) -> io::Result<()> {
    each(out, values, |out, value| string(out, value.as_ref()))
}

/// Writes a list of the same text.
pub(super) fn repeat(out: &mut impl Write, text: &str, count: usize) -> io::Result<()> {
    list(out, std::iter::repeat_n(text, count))
}

/// Writes a list.
pub(super) fn each<W: Write, T>(
    out: &mut W,
    values: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut W, T) -> io::Result<()>,
) -> io::Result<()> {
    out.write_all(b"[")?;
    for (at, value) in values.into_iter().enumerate() {
        if at > 0 {
            out.write_all(b",")?;
        }
        write(out, value)?;
    }
    out.write_all(b"]")
}

/// Formats nanoseconds as a number of a unit, exactly.
pub(super) struct Scaled {
    pub(super) ns: i64,
    /// Digits after the point: 3 for microseconds, 6 for milliseconds.
    pub(super) digits: u32,
}

impl Display for Scaled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let unit = 10_u64.pow(self.digits);
        let ns = self.ns.unsigned_abs();
        let sign = if self.ns < 0 { "-" } else { "" };
        let (whole, rest) = (ns / unit, ns % unit);
        match rest {
            0 => write!(f, "{sign}{whole}"),
            _ => write!(
                f,
                "{sign}{whole}.{rest:0width$}",
                width = self.digits as usize
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_have_no_character_that_a_terminal_must_not_get() {
        let mut out = Vec::new();
        string(&mut out, "a\"\u{1b}\u{9b}\u{202e}\u{2028}é").unwrap();
        assert_eq!(out, br#""a\"\u001b\u009b\u202e\u2028"#.iter().chain("é\"".as_bytes()).copied().collect::<Vec<u8>>());
    }

    #[test]
    fn scales_exactly() {
        let text = |ns, digits| Scaled { ns, digits }.to_string();
        assert_eq!(text(1_500_000, 6), "1.500000");
        assert_eq!(text(-7, 3), "-0.007");
        assert_eq!(text(2000, 3), "2");
        assert_eq!(text(i64::MIN, 6), "-9223372036854.775808");
    }
}
