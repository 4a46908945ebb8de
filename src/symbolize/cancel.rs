//! Giving up in the middle, when the user asks for it.

use std::io::{self, Read};

/// Tells whether to give up; asked often, from all threads.
pub type CancelCheck<'a> = &'a (dyn Fn() -> bool + Sync);

/// A reader that fails once it is time to give up.
pub(crate) struct CancellableReader<'a, R> {
    pub(crate) inner: R,
    pub(crate) stop: CancelCheck<'a>,
}

impl<R: Read> Read for CancellableReader<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if (self.stop)() {
            return Err(io::Error::other("stopped"));
        }
        self.inner.read(buffer)
    }
}
