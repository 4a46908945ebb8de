//! The events in a trace: as they came, and as babeltrace reads them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::nettrace::{Event, Reader};

use super::zip::unzip;
use super::{Missing, run, skip};

/// An entry of an archive, by what its name contains or ends in.
pub fn entries(trace: &Path, wanted: &str) -> Vec<(String, Vec<u8>)> {
    let mut entries = unzip(&std::fs::read(trace).expect("it is there"));
    entries.retain(|(name, _)| name.contains(wanted));
    entries
}

/// Calls for each event of the raw streams of a trace; gives why each stream ends early.
pub fn for_each_raw_event(trace: &Path, mut take: impl FnMut(&Event<'_>)) -> Vec<Option<String>> {
    let streams = entries(trace, "/eventpipe/").into_iter();
    let streams = streams.map(|(_, stream)| for_each_event(&stream, &mut take));
    streams.collect()
}

/// Calls for each event of a stream; gives why it ends early.
pub fn for_each_event(stream: &[u8], mut take: impl FnMut(&Event<'_>)) -> Option<String> {
    let mut reader = match Reader::open(Cursor::new(stream)) {
        Ok(reader) => reader,
        Err(error) => return Some(error.to_string()),
    };
    loop {
        match reader.next_event() {
            Ok(Some(event)) => take(&event),
            Ok(None) => return None,
            Err(error) => return Some(error.to_string()),
        }
    }
}

/// Events of the runtime itself in the raw streams, by number.
pub fn raw_runtime_events(trace: &Path) -> BTreeMap<u32, u64> {
    let mut counts = BTreeMap::new();
    for_each_raw_event(trace, |event| count(event, &mut counts));
    counts
}

/// The same of a `.nettrace` file, which must be whole.
pub fn merged_runtime_events(file: &Path) -> BTreeMap<u32, u64> {
    let file = File::open(file).expect("it is there");
    let mut reader = Reader::open(file).expect("a stream");
    let mut counts = BTreeMap::new();
    while let Some(event) = reader.next_event().expect("it is whole") {
        count(&event, &mut counts);
    }
    counts
}

fn count(event: &Event<'_>, counts: &mut BTreeMap<u32, u64>) {
    if event.metadata.provider == "Microsoft-Windows-DotNETRuntime" {
        *counts.entry(event.metadata.id).or_default() += 1;
    }
}

/// Events in the CTF part as babeltrace prints them, a line each, with times in nanoseconds since 1970. `None` where that
/// program is not there, which is said.
#[track_caller]
pub fn babeltrace(program: &'static str, trace: &Path) -> Option<Vec<String>> {
    let directory = tempfile::tempdir().expect("a directory");
    let mut ctf = PathBuf::new();
    for (name, bytes) in entries(trace, "/lttngTrace/") {
        let path = directory.path().join(name);
        ctf = path.parent().expect("a directory").to_owned();
        std::fs::create_dir_all(&ctf).expect("it can be made");
        std::fs::write(path, bytes).expect("it can be written");
    }
    let mut command = Command::new(program);
    command.args(["--clock-seconds", "--no-delta"]).arg(ctf);
    if Command::new(program).arg("--version").output().is_err() {
        skip(Missing::Command(program));
        return None;
    }
    let finished = run(&mut command, Duration::from_secs(120)).expect_success();
    assert_eq!(finished.stderr, "", "{program} has something to say");
    Some(finished.stdout.lines().map(str::to_owned).collect())
}

/// Waits until the file of a stream of the capture `x` in this directory has this many bytes. It is
/// compressed.
#[track_caller]
pub fn wait_for_events(directory: &Path, bytes: u64) {
    const LIMIT: Duration = Duration::from_secs(120);
    let begin = Instant::now();
    let has_events = || {
        let files = std::fs::read_dir(directory.join(".x.trace.events")).into_iter();
        let mut sizes = files
            .flatten()
            .flatten()
            .filter_map(|file| file.metadata().ok());
        sizes.any(|file| file.len() >= bytes)
    };
    while !has_events() {
        assert!(begin.elapsed() < LIMIT, "no events come");
        std::thread::sleep(Duration::from_millis(20));
    }
}
