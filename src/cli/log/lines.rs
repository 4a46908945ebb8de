//! Lines of the log.

use std::fmt::Display;

use crate::output::sanitize::{terminal, truncate_with_ellipsis};

/// Maximum length of a value, in bytes.
const MAX_VALUE_BYTES: usize = 4096;
/// Maximum number of lines.
const MAX_LINES: usize = 10_000;

/// Lines of the form `name: value`. Values are escaped and bounded: most are of the target.
#[derive(Clone, Debug, Default)]
pub(in crate::cli) struct LogLines {
    text: String,
    lines: usize,
}

impl LogLines {
    /// Adds a line.
    pub(in crate::cli) fn put(&mut self, name: &str, value: impl Display) {
        self.put_long(name, value, MAX_VALUE_BYTES);
    }

    /// Adds a line with a value of up to `max` bytes.
    pub(super) fn put_long(&mut self, name: &str, value: impl Display, max: usize) {
        if self.lines >= MAX_LINES {
            return;
        }
        self.lines += 1;
        let value = value.to_string();
        for part in [
            &*terminal(name),
            ": ",
            &terminal(&truncate_with_ellipsis(&value, max)),
            "\n",
        ] {
            self.text.push_str(part);
        }
    }

    /// Adds other lines.
    pub(super) fn append(&mut self, other: &Self) {
        self.text.push_str(&other.text);
        self.lines += other.lines;
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_one_bounded_line() {
        let mut lines = LogLines::default();
        lines.put("target", "a\nnotice: \u{1b}[31m\u{202e}");
        lines.put("name", "x".repeat(MAX_VALUE_BYTES * 2));
        let text = lines.into_text();
        assert_eq!(text.lines().count(), 2);
        assert!(text.starts_with("target: a\\u{a}notice: \\u{1b}[31m\\u{202e}\n"));
        assert!(text.len() < MAX_VALUE_BYTES + 100);
    }

    #[test]
    fn the_number_of_lines_is_bounded() {
        let mut lines = LogLines::default();
        (0..2 * MAX_LINES).for_each(|number| lines.put("number", number));
        assert_eq!(lines.into_text().lines().count(), MAX_LINES);
    }
}
