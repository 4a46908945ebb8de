//! A line of a stack.
//!
//! ```text
//!     7f9ca5486ec5 __libc_start_main+0xf5 (/lib/x86_64-linux-gnu/libc-2.19.so)
//! ```

use perfcollect_symbols::process::without_deleted_suffix;

/// Minimum number of digits of an address without a file, to distinguish it from other words.
const MIN_ADDRESS_DIGITS: usize = 5;

/// A code address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The offset in the object, or the address in memory; 0 if the text does not have it.
    pub address: u64,
    /// The function; `[unknown]` or empty if there is none.
    pub symbol: &'a [u8],
    /// The file or its replacement such as `[stack]`; empty if the text does not have it.
    pub object: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Parses a line of any kind. Returns `None` if it is not a frame.
    #[must_use]
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let word = line.trim_ascii().split(u8::is_ascii_whitespace).next()?;
        let frame = Self::indented(line)?;
        (!frame.object.is_empty() || word.len() >= MIN_ADDRESS_DIGITS).then_some(frame)
    }

    /// Parses a line that a tab indents, so that only a frame is possible. Returns `None` for other
    /// lines.
    #[must_use]
    pub fn indented(line: &'a [u8]) -> Option<Self> {
        let line = line.trim_ascii();
        let space = line.iter().position(u8::is_ascii_whitespace);
        let Some(space) = space else {
            return Self::address_alone(line);
        };
        let (first, rest) = line.split_at(space);
        let address = str::from_utf8(first).ok();
        let address = address.and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let object = rest.strip_suffix(b")").and_then(|rest| {
            let open = without_deleted_suffix(rest)
                .windows(2)
                .rposition(|two| two[0].is_ascii_whitespace() && two[1] == b'(')?;
            Some((&rest[..open], &rest[open + 2..]))
        });
        let (symbol, object) = match object {
            // Some tools print another word instead of the address.
            Some(parts) if address.is_some() || first.iter().all(u8::is_ascii_alphanumeric) => {
                parts
            }
            None if address.is_some() => without_end(rest),
            _ => return None,
        };
        Some(Self {
            address: address.unwrap_or(0),
            symbol: without_offset(symbol.trim_ascii()),
            object,
        })
    }
}

impl Frame<'_> {
    /// Parses a line without symbol and object.
    fn address_alone(word: &[u8]) -> Option<Self> {
        let digits = str::from_utf8(word).ok()?;
        let is_address = digits.len() >= MIN_ADDRESS_DIGITS
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        Some(Self {
            address: u64::from_str_radix(digits, 16)
                .ok()
                .filter(|_| is_address)?,
            symbol: &[],
            object: &[],
        })
    }
}

/// Splits a line without an object, or one that was truncated within it.
fn without_end(rest: &[u8]) -> (&[u8], &[u8]) {
    let begins = [&b" (/"[..], b" (["];
    let open = rest.windows(3).rposition(|three| begins.contains(&three));
    match open {
        Some(open) => (&rest[..open], &rest[open + 2..]),
        None => (rest, &[]),
    }
}

/// Removes the offset: `main+0x1f` is `main`.
fn without_offset(symbol: &[u8]) -> &[u8] {
    match symbol.windows(3).rposition(|three| three == b"+0x") {
        Some(plus) if symbol[plus + 3..].iter().all(u8::is_ascii_hexdigit) => &symbol[..plus],
        _ => symbol,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn reads_frames_of_all_kinds() {
        let of = |line: &'static str| {
            let frame = Frame::indented(line.as_bytes()).unwrap_or_else(|| panic!("{line:?}"));
            let text = |bytes| str::from_utf8(bytes).unwrap();
            (frame.address, text(frame.symbol), text(frame.object))
        };
        assert_eq!(
            of("   1f f(int)+0x2a (/a b/c.so)"),
            (0x1f, "f(int)", "/a b/c.so")
        );
        assert_eq!(
            of("1f g (x) (/c.so (deleted))"),
            (0x1f, "g (x)", "/c.so (deleted)")
        );
        assert_eq!(of("0 [unknown] ([unknown])"), (0, "[unknown]", "[unknown]"));
        assert_eq!(of("1f  (/c.so)"), (0x1f, "", "/c.so"));
        assert_eq!(of("1f\tf()\t(/c.so)"), (0x1f, "f()", "/c.so"));
        assert_eq!(of("address f (m)"), (0, "f", "m"));
        assert_eq!(of("1f operator+0x (m)"), (0x1f, "operator", "m"));
        assert_eq!(of("1f f+0x2a"), (0x1f, "f", ""));
        assert_eq!(of("  ffffffff8104f45a"), (0xffff_ffff_8104_f45a, "", ""));
        assert_eq!(of("1f f(int) (/lib/x"), (0x1f, "f(int)", "/lib/x"));
    }

    #[test]
    fn words_that_look_like_addresses_are_none() {
        for line in ["a ==> b", "dd 12 sched:x: a=b"] {
            assert_eq!(Frame::parse(line.as_bytes()), None, "{line}");
        }
        assert!(Frame::parse(b"  7f9ca5486ec5 main").is_some());
    }

    #[test]
    fn refuses_what_is_no_frame() {
        for bad in [
            "",
            "f",
            "beef",
            "THIS_IS_A_WEIRD_LINE",
            "no frame",
            "x.c:12 (m)",
        ] {
            assert_eq!(Frame::indented(bad.as_bytes()), None, "{bad}");
        }
    }
}
