//! Work, and what a second thread does meanwhile at intervals.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use super::trace_files::stopped;
use crate::capture::Signals;
use crate::trace::Trace;

/// Interval of the looks at signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// Does some work, and calls `tick` at intervals meanwhile.
///
/// Without a second thread the work is done all the same.
pub(super) fn meanwhile<T>(
    interval: Duration,
    mut tick: impl FnMut() + Send,
    work: impl FnOnce() -> T,
) -> T {
    let (ended, end) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let _ = thread::Builder::new().spawn_scoped(scope, move || {
            while end.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                tick();
            }
        });
        // Dropping it, also in a panic, ends the thread.
        let _ended = ended;
        work()
    })
}

/// Does some work that reads a trace. After a signal it finds no more samples and events, so that it ends
/// soon: its result is then incomplete.
pub(super) fn until_signal<T>(trace: &Trace, signals: &Signals, work: impl FnOnce() -> T) -> T {
    let stop = || {
        if stopped(signals) {
            trace.stop_reading();
        }
    };
    meanwhile(SIGNAL_INTERVAL, stop, work)
}
