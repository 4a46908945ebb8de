//! Bounds-checked reading of little-endian integers and strings, and encoders for some of them.

use std::borrow::Borrow;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;

/// A file with a separate read position, so that several readers can share it.
#[derive(Debug)]
pub(crate) struct Positioned<F> {
    pub(crate) file: F,
    /// Offset of the next byte to read.
    pub(crate) at: u64,
}

impl<F: Borrow<File>> Read for Positioned<F> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.borrow().read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// Reads until the buffer is full or the input ends. Returns the number of bytes read.
pub(crate) fn fill(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Appends an integer, padded with `fill` to at least `width` characters (at most 20).
pub(crate) fn put_digits<const BASE: u64>(
    out: &mut Vec<u8>,
    mut number: u64,
    width: usize,
    fill: u8,
) {
    let mut digits = [fill; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b"0123456789abcdef"[(number % BASE) as usize];
        number /= BASE;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at.min(digits.len() - width)..]);
}

/// Unread bytes of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(crate) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn i32(&mut self) -> Option<i32> {
        self.array().map(i32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads an unsigned LEB128 integer.
    ///
    /// Each byte has seven bits, least significant first. All but the last have the top bit set.
    pub(crate) fn varuint(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8()?;
            let group = u64::from(byte & 0x7f);
            if group << shift >> shift != group {
                return None;
            }
            value |= group << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    /// Reads an unsigned LEB128 integer of at most 32 bits.
    pub(crate) fn varuint32(&mut self) -> Option<u32> {
        self.varuint()?.try_into().ok()
    }

    /// Reads up to the first NUL, which stays unread, or to the end.
    pub(crate) fn c_string(&mut self) -> &'a [u8] {
        let len = self.0.iter().position(|&b| b == 0);
        let (string, rest) = self.0.split_at(len.unwrap_or(self.0.len()));
        self.0 = rest;
        string
    }

    /// Reads a NUL-terminated UTF-16 string, replacing invalid code units.
    ///
    /// Returns `None` if there is no NUL.
    pub(crate) fn utf16z(&mut self) -> Option<String> {
        let (units, _) = self.0.as_chunks::<2>();
        let len = units.iter().position(|unit| *unit == [0, 0])?;
        let string = utf16(self.take(len * 2)?);
        self.take(2)?;
        Some(string)
    }
}

/// Appends an unsigned LEB128 integer, as [`Bytes::varuint`] reads it.
pub(crate) fn put_varuint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a string as NUL-terminated UTF-16, without the NULs in it.
pub(crate) fn put_utf16z(out: &mut Vec<u8>, text: &str) {
    let units = text.encode_utf16().filter(|unit| *unit != 0).chain([0]);
    out.extend(units.flat_map(u16::to_le_bytes));
}

/// Decodes UTF-16 code units, replacing invalid ones.
pub(crate) fn utf16(bytes: &[u8]) -> String {
    let (units, _) = bytes.as_chunks::<2>();
    char::decode_utf16(units.iter().map(|unit| u16::from_le_bytes(*unit)))
        .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_leb128_integers() {
        assert_eq!(Bytes(&[0x7f]).varuint(), Some(0x7f));
        assert_eq!(Bytes(&[0xe5, 0x8e, 0x26]).varuint(), Some(624_485));
        assert_eq!(
            Bytes(&[0xff, 0xff, 0xff, 0xff, 0x0f]).varuint32(),
            Some(u32::MAX)
        );
        assert_eq!(Bytes(&[0xff, 0xff, 0xff, 0xff, 0x1f]).varuint32(), None);
        let largest = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
        assert_eq!(Bytes(&largest).varuint(), Some(u64::MAX));
        assert_eq!(Bytes(&[0xff; 11]).varuint(), None);
        assert_eq!(Bytes(&[0x80]).varuint(), None);
    }

    #[test]
    fn put_digits_matches_format() {
        for number in [0, 7, 10, 255, 1_000_001, u64::MAX] {
            let mut out = Vec::new();
            put_digits::<10>(&mut out, number, 1, b'0');
            put_digits::<10>(&mut out, number, 9, b'0');
            put_digits::<10>(&mut out, number, 5, b' ');
            put_digits::<16>(&mut out, number, 16, b' ');
            let expected = format!("{number}{number:09}{number:5}{number:16x}");
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
    }

    #[test]
    fn utf16_strings_end_at_nul() {
        let mut bytes = Bytes(b"a\0\xfc\0\0\0b\0");
        assert_eq!(bytes.utf16z().as_deref(), Some("aü"));
        assert_eq!(bytes.utf16z(), None);
        assert_eq!(Bytes(b"\0\0").utf16z().as_deref(), Some(""));
        assert_eq!(utf16(&[0, 0xd8, b'x', 0]), "\u{fffd}x");
    }
}
