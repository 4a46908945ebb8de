//! The threads of the target when a capture ends: those that waited have no samples.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use perfcollect_symbols::symbolizer::Symbolizer;

use super::{Activity, Depth, Snapshot, read};
use crate::capture::Signals;
use crate::machine::raise_thread_priority;
use crate::trace::{Notice, NoticeKind, Pid, RIGHTS_TO_READ_THREADS};

/// Time after which no more threads are read.
const MAX_TIME: Duration = Duration::from_secs(2);
/// Time after which the capture ends without the threads: the memory of a process may be locked.
const PATIENCE: Duration = Duration::from_secs(8);
/// Interval of checks for a signal.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Reads what the threads of processes do. Returns none of them if they have ended, cannot be read, or take
/// too long, and a notice if threads are missing.
pub(in crate::capture) fn at_end(
    pids: Vec<Pid>,
    symbolizer: &Arc<Symbolizer>,
    signals: &Signals,
) -> (Option<Snapshot>, Option<Notice>) {
    match read_in_time(pids, symbolizer, signals) {
        Ok(snapshot) => {
            let (notice, unreadable) = (snapshot.omitted.notice(), unreadable(&snapshot));
            match is_readable(&snapshot) {
                true => (Some(snapshot), notice),
                false => (None, unreadable.or(notice)),
            }
        }
        Err(why) => (
            None,
            Some(not_read(&why, "`perfcollect stacks -p PID` reads it now")),
        ),
    }
}

/// Reads the threads. Returns the reason if that takes too long or is not possible.
fn read_in_time(
    pids: Vec<Pid>,
    symbolizer: &Arc<Symbolizer>,
    signals: &Signals,
) -> Result<Snapshot, String> {
    let (sender, snapshots) = channel();
    let (symbolizer, stop) = (Arc::clone(symbolizer), Arc::new(AtomicBool::new(false)));
    let is_stopped = Arc::clone(&stop);
    let reader = thread::Builder::new().name("snapshot".into());
    let start = Instant::now();
    reader
        .spawn(move || {
            // It has no more time beside hundreds of threads that are ready.
            raise_thread_priority();
            let depth = Depth {
                max_time: MAX_TIME,
                samples_running: false,
            };
            let enough = || is_stopped.load(Ordering::Relaxed);
            // Nobody waits for it any more if this fails.
            let _ = sender.send(read(&pids, &symbolizer, depth, enough));
        })
        .map_err(|error| error.to_string())?;
    loop {
        match snapshots.recv_timeout(POLL_INTERVAL) {
            Ok(snapshot) => return snapshot.map_err(|error| error.to_string()),
            Err(RecvTimeoutError::Disconnected) => return Err("its thread failed".to_owned()),
            Err(RecvTimeoutError::Timeout) if start.elapsed() > PATIENCE => {
                return Err(format!(
                    "the kernel did not return their memory for {} s",
                    PATIENCE.as_secs()
                ));
            }
            Err(RecvTimeoutError::Timeout) => {
                stop.fetch_or(signals.pending(), Ordering::Relaxed);
            }
        }
    }
}

/// Returns whether a snapshot has anything: a thread may be read.
fn is_readable(snapshot: &Snapshot) -> bool {
    let mut threads = snapshot.threads.iter();
    threads.any(|thread| !matches!(thread.activity, Activity::Unreadable(_)))
}

/// Returns a notice with the reason why the first thread could not be read.
fn unreadable(snapshot: &Snapshot) -> Option<Notice> {
    snapshot
        .threads
        .iter()
        .find_map(|thread| match &thread.activity {
            Activity::Unreadable(why) => Some(not_read(why, RIGHTS_TO_READ_THREADS)),
            _ => None,
        })
}

fn not_read(why: &str, remedy: &str) -> Notice {
    let what = format!("what the threads waited for at the end is missing: {why}");
    Notice::new(NoticeKind::NoThreadTime, what, remedy)
}
