//! Memory that is read by address: the input of the readers of .NET images and structures.
//!
//! ```
//! use perfcollect_symbols::memory::{Image, Memory};
//!
//! let image = Image { start: 0x1000, bytes: &[1, 2, 3, 4, 5] };
//! assert_eq!(image.u32(0x1001), Ok(0x0504_0302));
//! let error = image.u32(0x1002).unwrap_err();
//! assert_eq!(error.to_string(), "cannot read 4 bytes at 0x1002");
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use thiserror::Error;

/// Why bytes of a memory cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Not all bytes are readable.
    #[error("cannot read {bytes} bytes at {address:#x}")]
    Unreadable {
        /// The address of the first byte, which may be relative to an image.
        address: u64,
        /// The number of bytes.
        bytes: usize,
    },
    /// A size that the memory itself contains exceeds its limit.
    #[error("{bytes} bytes at {address:#x} exceed the limit of {limit} bytes")]
    TooLarge {
        /// The address of the first byte.
        address: u64,
        /// The number of bytes.
        bytes: u64,
        /// The limit in bytes.
        limit: usize,
    },
}

/// Memory that is read by address: a process, a file as it is mapped, or bytes.
pub trait Memory {
    /// Fills `buffer` with the bytes at `address`. Returns the number of bytes that are readable.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// Fills `buffer` with the bytes at `address`.
    ///
    /// # Errors
    /// Not all bytes are readable.
    fn read_exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        let bytes = buffer.len();
        match self.read(address, buffer) == bytes {
            true => Ok(()),
            false => Err(ReadError::Unreadable { address, bytes }),
        }
    }

    /// Returns N bytes.
    ///
    /// # Errors
    /// Not all bytes are readable.
    fn bytes<const N: usize>(&self, address: u64) -> Result<[u8; N], ReadError> {
        let mut bytes = [0; N];
        self.read_exact(address, &mut bytes)?;
        Ok(bytes)
    }

    /// Returns an 8-bit integer.
    ///
    /// # Errors
    /// The byte is not readable.
    fn u8(&self, address: u64) -> Result<u8, ReadError> {
        self.bytes(address).map(u8::from_le_bytes)
    }

    /// Returns a little-endian 16-bit integer.
    ///
    /// # Errors
    /// Not all bytes are readable.
    fn u16(&self, address: u64) -> Result<u16, ReadError> {
        self.bytes(address).map(u16::from_le_bytes)
    }

    /// Returns a little-endian 32-bit integer.
    ///
    /// # Errors
    /// Not all bytes are readable.
    fn u32(&self, address: u64) -> Result<u32, ReadError> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// Returns a little-endian 64-bit integer or pointer.
    ///
    /// # Errors
    /// Not all bytes are readable.
    fn u64(&self, address: u64) -> Result<u64, ReadError> {
        self.bytes(address).map(u64::from_le_bytes)
    }

    /// Returns `len` bytes.
    ///
    /// # Errors
    /// Not all bytes are readable, or `len` exceeds `limit`.
    fn vec(&self, address: u64, len: u64, limit: usize) -> Result<Vec<u8>, ReadError> {
        let valid = usize::try_from(len).ok().filter(|len| *len <= limit);
        let len = valid.ok_or(ReadError::TooLarge {
            address,
            bytes: len,
            limit,
        })?;
        let mut bytes = vec![0; len];
        self.read_exact(address, &mut bytes)?;
        Ok(bytes)
    }
}

/// A part of a memory, such as a structure or an image, that is read by offset.
///
/// ```
/// use perfcollect_symbols::memory::{Image, Memory, Structure};
///
/// let image = Image { start: 0x1000, bytes: &[1, 2, 3, 4, 5] };
/// let structure = Structure::new(image, 0x1002);
/// assert_eq!(structure.u16(1), Ok(0x0504));
/// let error = structure.u16(2).unwrap_err();
/// assert_eq!(error.to_string(), "cannot read 2 bytes at 0x1004");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Structure<M> {
    memory: M,
    address: u64,
}

impl<M: Memory> Structure<M> {
    /// Returns the structure at an address.
    pub fn new(memory: M, address: u64) -> Self {
        Self { memory, address }
    }
}

impl<M: Memory> Memory for Structure<M> {
    fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let address = self.address.checked_add(offset);
        address.map_or(0, |address| self.memory.read(address, buffer))
    }

    fn read_exact(&self, offset: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        match self.address.checked_add(offset) {
            Some(address) => self.memory.read_exact(address, buffer),
            None => Err(ReadError::Unreadable {
                address: u64::MAX,
                bytes: buffer.len(),
            }),
        }
    }
}

/// Reads through the reference.
impl<M: Memory + ?Sized> Memory for &M {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        M::read(self, address, buffer)
    }

    fn read_exact(&self, address: u64, buffer: &mut [u8]) -> Result<(), ReadError> {
        M::read_exact(self, address, buffer)
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
    fn rejects_offsets_beyond_the_address_space() {
        let image = Image {
            start: u64::MAX - 7,
            bytes: &[1; 8],
        };
        let structure = Structure::new(image, u64::MAX - 3);
        assert_eq!(structure.u8(2), Ok(1));
        assert_eq!(structure.read(4, &mut [0; 1]), 0);
        assert!(structure.u8(4).is_err());
    }

    #[test]
    fn reads_no_further_than_the_end_of_an_image() {
        let image = Image {
            start: 0x1000,
            bytes: &[1, 2, 3, 4, 5],
        };
        let unreadable = |address| Err(ReadError::Unreadable { address, bytes: 4 });
        assert_eq!(image.u32(0x1001), Ok(0x0504_0302));
        for address in [0x1002, 0xfff] {
            assert_eq!(image.u32(address), unreadable(address));
        }
        assert_eq!(image.read(0x1004, &mut [0; 9]), 1);
    }
}
