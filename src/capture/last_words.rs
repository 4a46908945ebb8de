//! What perfcollect prints when it cannot go on: it has no memory, or a bug.

use std::fmt::{self, Write};
use std::io;
use std::panic::PanicHookInfo;
use std::sync::Arc;

use signal_hook::SigId;
use signal_hook::consts::SIGABRT;

/// Status of a failed program.
pub(super) const FAILURE: i32 = 1;

/// A line for standard error that is printed if the program aborts or panics while this exists.
///
/// The standard library aborts when an allocation fails, after a line with its size. The program ends with
/// status 1, and the message of a panic has no backtrace, for which there may be no memory: an
/// allocation that fails within it waits for ever for the lock of the backtrace.
#[derive(Debug)]
pub struct LastWords {
    line: Arc<[u8]>,
    handler: SigId,
}

impl LastWords {
    /// Prepares the line.
    ///
    /// # Errors
    /// Returns an error if the signal handler cannot be installed.
    pub fn new(line: &str) -> io::Result<Self> {
        std::panic::set_hook(Box::new(print_panic));
        let line: Arc<[u8]> = format!("{line}\n").into_bytes().into();
        let text = line.clone();
        let end = move || {
            print(&text);
            // Instead of the abort, which may write a core dump of hundreds of MiB.
            signal_hook::low_level::exit(FAILURE);
        };
        // SAFETY: the action only calls write(2) and _exit(2), which are async-signal-safe.
        #[allow(unsafe_code)]
        let handler = unsafe { signal_hook::low_level::register(SIGABRT, end) }?;
        Ok(Self { line, handler })
    }
}

impl Drop for LastWords {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print(&self.line);
            signal_hook::low_level::exit(FAILURE);
        }
        signal_hook::low_level::unregister(self.handler);
        drop(std::panic::take_hook());
    }
}

/// Writes a line at once, without a lock or memory.
pub(super) fn print(line: &[u8]) {
    let _ = rustix::io::write(rustix::stdio::stderr(), line);
}

fn print_panic(panic: &PanicHookInfo<'_>) {
    let _ = writeln!(Stderr, "{panic}");
}

/// Standard error without a lock or a buffer.
struct Stderr;

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        print(text.as_bytes());
        Ok(())
    }
}
