//! Signal handling: SIGINT, SIGTERM and SIGHUP request a stop, SIGUSR1 is `perfcollect stop`, SIGXFSZ makes
//! a write fail.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};

use super::last_words::{FAILURE, print};
use crate::machine::drop_capabilities;

/// Time that the program has to end by itself after the second request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time in which further signals are the same request: `timeout` signals a process and then its group,
/// and `sudo` repeats what the terminal sends.
const SAME_REQUEST: Duration = Duration::from_millis(200);
/// Stack of the thread that handles the signals.
const STACK_BYTES: usize = 64 << 10;

type KeptText = Arc<Mutex<Option<String>>>;

/// Something that is kept if the program ends while it waits.
#[derive(Debug)]
pub struct Kept(KeptText);

impl Kept {
    fn set(&self, what: Option<String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = what;
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.set(None);
    }
}

/// Counter of stop requests.
///
/// The first request ends the capture. The second one ends the work that follows the capture; it ends the
/// program if that does not end within 5 s, because it waits for a file system, for example.
#[derive(Debug)]
pub struct Signals {
    wake: UnixStream,
    count: AtomicUsize,
    /// Number of requests that have taken effect.
    taken: AtomicUsize,
    /// Whether `perfcollect stop` was run.
    stop: Arc<AtomicBool>,
    /// What is kept if the program ends while it waits.
    kept: KeptText,
    /// The signals that were blocked before.
    blocked_before: SigSet,
}

impl Signals {
    /// Installs the handlers.
    ///
    /// A SIGHUP that was ignored stays ignored, as `nohup` requires. SIGINT gets a handler even
    /// then, as shells ignore it in background commands.
    ///
    /// A thread of their own handles them: one that waits for a file system that does not answer
    /// handles none. So this thread, and those that it starts, block them.
    ///
    /// # Errors
    /// Returns an error if a handler cannot be installed.
    pub fn install() -> io::Result<Self> {
        let (wake, requests) = UnixStream::pair()?;
        wake.set_nonblocking(true)?;
        let (received, sender) = UnixStream::pair()?;
        let hangup = (!is_ignored(SIGHUP)).then_some(SIGHUP);
        for signal in [SIGINT, SIGTERM].into_iter().chain(hangup) {
            signal_hook::low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        // A write beyond the file size limit must fail, not kill perfcollect. The command would
        // inherit an ignored signal.
        signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
        let stop = Arc::default();
        signal_hook::flag::register(SIGUSR1, Arc::clone(&stop))?;
        let kept = KeptText::default();
        let line = Arc::clone(&kept);
        thread::Builder::new()
            .name("signals".into())
            .stack_size(STACK_BYTES)
            .spawn(move || handle(received, requests, &line))?;
        let handled: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGUSR1,
        ]
        .into_iter()
        .collect();
        let blocked_before = SigSet::thread_get_mask()?;
        handled.thread_block()?;
        Ok(Self {
            wake,
            stop,
            kept,
            blocked_before,
            count: AtomicUsize::new(0),
            taken: AtomicUsize::new(0),
        })
    }

    /// Starts a program, which inherits none of the blocked signals.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(super) fn spawn(&self, program: &mut Command) -> io::Result<Child> {
        let blocked = SigSet::thread_get_mask()?;
        self.blocked_before.thread_set_mask()?;
        let started = program.spawn();
        blocked.thread_set_mask()?;
        started
    }

    /// Sets what is kept, and how to use it, if the program ends because of the second request. It holds
    /// until the result is dropped.
    #[must_use]
    pub fn keep(&self, what: String) -> Kept {
        let kept = Kept(Arc::clone(&self.kept));
        kept.set(Some(what));
        kept
    }

    /// Returns whether there is a stop request that has not taken effect.
    #[must_use]
    pub fn pending(&self) -> bool {
        self.count() > self.taken.load(Ordering::Relaxed)
    }

    /// Returns whether the capture shall end: there is a request, or `perfcollect stop` was run. Running
    /// it again does not end the work that follows.
    #[must_use]
    pub fn ends_capture(&self) -> bool {
        self.pending() || self.stop.load(Ordering::Relaxed)
    }

    /// Lets one request take effect. The next request then concerns the work that follows.
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

/// Passes on the requests, and ends the program if it still runs a while after the second one.
///
/// Both streams stay open: further signals write to them.
#[expect(clippy::needless_pass_by_value, reason = "the thread owns them")]
fn handle(received: UnixStream, requests: UnixStream, kept: &Mutex<Option<String>>) {
    // It needs none, and the other threads drop most of theirs later.
    drop_capabilities();
    if pass_on(&received, &requests).is_err() {
        return;
    }
    thread::sleep(PATIENCE);
    let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let kept = kept.as_deref().unwrap_or_default();
    let seconds = PATIENCE.as_secs();
    let line = format!(
        "\nperfcollect: ended by a second signal, because it had not ended by itself {seconds} s later{kept}\n"
    );
    // Another thread may wait for standard error, too, and have its lock.
    let stderr = rustix::stdio::stderr();
    let mut polled = [PollFd::new(&stderr, PollFlags::OUT)];
    if poll(&mut polled, Some(&Timespec::default())) == Ok(1) {
        print(line.as_bytes());
    }
    signal_hook::low_level::exit(FAILURE);
}

/// Passes on two requests, one byte each. Signals that follow each other closely are one.
fn pass_on(mut received: &UnixStream, mut requests: &UnixStream) -> io::Result<()> {
    let mut signals = [0; 64];
    let mut last: Option<Instant> = None;
    let mut passed_on = 0;
    while passed_on < 2 {
        if received.read(&mut signals)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let now = Instant::now();
        let is_new = last.is_none_or(|last| now.duration_since(last) >= SAME_REQUEST);
        last = Some(now);
        if is_new {
            requests.write_all(&[0])?;
            passed_on += 1;
        }
    }
    Ok(())
}

/// Returns whether a signal was ignored when this process started.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_follow_closely_are_one_request() {
        let (received, mut sender) = UnixStream::pair().unwrap();
        let (mut wake, requests) = UnixStream::pair().unwrap();
        let handler = thread::spawn(move || pass_on(&received, &requests));
        sender.write_all(&[0; 3]).unwrap();
        wake.read_exact(&mut [0]).unwrap();
        thread::sleep(2 * SAME_REQUEST);
        sender.write_all(&[0]).unwrap();
        handler.join().unwrap().unwrap();
        let mut rest = Vec::new();
        wake.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), 1);
    }
}
