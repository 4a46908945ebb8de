//! The threads of the target when a capture ends: those that waited have no samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use perfcollect_symbols::symbolizer::Symbolizer;

use super::{Activity, Depth, Snapshot, read};
use crate::capture::Signals;
use crate::machine::reset_thread_priority;
use crate::trace::Pid;

/// Time after which no more threads are read.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Time after which the capture ends without the threads: the memory of a process may be locked.
const PATIENCE: Duration = Duration::from_secs(8);
/// Interval of checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reads what the threads of processes do. Returns `None` if they have ended, cannot be read, or take too
/// long.
pub(in crate::capture) fn at_end(
    pids: Vec<Pid>,
    symbolizer: &Arc<Symbolizer>,
    signals: &Signals,
) -> Option<Snapshot> {
    let (sender, snapshots) = channel();
    let (symbolizer, stop) = (Arc::clone(symbolizer), Arc::new(AtomicBool::new(false)));
    let is_stopped = Arc::clone(&stop);
    let reader = thread::Builder::new().name("snapshot".into());
    let start = Instant::now();
    reader
        .spawn(move || {
            reset_thread_priority();
            let depth = Depth {
                max_time: MAX_TIME,
                samples_running: false,
            };
            let enough = || is_stopped.load(Ordering::Relaxed);
            // Nobody waits for it any more if this fails.
            let _ = sender.send(read(&pids, &symbolizer, depth, enough));
        })
        .ok()?;
    loop {
        match snapshots.recv_timeout(POLL_INTERVAL) {
            Ok(snapshot) => return snapshot.ok().filter(is_readable),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) if start.elapsed() > PATIENCE => return None,
            Err(RecvTimeoutError::Timeout) => {
                stop.fetch_or(signals.pending(), Ordering::Relaxed);
            }
        }
    }
}

/// Returns whether a snapshot says anything: a thread may be read.
fn is_readable(snapshot: &Snapshot) -> bool {
    let mut threads = snapshot.threads.iter();
    threads.any(|thread| !matches!(thread.activity, Activity::Unreadable(_)))
}
