//! The arrays and hash tables of ReadyToRun images (NativeFormat), read in place.
//!
//! ```text
//! integer  1 to 5 bytes; as many bytes follow the first as it has low bits set before the first clear one
//! array    integer n<<2 | width; offsets of the blocks of 16; a block is a tree of four levels by the bits of the index:
//!          integer & 1: a left subtree follows; & 2: the right subtree is >>2 further; neither: the only leaf, its index >>2
//! table    u8 log2(buckets)<<2 | width; offsets of the buckets and of their end; (u8 hash, distance of the entry)*
//! ```

/// Width of an offset: 1, 2 or 4 bytes.
#[derive(Clone, Copy, Debug)]
struct Width(u32);

impl Width {
    fn read(self, bytes: &[u8], base: usize, index: usize) -> Option<usize> {
        let at = base.checked_add(index.checked_mul(1 << self.0)?)?;
        let bytes = bytes.get(at..)?;
        Some(match self.0 {
            0 => usize::from(*bytes.first()?),
            1 => usize::from(u16::from_le_bytes(*bytes.first_chunk()?)),
            _ => u32::from_le_bytes(*bytes.first_chunk()?) as usize,
        })
    }
}

/// Reads an unsigned integer. Returns the value and its end offset.
pub(super) fn read_unsigned(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let (raw, len) = read_raw(bytes, at)?;
    Some((raw, at + len))
}

fn read_raw(bytes: &[u8], at: usize) -> Option<(u32, usize)> {
    let bytes = bytes.get(at..)?;
    let following = bytes.first()?.trailing_ones();
    if following >= 4 {
        let [_, value @ ..] = bytes.first_chunk::<5>()?;
        return Some((u32::from_le_bytes(*value), 5));
    }
    let len = following as usize + 1;
    let mut raw = [0; 4];
    raw.get_mut(..len)?.copy_from_slice(bytes.get(..len)?);
    Some((u32::from_le_bytes(raw) >> len, len))
}

/// Reads a signed integer. Returns the value and its end offset. The sign bit is in the last byte.
fn read_signed(bytes: &[u8], at: usize) -> Option<(i32, usize)> {
    let (raw, len) = read_raw(bytes, at)?;
    let unused = match len {
        5 => 0,
        _ => 32 - 7 * len as u32,
    };
    Some(((raw << unused).cast_signed() >> unused, at + len))
}

/// A sparse array of elements of variable length.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array<'a> {
    bytes: &'a [u8],
    base: usize,
    pub(super) len: u32,
    width: Width,
}

impl<'a> Array<'a> {
    const BLOCK: u32 = 16;

    pub(super) fn open(bytes: &'a [u8]) -> Option<Self> {
        let (header, base) = read_unsigned(bytes, 0)?;
        Some(Self {
            bytes,
            base,
            len: header >> 2,
            width: Width(header & 3),
        })
    }

    /// Returns the offset of an element, or `None` if the array has no such element.
    pub(super) fn at(&self, index: u32) -> Option<usize> {
        if index >= self.len {
            return None;
        }
        let block = (index / Self::BLOCK) as usize;
        let mut at = self
            .base
            .checked_add(self.width.read(self.bytes, self.base, block)?)?;
        let mut bit = Self::BLOCK / 2;
        while bit > 0 {
            let (node, left) = read_unsigned(self.bytes, at)?;
            if index & bit != 0 && node & 2 != 0 {
                at = at.checked_add((node >> 2) as usize)?;
            } else if index & bit == 0 && node & 1 != 0 {
                at = left;
            } else if node & 3 == 0 && node >> 2 == index % Self::BLOCK {
                return Some(left);
            } else {
                return None;
            }
            bit /= 2;
        }
        Some(at)
    }
}

/// Returns the offsets of all entries of a hash table. Corrupt input ends the list early.
pub(super) fn table_entries(bytes: &[u8]) -> Vec<usize> {
    let mut entries = Vec::new();
    let Some(header) = bytes.first().copied() else {
        return entries;
    };
    let width = Width(u32::from(header & 3));
    let buckets = 1_usize.checked_shl(u32::from(header >> 2)).unwrap_or(0);
    let offset = |index| Some(width.read(bytes, 1, index)?.saturating_add(1));
    for bucket in 0..buckets {
        let (Some(mut at), Some(end)) = (offset(bucket), offset(bucket + 1)) else {
            break;
        };
        while at < end {
            // The hash precedes the distance.
            let Some((distance, next)) = read_signed(bytes, at + 1) else {
                return entries;
            };
            let Some(entry) = (at + 1).checked_add_signed(distance as isize) else {
                return entries;
            };
            entries.push(entry);
            // Overlapping buckets, which no compiler emits, must not multiply the entries.
            if entries.len() > bytes.len() {
                return entries;
            }
            at = next;
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_integers_of_all_lengths() {
        for (bytes, value, negative) in [
            (&[0x0a][..], 5, 5),
            (&[0xfe], 127, -1),
            (&[0x05, 0x01], 0x41, 0x41),
            (&[0xfd, 0xff], 0x3fff, -1),
            (&[0x03, 0x00, 0x01], 0x2000, 0x2000),
            (&[0x07, 0x00, 0x00, 0x80], 0x0800_0000, -0x0800_0000),
            (&[0x0f, 1, 2, 3, 4], 0x0403_0201, 0x0403_0201),
        ] {
            assert_eq!(
                read_unsigned(bytes, 0),
                Some((value, bytes.len())),
                "{bytes:x?}"
            );
            assert_eq!(
                read_signed(bytes, 0),
                Some((negative, bytes.len())),
                "{bytes:x?}"
            );
            assert_eq!(read_unsigned(&bytes[..bytes.len() - 1], 0), None);
        }
    }
}
