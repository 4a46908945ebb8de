//! Ctrl-C, SIGTERM and SIGHUP as something to wait for and to count.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Counts stop requests. The first ends the capture, the second ends what comes after it.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    count: Arc<AtomicUsize>,
}

impl Signals {
    /// Takes the three signals over from their default action.
    pub fn install() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let count = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        Ok(Self { wake, count })
    }

    /// Stop requests so far.
    #[must_use]
    pub fn count(&self) -> usize {
        let mut bytes = [0; 64];
        while let Ok(received @ 1..) = (&self.wake).read(&mut bytes) {
            self.count.fetch_add(received, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
