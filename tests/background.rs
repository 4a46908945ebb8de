//! Captures in the background: `start` and `stop`.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Finished, Running, Saved, file_names, finish, run_perfcollect, start};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
const RESULTS: [&str; 3] = ["x.flamegraph.svg", "x.nettrace", "x.trace.zip"];

/// Starts a process that keeps a CPU busy.
fn busy() -> Running {
    start(Command::new("sh").args(["-c", "while :; do :; done"]))
}

fn perfcollect(directory: &TempDir, words: &[&str]) -> (Option<i32>, String, String) {
    let finished = run_perfcollect(words, directory.path(), LIMIT);
    (finished.status.code(), finished.stdout, finished.stderr)
}

#[test]
fn capture_runs_until_stopped() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let (status, stdout, stderr) = perfcollect(&directory, &["start", "x", "-pid", &pid]);
    assert_eq!((status, stderr.as_str()), (Some(0), ""));
    assert!(stdout.contains("perfcollect stop x"), "{stdout}");
    assert!(!stdout.contains("CTRL"), "{stdout}");
    let (status, _, stderr) = perfcollect(&directory, &["start", "x", "-pid", &pid]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("is running"), "{stderr}");
    assert!(stderr.contains("with `perfcollect stop x`"), "{stderr}");
    sleep(Duration::from_secs(1));
    // On a busy machine, it prints the progress of the capture.
    let (status, stdout, stderr) = perfcollect(&directory, &["stop", "x"]);
    assert_eq!(status, Some(0), "{stderr}");
    assert!(stdout.contains("samples of cpu-clock"), "{stdout}");
    assert_eq!(file_names(directory.path()), RESULTS);
    let saved = Saved::open(directory, "x");
    // Sampling lasts from the message of `start` to `stop`.
    assert!(saved.summary.samples > 20, "{}", saved.summary.samples);
    assert_eq!(saved.summary.info.end, "signal");
}

#[test]
fn stop_reports_capture_that_ended_by_itself() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let words = ["start", "x", "-pid", &pid, "-collectsec", "0.5"];
    let (status, ..) = perfcollect(&directory, &words);
    assert_eq!(status, Some(0));
    let start = Instant::now();
    // The directory also contains the output of the capture.
    while !directory.path().join("x.trace.zip").exists()
        || file_names(directory.path()).len() > RESULTS.len() + 1
    {
        assert!(
            start.elapsed() < LIMIT,
            "{:?}",
            file_names(directory.path())
        );
        sleep(Duration::from_millis(20));
    }
    let (status, stdout, _) = perfcollect(&directory, &["stop", "x"]);
    assert_eq!(status, Some(0));
    assert!(stdout.contains("time limit"), "{stdout}");
    assert_eq!(file_names(directory.path()), RESULTS);
}

#[test]
fn reports_failed_start_and_stop() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let (status, stdout, stderr) = perfcollect(&directory, &["start", "x", "-pid", "4194304"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("4194304"), "{stderr}");
    let (status, _, stderr) = perfcollect(&directory, &["stop", "x"]);
    assert_eq!(status, Some(1));
    assert!(stderr.contains("no capture of this name"), "{stderr}");
    assert!(stderr.contains("give the name as a path"), "{stderr}");
    assert_eq!(file_names(directory.path()), [""; 0]);
    // The target sends no events, so the capture fails at its end.
    let mut sleeper = Command::new("sleep");
    let sleeper = start(sleeper.arg("60"));
    let pid = sleeper.pid().to_string();
    let (status, ..) = perfcollect(&directory, &["start", "x", "-gccollectonly", "-pid", &pid]);
    assert_eq!(status, Some(0));
    let (status, stdout, stderr) = perfcollect(&directory, &["stop", "x"]);
    assert_eq!((status, stdout.as_str()), (Some(1), ""));
    assert!(stderr.contains("no events"), "{stderr}");
    assert_eq!(file_names(directory.path()), [""; 0]);
}

/// Starts `stop x` as often as given, at once.
fn stops(directory: &TempDir, count: usize) -> Vec<Running> {
    let stop = |_| {
        let mut command = Command::new(support::perfcollect());
        start(command.args(["stop", "x"]).current_dir(directory))
    };
    (0..count).map(stop).collect()
}

#[test]
fn any_number_of_stops_report_the_same() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    // The second of two signals once ended the work after the capture.
    for between in [0, 0, 0, 20, 50, 100, 200] {
        let directory = tempfile::tempdir().unwrap();
        perfcollect(&directory, &["start", "x", "-pid", &pid]);
        sleep(Duration::from_millis(500));
        let mut running = stops(&directory, 2);
        sleep(Duration::from_millis(between));
        running.extend(stops(&directory, 2));
        let ends = running.into_iter().map(|stop| finish(stop, LIMIT));
        // Those that come when all is done find nothing.
        let (late, ends): (Vec<Finished>, Vec<Finished>) =
            ends.partition(|end| end.stderr.contains("no capture of this name"));
        assert!(late.len() < 4);
        for end in &ends {
            assert!(end.status.success(), "{end:?}");
            assert!(end.stdout.contains("samples of cpu-clock"), "{end:?}");
            assert_eq!(end.stdout, ends[0].stdout);
        }
        assert_eq!(file_names(directory.path()), RESULTS);
    }
}

/// The capture is killed when `stop` waits for it.
#[test]
fn stop_recovers_a_capture_that_is_killed_meanwhile() {
    need_capture!();
    let busy = busy();
    let pid = busy.pid().to_string();
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(support::perfcollect());
    command
        .args(["collect", "x", "-pid", &pid])
        .current_dir(&directory);
    let capture = support::start_capture(&mut command);
    sleep(Duration::from_millis(1500));
    capture.signal(Signal::STOP);
    let stop = stops(&directory, 1).remove(0);
    sleep(Duration::from_millis(500));
    capture.signal(Signal::KILL);
    let finished = finish(stop, LIMIT).expect_success();
    assert!(
        finished.stdout.contains("recovered from the spool"),
        "{finished:?}"
    );
    assert_eq!(file_names(directory.path()), RESULTS);
}
