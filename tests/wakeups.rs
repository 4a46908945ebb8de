//! Who wakes whom: as often as the threads know, by name, in the function that does it.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::ffi::OsStr;
use std::io::{Read, Write, pipe};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use perfcollect::output::summary::WakeupRow;
use rustix::thread::{CpuSet, sched_setaffinity};
use support::{
    AS_NOBODY, PublicDirectory, Saved, compiled, perfcollect, perfview_json, run_perfcollect, zip,
};

const LIMIT: Duration = Duration::from_secs(120);
/// A thread that wakes another one, and one that reads its input. Prints how often they were woken.
const WAKERS: &str = include_str!("workloads/native/wakers.c");
/// Time between two bytes of the input.
const PAUSE: Duration = Duration::from_micros(500);

/// Wake-ups of rows, some of which may have the wrong name while a thread has none yet.
fn sum<'a>(rows: impl Iterator<Item = &'a WakeupRow>) -> u64 {
    rows.map(|row| row.wakeups).sum()
}

/// Each sample stands for up to 31 of some thousand wake-ups.
#[track_caller]
fn expect_about(what: &str, found: u64, expected: u64, rows: &[WakeupRow]) {
    let error = found.abs_diff(expected);
    assert!(
        error * 10 < expected * 4,
        "{what}: {found}, not {expected}: {rows:#?}"
    );
}

#[test]
fn threads_are_woken_by_threads_processes_and_timers() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "wakers", WAKERS, &["-g", "-pthread"]);
    let directory = tempfile::tempdir().unwrap();
    let mut capture = Command::new(perfcollect())
        .args(["collect", "x", "-wakeups", "-nolttng", "--"])
        .arg(&program)
        .arg("3")
        .current_dir(&directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = capture.stdin.take().unwrap();
    let writer = thread::spawn(move || {
        while input.write_all(b"x").is_ok() {
            thread::sleep(PAUSE);
        }
    });
    let finished = capture.wait_with_output().unwrap();
    writer.join().unwrap();
    let stderr = String::from_utf8_lossy(&finished.stderr);
    assert!(finished.status.success(), "{stderr}");
    assert!(stderr.contains("wake-ups: "), "{stderr}");
    let stdout = String::from_utf8_lossy(&finished.stdout);
    let counts = stdout.lines().find_map(|line| line.strip_prefix("woken "));
    let counts: Vec<u64> = counts
        .unwrap()
        .split(' ')
        .map(|count| count.parse().unwrap())
        .collect();
    let saved = Saved::open(directory, "x");
    let wakeups = saved.summary.wakeups.clone().unwrap();
    let rows = &*wakeups.rows;
    let of = |woken: &str, waker: &str| {
        let is_row = |row: &&WakeupRow| row.woken == woken && row.waker == waker;
        rows.iter().filter(is_row).cloned().collect::<Vec<_>>()
    };

    let by_boss = of("worker", "boss");
    expect_about("worker", sum(by_boss.iter()), counts[0], rows);
    let in_let_go = by_boss
        .iter()
        .filter(|row| row.method == "let_go" && row.own);
    assert!(sum(in_let_go) * 10 > sum(by_boss.iter()) * 9, "{rows:#?}");
    // The boss sleeps as often.
    let by_timer = of("boss", "a timer");
    expect_about("boss", sum(by_timer.iter()), counts[0], rows);
    assert!(
        by_timer.iter().all(|row| row.method.is_empty()),
        "{rows:#?}"
    );
    // This process is not part of the capture.
    let me = std::process::id();
    let by_me = rows
        .iter()
        .filter(|row| row.woken == "reader" && row.waker.ends_with(&format!(" ({me})")));
    expect_about("reader", sum(by_me), counts[1], rows);
    assert!(
        saved
            .summary
            .processes
            .iter()
            .all(|row| row.pid != me as i32),
        "{:#?}",
        saved.summary.processes
    );
    expect_same_in_files(&saved, wakeups.wakeups);
}

