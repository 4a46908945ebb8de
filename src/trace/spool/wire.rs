//! Numbers and texts of a row.

use super::row::RowError;
use crate::bytes::Bytes;
pub(super) use crate::bytes::put_varuint as put;

/// A difference `to - from`: small ones are short, whatever their sign.
pub(super) fn put_difference(out: &mut Vec<u8>, from: u64, to: u64) {
    let difference = to.wrapping_sub(from) as i64;
    put(out, ((difference << 1) ^ (difference >> 63)) as u64);
}

/// A text, cut at `max` bytes, behind its length.
pub(super) fn put_text(out: &mut Vec<u8>, text: &[u8], max: usize) {
    let text = &text[..text.len().min(max)];
    put(out, text.len() as u64);
    out.extend_from_slice(text);
}

/// Bytes that are still to be read.
pub(in crate::trace) struct Input<'a>(pub(in crate::trace) &'a [u8]);

impl<'a> Input<'a> {
    pub(in crate::trace) fn byte(&mut self) -> Result<u8, RowError> {
        let (&byte, rest) = self.0.split_first().ok_or(RowError::Ended)?;
        self.0 = rest;
        Ok(byte)
    }

    pub(super) fn number(&mut self) -> Result<u64, RowError> {
        let mut bytes = Bytes(self.0);
        let value = bytes.varuint().ok_or(RowError::Number)?;
        self.0 = bytes.0;
        Ok(value)
    }

    pub(super) fn small(&mut self) -> Result<u32, RowError> {
        self.number()?.try_into().map_err(|_| RowError::Number)
    }

    pub(super) fn id(&mut self) -> Result<i32, RowError> {
        Ok(self.small()?.cast_signed())
    }

    pub(super) fn difference(&mut self, from: u64) -> Result<u64, RowError> {
        let folded = self.number()?;
        Ok(from.wrapping_add((folded >> 1) ^ (folded & 1).wrapping_neg()))
    }

    pub(super) fn text(&mut self, max: usize) -> Result<&'a [u8], RowError> {
        let len = self.number()?;
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len <= max)
            .ok_or(RowError::TooLong { len, max })?;
        let (text, rest) = self.0.split_at_checked(len).ok_or(RowError::Ended)?;
        self.0 = rest;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_round_trip(value: u64, from: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            put_difference(&mut bytes, from, value);
            let mut input = Input(&bytes);
            prop_assert_eq!(input.number().unwrap(), value);
            prop_assert_eq!(input.difference(from).unwrap(), value);
            prop_assert!(input.0.is_empty());
        }
    }

    #[test]
    fn too_long_numbers_and_texts_are_refused() {
        assert!(Input(&[0xff; 10]).number().is_err());
        assert!(Input(&[0x80; 3]).number().is_err());
        assert!(Input(&[5, b'x']).text(9).is_err());
        assert!(Input(&[9, b'x']).text(3).is_err());
    }
}
