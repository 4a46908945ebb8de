//! A target whose events cannot be written ends as it would without a session.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs::File;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use perfcollect::dotnet::diagnostics::Limits;
use perfcollect::dotnet::{EventProfile, EventSession, StreamRoom, StreamSink};
use perfcollect::nettrace::EventMetadata;
use perfcollect::trace::{EventStream, Pid, StreamContent, StreamName};
use support::{Runtime, Workload, workloads};

const LIMIT: Duration = Duration::from_secs(120);
const EXCEPTION: u32 = 80;

/// A disk that stalls until it is released.
struct StalledDisk {
    released: Mutex<Receiver<()>>,
    file: File,
}

impl StreamSink for StalledDisk {
    fn create(&self, _: Pid, _: StreamContent) -> io::Result<File> {
        let _ = self.released.lock().unwrap().recv();
        self.file.try_clone()
    }

    fn on_data(&self, _: Pid) {}

    fn on_end(&self, _: Pid) {}
}

fn stalled_disk() -> (Arc<StalledDisk>, File, Sender<()>) {
    let file = tempfile::tempfile().unwrap();
    let (release, released) = channel();
    let disk = StalledDisk {
        released: Mutex::new(released),
        file: file.try_clone().unwrap(),
    };
    (Arc::new(disk), file, release)
}

#[test]
fn a_stalled_disk_delays_no_target() {
    let program = need!(workloads::storm());
    let runtime = need!(Runtime::at_least(8));
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--seconds", "3"]));
    let pid = Pid(workload.pid() as i32);
    let (disk, file, release) = stalled_disk();
    let request = EventProfile::gc_collect_only().session_request();
    let room = StreamRoom::default();
    let mut session = EventSession::start(pid, false, request, false, room, disk).unwrap();
    let start = Instant::now();
    let done = workload.done(LIMIT);
    // Without the disk, most events have no room.
    assert!(start.elapsed() < Duration::from_secs(30));
    release.send(()).unwrap();
    session.ask_to_stop(&Limits::new(LIMIT, LIMIT));
    let error = session.finish(Instant::now() + LIMIT, || false, |_| ());
    assert!(error.is_none(), "{error:?}");
    let counts = EventStream::open(StreamName::first(pid), file).counts;
    let is_exception = |(kind, _): &&(Arc<EventMetadata>, u64)| kind.id == EXCEPTION;
    let thrown: u64 = (counts.by_kind.iter().filter(is_exception))
        .map(|(_, count)| count)
        .sum();
    let losses = counts.losses;
    assert!(
        thrown > 1000 && losses.dropped_events > 1000,
        "{thrown}, {losses:?}"
    );
    println!("{thrown} {losses:?} {done}");
}