/// The table, the folded stacks, a part of the time and a copy have them. In PerfView, they are no samples.
#[track_caller]
fn expect_same_in_files(saved: &Saved, wakeups: u64) {
    let path = saved.path.to_str().unwrap();
    let words = ["report", path, "-kind", "wakeups", "-format", "csv"];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(
        table.stdout.contains(",worker,boss,wakers,let_go"),
        "{}",
        table.stdout
    );
    let archive = std::fs::read(&saved.path).unwrap();
    let folded = zip::entry(&archive, "x.trace/wakeups.folded");
    let folded = String::from_utf8(folded).unwrap();
    let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    let all: u64 = counts.map(|count| count.parse::<u64>().unwrap()).sum();
    assert_eq!(all, wakeups);
    // What a timer met on its CPU is not on the stack.
    let by_timer = folded
        .lines()
        .filter(|line| line.contains(" woken by a timer]"));
    assert!(by_timer.clone().count() > 0 && by_timer.clone().all(|line| !line.contains("main;")));

    let words = [
        "report", path, "-kind", "summary", "-format", "json", "-from", "1", "-to", "2",
    ];
    let part = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let part: serde_json::Value = serde_json::from_str(&part.stdout).unwrap();
    let part = part["wakeups"]["wakeups"].as_u64().unwrap();
    assert!(part > 0 && part < wakeups, "{part} {wakeups}");

    // A group takes code only, and what waits for all of the time can be selected.
    for selection in [
        &["-justmycode"][..],
        &["-group", "{%}!=>module $1"],
        &["-include", "worker woken by boss"],
        &["-thread", "worker"],
    ] {
        let words = ["report", path, "-kind", "wakeups", "-format", "csv"];
        let words = words.iter().chain(selection);
        let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
        assert!(
            table.stdout.contains(",worker,boss,"),
            "{selection:?}: {}",
            table.stdout
        );
    }

    std::fs::create_dir(saved.directory().join("copy")).unwrap();
    let words = ["convert", path, "-o", "copy/x"];
    run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let copy = std::fs::read(saved.directory().join("copy/x.trace.zip")).unwrap();
    for name in ["wakeups.folded", "wakeups.perf.txt", "wakeups.svg"] {
        let name = format!("x.trace/{name}");
        let [copied, original] = [&copy, &archive].map(|archive| zip::entry(archive, &name));
        assert_eq!(copied, original, "{name}");
    }

    for trace in [saved.path.clone(), saved.path.with_file_name("x.nettrace")] {
        let Some(cpu) = perfview_json("cpu", &trace, &[]) else {
            continue;
        };
        let samples = Some(saved.summary.samples);
        assert_eq!(cpu["samples"].as_u64(), samples, "{cpu}");
    }
}

/// Wakes a thread as often as it can for 50 ms of each 200 ms, on the first CPU.
fn wake_in_bursts(is_over: &AtomicBool) {
    let mut first = CpuSet::new();
    first.set(0);
    sched_setaffinity(None, &first).unwrap();
    let (mut to_reader, mut to) = pipe().unwrap();
    let (mut from, mut from_reader) = pipe().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut byte = [0];
            while to_reader.read_exact(&mut byte).is_ok() {
                from_reader.write_all(&byte).unwrap();
            }
        });
        while !is_over.load(Ordering::Relaxed) {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(50) {
                to.write_all(b"x").unwrap();
                from.read_exact(&mut [0]).unwrap();
            }
            thread::sleep(Duration::from_millis(150));
        }
        drop(to);
    });
}

/// What wakes other processes neither displaces samples nor makes them rougher.
#[test]
fn bursts_of_other_processes_take_no_samples() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "wakers", WAKERS, &["-g", "-pthread"]);
    let is_over = AtomicBool::new(false);
    let (saved, stdout) = thread::scope(|scope| {
        scope.spawn(|| wake_in_bursts(&is_over));
        let directory = tempfile::tempdir().unwrap();
        let command = ["collect", "x", "-wakeups", "-nolttng", "--"].map(OsStr::new);
        let command = command
            .into_iter()
            .chain([program.as_os_str(), OsStr::new("2")]);
        let finished = run_perfcollect(command, directory.path(), LIMIT);
        is_over.store(true, Ordering::Relaxed);
        let finished = finished.expect_success();
        (Saved::open(directory, "x"), finished.stdout)
    });
    let counts = stdout.lines().find_map(|line| line.strip_prefix("woken "));
    let woken: u64 = counts.unwrap().split(' ').next().unwrap().parse().unwrap();
    let wakeups = saved.summary.wakeups.as_ref().unwrap();
    // The boss and the worker, each as often.
    expect_about("all", wakeups.wakeups, 2 * woken, &wakeups.rows);
    // Each sample stands for 31 of them at most.
    assert!(
        wakeups.samples * 31 * 4 > wakeups.wakeups * 3,
        "{wakeups:#?}"
    );
}

/// Without the privilege, the rest is captured, and a notice shows what is missing.
#[test]
fn a_user_without_rights_has_a_notice() {
    need_capture!();
    need_command!("setpriv");
    let public = PublicDirectory::new();
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let finished = public.collect(&AS_NOBODY, &["-wakeups", "--", "sh", "-c", busy]);
    if finished.is_not_permitted() {
        return;
    }
    let saved = Saved::open(public.into_inner(), "x");
    assert_eq!(saved.summary.wakeups, None);
    let mut notices = saved.summary.quality.notices.iter();
    assert!(
        notices.any(|notice| notice.what.starts_with("wake-ups were not sampled")),
        "{:#?}",
        saved.summary.quality.notices
    );
}
