//! Integers and strings of a row.

use super::row::RowError;
use crate::bytes::Bytes;
pub(super) use crate::bytes::put_varuint as put;

/// Writes the difference `to - from`. A small one is short, whatever its sign.
pub(super) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// Writes a string, truncated to `max` bytes, after its length.
pub(super) fn put_string(out: &mut Vec<u8>, string: &[u8], max: usize) {
    let string = &string[..string.len().min(max)];
    put(out, string.len() as u64);
    out.extend_from_slice(string);
}

/// Unread bytes of a block.
pub(in crate::trace) struct Input<'a>(pub(in crate::trace) &'a [u8]);

impl<'a> Input<'a> {
    pub(in crate::trace) fn byte(&mut self) -> Result<u8, RowError> {
        let (&byte, rest) = self.0.split_first().ok_or(RowError::Ended)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn integer(&mut self) -> Result<u64, RowError> {
        let mut bytes = Bytes(self.0);
        let value = bytes.varuint().ok_or(RowError::Number)?;
        self.0 = bytes.0;
        Ok(value)
    }

    pub(super) fn small(&mut self) -> Result<u32, RowError> {
        self.integer()?.try_into().map_err(|_| RowError::Number)
    }

    pub(super) fn id(&mut self) -> Result<i32, RowError> {
        Ok(self.small()?.cast_signed())
    }

    pub(super) fn difference(&mut self, from: u64) -> Result<u64, RowError> {
        let folded = self.integer()?;
        Ok(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
    }

    pub(super) fn string(&mut self, max: usize) -> Result<&'a [u8], RowError> {
        let len = self.integer()?;
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= max)
            .ok_or(RowError::TooLong { len, max })?;
        let (string, rest) = self.0.split_at_checked(len).ok_or(RowError::Ended)?;
        self.0 = rest;
        Ok(string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_round_trip(value: u64, from: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, from, value);
            let mut input = Input(&bytes);
            prop_assert_eq!(input.integer().unwrap(), value);
            prop_assert_eq!(input.difference(from).unwrap(), value);
            prop_assert!(input.0.is_empty());
        }
    }

    #[test]
    fn rejects_integers_and_strings_that_are_too_long() {
        assert!(Input(&[0xff; 10]).integer().is_err());
        assert!(Input(&[0x80; 3]).integer().is_err());
        assert!(Input(&[5, b'x']).string(9).is_err());
        assert!(Input(&[9, b'x']).string(3).is_err());
    }
}
