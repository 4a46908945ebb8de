//! Cancellation by the user.

use std::io::{self, Read, Seek, SeekFrom, Write};

/// Returns whether to cancel. Called often, from all threads.
pub type CancelCheck<'a> = &'a (dyn Fn() -> bool + Sync);

fn cancelled() -> io::Error {
    io::Error::other("cancelled")
}

/// A reader that fails after cancellation.
pub(crate) struct CancellableReader<'a, R> {
    pub(crate) inner: R,
    pub(crate) cancel: CancelCheck<'a>,
}

impl<R: Read> Read for CancellableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match (self.cancel)() {
            true => Err(cancelled()),
            false => self.inner.read(buffer),
        }
    }
}

/// A writer that fails after cancellation.
pub(crate) struct CancellableWriter<'a, W> {
    pub(crate) inner: W,
    pub(crate) cancel: CancelCheck<'a>,
}

impl<W: Write> Write for CancellableWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match (self.cancel)() {
            true => Err(cancelled()),
            false => self.inner.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<W: Seek> Seek for CancellableWriter<'_, W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.inner.seek(to)
    }
}
