//! Cancellable reading from a pipe, whose writer may pause for any time.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Returns whether the user cancelled the operation.
pub type CancelCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// Time between two checks for cancellation while no data arrives.
const CANCEL_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A pipe with cancellable reads.
pub(super) struct Pipe {
    pub(super) input: File,
    pub(super) cancelled: CancelCheck,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if (self.cancelled)() {
                return Err(io::Error::other("stopped"));
            }
            let mut polled = [PollFd::new(&self.input, PollFlags::IN)];
            match poll(&mut polled, Some(&CANCEL_INTERVAL)) {
                Ok(0) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) => return self.input.read(buffer),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
