//! Captures in the background: `start` and `stop`.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Running, Saved, run_perfcollect, start};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const RESULTS: [&str; 3] = ["x.flamegraph.svg", "x.nettrace", "x.trace.zip"];

/// Something that keeps a CPU busy.
fn busy() -> Running {
    start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

fn files(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<_> = files
        .map(|file| file.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn perfcollect(folder: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    let finished = run_perfcollect(words, folder.path(), LIMIT);
    (finished.status.code(), finished.stdout, finished.stderr)
}

#[test]
fn a_capture_runs_until_it_is_stopped() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let (status, stdout, stderr) = perfcollect(&folder, &["start", "x", "-pid", &pid]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("perfcollect stop x"), "{stdout}");
    assert!(!stdout.contains("CTRL"), "{stdout}");
    let (status, _, stderr) = perfcollect(&folder, &["start", "x", "-pid", &pid]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("is running"), "{stderr}");
    assert!(stderr.contains("with `perfcollect stop x`"), "{stderr}");
    sleep(Duration::from_secs(1));
    let (status, stdout, stderr) = perfcollect(&folder, &["stop", "x"]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("samples of cpu-clock"), "{stdout}");
    assert_eq!(files(folder.path()), RESULTS);
    let saved = Saved::open(folder, "x");
    // Since it said that it has started.
    assert!(saved.summary.samples > 20, "{}", saved.summary.samples);
    assert_eq!(saved.summary.info.end, "signal");
}

#[test]
fn one_that_ended_by_itself_is_told_of_later() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    let folder = tempfile::tempdir().unwrap();
    let words = ["start", "x", "-pid", &pid, "-collectsec", "0.5"];
    let (status, ..) = perfcollect(&folder, &words);
    assert_eq!(status, Some(0));
    let begin = Instant::now();
    // Beside them is what it has said.
    while !folder.path().join("x.trace.zip").exists()
        || files(folder.path()).len() > RESULTS.len() + 1
    {
        assert!(begin.elapsed() < LIMIT, "{:?}", files(folder.path()));
        sleep(Duration::from_millis(20));
    }
    let (status, stdout, _) = perfcollect(&folder, &["stop", "x"]);
    assert_eq!(status, Some(0));
    assert!(stdout.contains("time limit"), "{stdout}");
    assert_eq!(files(folder.path()), RESULTS);
}

#[test]
fn what_cannot_begin_or_end_says_so() {
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let (status, stdout, stderr) = perfcollect(&folder, &["start", "x", "-pid", "4194304"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("4194304"), "{stderr}");
    let (status, _, stderr) = perfcollect(&folder, &["stop", "x"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("no capture of this name"), "{stderr}");
    assert!(stderr.contains("give the name as a path"), "{stderr}");
    assert_eq!(files(folder.path()), [""; 0]);
    // Nothing runs, so it fails when it is to end.
    let mut sleeper = Command::new("sleep");
    let sleeper = start(sleeper.arg("60"));
    let pid = sleeper.pid().to_string();
    sleeper.signal(Signal::STOP);
    let is_stopped = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    };
    while !is_stopped() {
        sleep(Duration::from_millis(10));
    }
    let (status, ..) = perfcollect(&folder, &["start", "x", "-pid", &pid]);
    assert_eq!(status, Some(0));
    let (status, stdout, stderr) = perfcollect(&folder, &["stop", "x"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("no samples"), "{stderr}");
    assert_eq!(files(folder.path()), [""; 0]);
}
