//! Buffered byte source that counts its offset.

use std::io::{self, BufReader, Read};

use super::error::{NettraceError, NettraceErrorKind};

/// Size limit of a block. Runtimes write some 100 KB. Version 6 has 24 bits for the size.
pub(super) const MAX_BLOCK_BYTES: u32 = 1 << 24;

#[derive(Debug)]
pub(super) struct Feed<R> {
    source: BufReader<R>,
    /// Number of bytes read.
    offset: u64,
}

impl<R: Read> Feed<R> {
    pub(super) fn new(source: R) -> Self {
        Self::from_offset(source, 0)
    }

    /// Reads a stream from an offset.
    pub(super) fn from_offset(source: R, offset: u64) -> Self {
        Self {
            source: BufReader::new(source),
            offset,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn error(&self, kind: NettraceErrorKind) -> NettraceError {
        NettraceError {
            offset: self.offset,
            kind,
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], NettraceError> {
        let mut bytes = [0; N];
        match self.source.read_exact(&mut bytes) {
            Ok(()) => {
                self.offset += N as u64;
                Ok(bytes)
            }
            Err(error) => Err(self.error(match error.kind() {
                io::ErrorKind::UnexpectedEof => NettraceErrorKind::Truncated,
                _ => NettraceErrorKind::Read(error),
            })),
        }
    }

    pub(super) fn u8(&mut self) -> Result<u8, NettraceError> {
        self.array().map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, NettraceError> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads `N` bytes. Returns an error of kind `mismatch` if they are not the expected ones.
    pub(super) fn expect<const N: usize>(
        &mut self,
        expected: [u8; N],
        mismatch: NettraceErrorKind,
    ) -> Result<(), NettraceError> {
        let offset = self.offset;
        if self.array()? == expected {
            return Ok(());
        }
        Err(NettraceError {
            offset,
            kind: mismatch,
        })
    }

    /// Skips to the next multiple of four.
    pub(super) fn align(&mut self) -> Result<(), NettraceError> {
        while !self.offset.is_multiple_of(4) {
            self.u8()?;
        }
        Ok(())
    }

    /// Rejects an excessive block size before any memory is allocated for it.
    pub(super) fn check_size(&self, size: u32) -> Result<u32, NettraceError> {
        let limit = MAX_BLOCK_BYTES;
        if size > limit {
            return Err(self.error(NettraceErrorKind::TooLarge { size, limit }));
        }
        Ok(size)
    }

    /// Reads `size` bytes into `buffer`, replacing its content.
    ///
    /// If the source has fewer bytes, the buffer contains these and the result is an error.
    pub(super) fn block(&mut self, size: u32, buffer: &mut Vec<u8>) -> Result<(), NettraceError> {
        buffer.clear();
        // The buffer grows with the received bytes, not with the announced size.
        let result = (&mut self.source).take(size.into()).read_to_end(buffer);
        self.offset += buffer.len() as u64;
        match result {
            Ok(_) if buffer.len() == size as usize => Ok(()),
            Ok(_) => Err(self.error(NettraceErrorKind::Truncated)),
            Err(error) => Err(self.error(NettraceErrorKind::Read(error))),
        }
    }
}

/// Maximum size of a buffer that is kept until the next block.
const MAX_KEPT_BYTES: usize = 256 << 10;

/// Frees the buffer of an exceptional block: a stream may then be silent for hours.
pub(super) fn free_large(buffer: &mut Vec<u8>) {
    if buffer.capacity() > MAX_KEPT_BYTES {
        *buffer = Vec::new();
    }
}
