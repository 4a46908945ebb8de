//! Comparison of what would be written with what is there.

use std::io::{self, Read, Write};

/// A writer that fails at the first byte that differs from those of a reader.
pub(super) struct Comparison<'a, R> {
    expected: &'a mut R,
    buffer: Vec<u8>,
}

impl<'a, R: Read> Comparison<'a, R> {
    pub(super) fn new(expected: &'a mut R) -> Self {
        Self {
            expected,
            buffer: Vec::new(),
        }
    }

    /// Returns whether everything was written that the reader has.
    pub(super) fn is_at_end(&mut self) -> bool {
        matches!(self.expected.read(&mut [0]), Ok(0))
    }
}

impl<R: Read> Write for Comparison<'_, R> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.resize(bytes.len(), 0);
        self.expected.read_exact(&mut self.buffer)?;
        match self.buffer == bytes {
            true => Ok(bytes.len()),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
