//! Values by address: the frame size, the file, the line or another value of each address range.
//!
//! A table has pairs of integers, as LEB128 encodes them: the difference to the value before, in
//! zigzag encoding, and the size of the range in units of the instruction alignment. The first
//! value is relative to -1, the first range starts at the entry of the function, and a difference
//! of 0 ends the table, except in the first pair.

use std::cell::Cell;

/// Limit of the pairs that one call decodes, which take 7 ms. A function of 93 KB has 4738 lines.
const MAX_STEPS: u32 = 1 << 20;

/// A limit that several tables share.
pub(super) struct Steps(Cell<u32>);

impl Default for Steps {
    fn default() -> Self {
        Self::new(MAX_STEPS)
    }
}

impl Steps {
    pub(super) fn new(steps: u32) -> Self {
        Self(Cell::new(steps))
    }

    fn take(&self) -> Option<()> {
        self.0.set(self.0.get().checked_sub(1)?);
        Some(())
    }
}

/// The ranges of a table: the end of each and its value.
pub(super) struct PcValues<'a> {
    rest: &'a [u8],
    end: u64,
    value: i32,
    quantum: u64,
    is_first: bool,
    steps: &'a Steps,
}

impl<'a> PcValues<'a> {
    pub(super) fn new(bytes: &'a [u8], entry: u64, quantum: u8, steps: &'a Steps) -> Self {
        Self {
            rest: bytes,
            end: entry,
            value: -1,
            quantum: quantum.into(),
            is_first: true,
            steps,
        }
    }

    /// Returns the value at an address, which is not before the entry.
    pub(super) fn at(mut self, address: u64) -> Option<i32> {
        self.find(|&(end, _)| address < end).map(|(_, value)| value)
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0;
        for shift in (0..32).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }
}

impl Iterator for PcValues<'_> {
    type Item = (u64, i32);

    fn next(&mut self) -> Option<Self::Item> {
        self.steps.take()?;
        let delta = self.varint()?;
        if delta == 0 && !self.is_first {
            self.rest = &[];
            return None;
        }
        self.is_first = false;
        let magnitude = (delta >> 1).cast_signed();
        let delta = if delta & 1 == 0 {
            magnitude
        } else {
            !magnitude
        };
        self.value = self.value.wrapping_add(delta);
        // Ranges are never empty.
        let size = u64::from(self.varint().filter(|&size| size > 0)?);
        self.end = self.end.checked_add(size * self.quantum)?;
        Some((self.end, self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8], steps: u32) -> Vec<(u64, i32)> {
        PcValues::new(bytes, 0x1000, 4, &Steps::new(steps)).collect()
    }

    #[test]
    fn decodes_deltas_until_the_end() {
        let table = [2, 1, 0x30, 2, 0x2f, 0x81, 1, 0, 9, 9];
        let expected = [(0x1004, 0), (0x100c, 24), (0x1210, 0)];
        assert_eq!(decode(&table, 9), expected);
        assert_eq!(decode(&[0, 3, 0], 9), [(0x100c, -1)]);
        let at = |address| PcValues::new(&table, 0x1000, 4, &Steps::default()).at(address);
        assert_eq!(
            [0x1003, 0x1004, 0x100b, 0x120f].map(at),
            [0, 24, 24, 0].map(Some)
        );
        assert_eq!(at(0x1210), None);
    }

    #[test]
    fn ends_at_malformed_integers_and_limits() {
        assert_eq!(decode(&[2, 1, 2], 9), [(0x1004, 0)]);
        assert_eq!(decode(&[2, 0, 2, 1], 9), []);
        assert_eq!(decode(&[0x80, 0x80, 0x80, 0x80, 0x80, 0, 1], 9), []);
        assert_eq!(decode(&[2, 1, 2, 1, 2, 1, 0], 2).len(), 2);
        let top = PcValues::new(&[2, 1, 2, 1], u64::MAX - 5, 4, &Steps::default()).last();
        assert_eq!(top, Some((u64::MAX - 1, 0)));
    }
}
