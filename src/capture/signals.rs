//! Ctrl-C, SIGTERM and SIGHUP as something to wait for and to count; SIGXFSZ as an error of the write that caused it.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

/// Counts stop requests. One ends the capture, one more ends what comes after it.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    count: AtomicUsize,
    /// Of these, those that have had their effect.
    taken: AtomicUsize,
}

impl Signals {
    /// Takes the three signals over from their default action. A SIGHUP that was ignored stays so: that is what `nohup`
    /// asks for. SIGINT is taken even then, for shells ignore it in what they start in the background.
    pub fn install() -> io::Result<Self> {
        let (wake, sender) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        // A write beyond the limit of file sizes is to fail, not to kill. A command would inherit it if it were ignored.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        Ok(Self {
            wake,
            count: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// Whether a stop was asked for that has not had its effect.
    #[must_use]
    pub fn pending(&self) -> bool {
        self.count() > self.taken.load(Ordering::Relaxed)
    }

    /// One request has its effect now: the next one means what follows.
    pub fn take(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> usize {
        let mut bytes = [0; 64];
        while let Ok(received @ 1..) = (&self.wake).read(&mut bytes) {
            self.count.fetch_add(received, Ordering::Relaxed);
        }
        self.count.load(Ordering::Relaxed)
    }
}

/// Whether this process was started with a signal ignored.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 != 0)
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}
