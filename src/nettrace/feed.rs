//! The bytes of a stream in order, with their position.

use std::io::{self, BufReader, Read};

use super::error::{NettraceError, NettraceErrorKind};

/// Most bytes of a block. The runtime ends a block at some 100 KB; version 6 has 24 bits for the size.
pub(super) const MAX_BLOCK_BYTES: u32 = 1 << 24;

#[derive(Debug)]
pub(super) struct Feed<R> {
    source: BufReader<R>,
    /// Bytes taken so far.
    offset: u64,
}

impl<R: Read> Feed<R> {
    pub(super) fn new(source: R) -> Self {
        Self {
            source: BufReader::new(source),
            offset: 0,
        }
    }

    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn error(&self, problem: NettraceErrorKind) -> NettraceError {
        NettraceError {
            offset: self.offset,
            problem,
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

    /// Takes bytes that must be these.
    pub(super) fn expect<const N: usize>(
        &mut self,
        expected: [u8; N],
        otherwise: NettraceErrorKind,
    ) -> Result<(), NettraceError> {
        let at = self.offset;
        if self.array()? == expected {
            return Ok(());
        }
        Err(NettraceError {
            offset: at,
            problem: otherwise,
        })
    }

    /// Takes the bytes up to a multiple of four.
    pub(super) fn align(&mut self) -> Result<(), NettraceError> {
        while !self.offset.is_multiple_of(4) {
            self.u8()?;
        }
        Ok(())
    }

    /// Refuses the size of a block before anything is kept of it.
    pub(super) fn check_size(&self, size: u32) -> Result<u32, NettraceError> {
        let limit = MAX_BLOCK_BYTES;
        if size > limit {
            return Err(self.error(NettraceErrorKind::TooLarge { size, limit }));
        }
        Ok(size)
    }

    /// Takes `size` bytes in place of what `into` holds. Where there are fewer, those are in it, with the error.
    pub(super) fn block(&mut self, size: u32, into: &mut Vec<u8>) -> Result<(), NettraceError> {
        into.clear();
        // Grows with what comes, not with what is announced.
        let taken = (&mut self.source).take(size.into()).read_to_end(into);
        self.offset += into.len() as u64;
        match taken {
            Ok(_) if into.len() == size as usize => Ok(()),
            Ok(_) => Err(self.error(NettraceErrorKind::Truncated)),
            Err(error) => Err(self.error(NettraceErrorKind::Read(error))),
        }
    }
}
