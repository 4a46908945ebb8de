//! Search for runtimes in processes whose mappings show none: NativeAOT programs.
//!
//! Their executable tells. Reading it may take long, so that is done in a thread.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use crate::dotnet::Detector;
use crate::trace::Pid;

/// Maximum number of processes that wait for the thread.
const QUEUE: usize = 1024;

/// A search in a thread, which starts with the first process.
#[derive(Debug, Default)]
pub(super) struct RuntimeSearch(Option<Channels>);

#[derive(Debug)]
struct Channels {
    pids: SyncSender<Pid>,
    results: Receiver<(Pid, bool)>,
}

impl RuntimeSearch {
    /// Starts the search in a process. Returns whether there is room for it.
    pub(super) fn start(&mut self, pid: Pid) -> bool {
        if self.0.is_none() {
            self.0 = spawn();
        }
        let channels = self.0.as_ref();
        channels.is_some_and(|channels| channels.pids.try_send(pid).is_ok())
    }

    /// Returns the processes that were searched since the last call, and whether each has a runtime.
    pub(super) fn results(&self) -> Vec<(Pid, bool)> {
        let results = self.0.iter();
        results
            .flat_map(|channels| channels.results.try_iter())
            .collect()
    }
}

/// Starts the thread. It ends with the channels.
fn spawn() -> Option<Channels> {
    let (pids, searched) = sync_channel::<Pid>(QUEUE);
    let (sender, results) = sync_channel(2 * QUEUE);
    let search = move || {
        let mut detector = Detector::default();
        for pid in searched {
            let has_runtime = matches!(detector.identify(pid), Ok(Some(_)));
            if sender.send((pid, has_runtime)).is_err() {
                break;
            }
        }
    };
    let thread = thread::Builder::new().name("runtime search".into());
    thread.spawn(search).ok()?;
    Some(Channels { pids, results })
}
