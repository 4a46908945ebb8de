//! Lines of untrusted text files, bounded in length and in total.

use std::io::{self, BufRead, ErrorKind};

use crate::demangle::ELLIPSIS;

/// Limit of a line. The longest known .NET method name has 2 KB; C++ templates reach 20 KB.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 10;

/// A reader of lines that end with LF or NUL: .NET 8 writes both into perf maps.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    left_bytes: u64,
    truncated: bool,
}

impl<R: BufRead> Lines<R> {
    /// Creates a reader of at most `limit_bytes`.
    pub(crate) fn new(input: R, limit_bytes: u64) -> Self {
        Self {
            input,
            line: Vec::new(),
            left_bytes: limit_bytes,
            truncated: false,
        }
    }

    /// Returns whether reading stopped at the limit. The line that exceeds the limit is dropped.
    pub(crate) fn is_truncated(&self) -> bool {
        self.truncated
    }

    /// Returns the next line that is not empty, without its delimiter.
    ///
    /// The last line needs no delimiter. A line of more than [`MAX_LINE_BYTES`] is truncated and
    /// ends with [`ELLIPSIS`].
    ///
    /// # Errors
    /// Reading fails.
    pub(crate) fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let mut length = 0usize;
        loop {
            let buffer = match self.input.fill_buf() {
                Ok(buffer) => buffer,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if buffer.is_empty() {
                return Ok((length > 0).then(|| with_ellipsis(&mut self.line, length)));
            }
            // A sparse file may have any number of NULs, so they are skipped as a run.
            let is_end = |byte: &&u8| matches!(byte, b'\n' | 0);
            let empty = buffer.iter().take_while(is_end).count();
            if length == 0 && empty > 0 {
                if !spend(&mut self.left_bytes, &mut self.truncated, empty) {
                    return Ok(None);
                }
                self.input.consume(empty);
                continue;
            }
            let delimiter = memchr::memchr2(b'\n', 0, buffer);
            let content = buffer
                .get(..delimiter.unwrap_or(buffer.len()))
                .unwrap_or(buffer);
            let used = content.len() + usize::from(delimiter.is_some());
            if !spend(&mut self.left_bytes, &mut self.truncated, used) {
                return Ok(None);
            }
            let room = MAX_LINE_BYTES.saturating_sub(self.line.len());
            self.line
                .extend_from_slice(content.get(..room).unwrap_or(content));
            length = length.saturating_add(content.len());
            self.input.consume(used);
            if delimiter.is_some() {
                return Ok(Some(with_ellipsis(&mut self.line, length)));
            }
        }
    }
}

/// Subtracts bytes from the limit. Returns `false` and sets `truncated` if the limit is exceeded.
fn spend(left_bytes: &mut u64, truncated: &mut bool, bytes: usize) -> bool {
    let left = left_bytes.checked_sub(bytes as u64);
    *left_bytes = left.unwrap_or(0);
    *truncated |= left.is_none();
    left.is_some()
}

/// Appends [`ELLIPSIS`] to a line that has fewer bytes than `length`.
fn with_ellipsis(line: &mut Vec<u8>, length: usize) -> &[u8] {
    if length > line.len() {
        line.extend_from_slice(ELLIPSIS.as_bytes());
    }
    line
}

/// Parses 1 to 16 hexadecimal digits, without prefix or sign.
pub(crate) fn hex(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        Some(value << 4 | u64::from((digit as char).to_digit(16)?))
    })
}

/// Splits at the first run of blanks. Returns the word before it and the rest after it.
pub(crate) fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let end = line.iter().position(is_blank)?;
    let (word, rest) = line.split_at_checked(end)?;
    let blanks = rest.iter().take_while(|byte| is_blank(byte)).count();
    Some((word, rest.get(blanks..)?))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;
    use std::io::BufReader;

    fn all(input: &[u8], limit: u64) -> (Vec<Vec<u8>>, bool) {
        let mut lines = Lines::new(BufReader::with_capacity(7, input), limit);
        let mut out = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            out.push(line.to_vec());
        }
        (out, lines.is_truncated())
    }

    #[test]
    fn splits_at_lf_and_nul_and_returns_an_unterminated_last_line() {
        let expected = [&b"a long first"[..], b"b", b"tail"].map(<[u8]>::to_vec);
        assert_eq!(
            all(b"a long first\nb\0\ntail", 100),
            (expected.into(), false)
        );
    }

    #[test]
    fn truncates_long_lines() {
        let long = vec![b'x'; MAX_LINE_BYTES];
        let input = [&long, &b"x\nnext\n"[..]].concat();
        let truncated = [&long, &b"..."[..]].concat();
        assert_eq!(all(&input, 1 << 20).0, [truncated, b"next".to_vec()]);
    }

    #[test]
    fn stops_at_the_limit_and_reports_it() {
        assert_eq!(all(b"abc\ndefgh\n", 6), (vec![b"abc".to_vec()], true));
        assert!(!all(b"abc\n", 4).1);
    }

    #[test]
    fn parses_hexadecimal_digits_and_words() {
        assert_eq!(
            [hex(b"fF"), hex(b""), hex(b"+1"), hex(b"11112222333344445")],
            [Some(255), None, None, None]
        );
        assert_eq!(word(b"ab \t cd e"), Some((&b"ab"[..], &b"cd e"[..])));
    }
}
