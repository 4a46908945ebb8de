//! Memory that is read by address: the input of the readers of .NET images and structures.
//!
//! ```
//! use perfcollect_symbols::memory::{Image, Memory};
//!
//! let image = Image { start: 0x1000, bytes: &[1, 2, 3, 4, 5] };
//! assert_eq!(image.u32(0x1001), Some(0x0504_0302));
//! assert_eq!(image.u32(0x1002), None);
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Memory that is read by address: a process, a file as it is mapped, or bytes.
pub trait Memory {
    /// Fills `buffer` with the bytes at `address`. Returns the number of bytes that are readable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// Returns N bytes if all are readable.
    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    /// Returns an 8-bit integer.
    fn u8(&self, address: u64) -> Option<u8> {
        self.bytes(address).map(u8::from_le_bytes)
    }

    /// Returns a little-endian 16-bit integer.
    fn u16(&self, address: u64) -> Option<u16> {
        self.bytes(address).map(u16::from_le_bytes)
    }

    /// Returns a little-endian 32-bit integer.
    fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// Returns `len` bytes if all are readable and `len` does not exceed `limit`.
    fn vec(&self, address: u64, len: u64, limit: usize) -> Option<Vec<u8>> {
        let len = usize::try_from(len).ok().filter(|len| *len <= limit)?;
        let mut bytes = vec![0; len];
        (self.read(address, &mut bytes) == len).then_some(bytes)
    }

    /// Returns a little-endian 64-bit integer or pointer.
    fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }
}

/// Reads through the reference.
impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        M::read(self, address, buffer)
    }
}

/// A file by offset. It is read on demand and not memory-mapped: its owner may truncate it.
impl Memory for File {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let Some(position) = offset.checked_add(filled as u64) else {
                break;
            };
            match self.read_at(rest, position) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}

/// Bytes at an address.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let available = address
            .checked_sub(self.start)
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|offset| self.bytes.get(offset..))
            .unwrap_or_default();
        let length = available.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), available.get(..length)) {
            to.copy_from_slice(from);
        }
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_no_further_than_the_end_of_an_image() {
        let image = Image {
            start: 0x1000,
            bytes: &[1, 2, 3, 4, 5],
        };
        assert_eq!(image.u32(0x1001), Some(0x0504_0302));
        assert_eq!(image.u32(0x1002), None);
        assert_eq!(image.u32(0xfff), None);
        assert_eq!(image.read(0x1004, &mut [0; 9]), 1);
    }
}
