//! Search for runtimes in processes whose mappings show none: NativeAOT programs.
//!
//! Their executable tells. Reading it may take long, so that is done in a thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::dotnet::Detector;
use crate::machine::reset_thread_priority;
use crate::trace::Pid;

/// Maximum number of processes that wait for the thread.
const QUEUE: usize = 8192;

/// A search in a thread, which starts with the first process.
#[derive(Debug, Default)]
pub(super) struct RuntimeSearch(Option<Channels>);

#[derive(Debug)]
struct Channels {
    searches: SyncSender<(Pid, u64)>,
    results: Receiver<SearchResult>,
}

/// Result of a search.
#[derive(Debug)]
pub(super) struct SearchResult {
    pub(super) pid: Pid,
    /// Number of the search.
    pub(super) number: u64,
    pub(super) has_runtime: bool,
}

impl RuntimeSearch {
    /// Starts the search with a number in a process. Returns whether there is room for it.
    pub(super) fn start(&mut self, pid: Pid, number: u64) -> bool {
        if self.0.is_none() {
            self.0 = spawn();
        }
        let channels = self.0.as_ref();
        channels.is_some_and(|channels| channels.searches.try_send((pid, number)).is_ok())
    }

    /// Returns the results since the last call.
    pub(super) fn results(&self) -> Vec<SearchResult> {
        let results = self.0.iter();
        results
            .flat_map(|channels| channels.results.try_iter())
            .collect()
    }
}

/// Starts the thread. It ends with the channels.
fn spawn() -> Option<Channels> {
    let (searches, searched) = sync_channel::<(Pid, u64)>(QUEUE);
    let (sender, results) = sync_channel(2 * QUEUE);
    let search = move || {
        reset_thread_priority();
        let mut detector = Detector::default();
        for (pid, number) in searched {
            let has_runtime = matches!(detector.identify(pid), Ok(Some(_)));
            let result = SearchResult {
                pid,
                number,
                has_runtime,
            };
            if sender.send(result).is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name("runtime search".into());
    thread.spawn(search).ok()?;
    Some(Channels { searches, results })
}
