//! Page faults with their stacks: they are as many as the program counts itself, of the code that touches the
//! memory, and no part of the CPU samples.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::FaultSummary;
use rustix::process::Signal;
use support::{
    AS_NOBODY, PublicDirectory, Saved, compiled, perfcollect, perfview_json, run, run_perfcollect,
    start, start_capture, zip,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// A program that touches pages and sleeps, and prints the counts of its `getrusage` when it ends.
const FAULTS: &str = include_str!("workloads/native/faults.c");
/// Pages of one of its rounds.
const PAGES: u64 = 1024;

fn program(directory: &TempDir) -> PathBuf {
    compiled(directory.path(), "faults", FAULTS, &["-g", "-pthread"])
}

fn collect(directory: &TempDir, options: &[&str]) -> Command {
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-faults", "-nolttng"])
        .args(options)
        .current_dir(directory);
    command
}

/// The minor and major faults that the program has printed.
fn usage(text: &str) -> u64 {
    let lines = text.lines().filter_map(|line| line.strip_prefix("usage "));
    let numbers = lines.flat_map(|line| line.split(' ').take(2));
    numbers.map(|number| number.parse::<u64>().unwrap()).sum()
}

fn entry(saved: &Saved, name: &str) -> Vec<u8> {
    let archive = std::fs::read(&saved.path).unwrap();
    zip::entry(&archive, &format!("x.trace/{name}"))
}

/// Page faults of the lines of `faults.folded`, and those with a function.
fn folded(saved: &Saved, function: &str) -> (u64, u64) {
    let text = String::from_utf8(entry(saved, "faults.folded")).unwrap();
    let rows = text.lines().map(|line| line.rsplit_once(' ').unwrap());
    rows.fold((0, 0), |(all, below), (stack, faults)| {
        let faults: u64 = faults.parse().unwrap();
        let is_below = stack.split(';').any(|frame| frame == function);
        (all + faults, below + if is_below { faults } else { 0 })
    })
}

/// The faults are about as many as expected, nearly all in the function that touches the pages.
#[track_caller]
fn expect_faults(saved: &Saved, expected: u64) -> FaultSummary {
    let faults = saved.summary.faults.clone().unwrap();
    let error = faults.faults.abs_diff(expected);
    assert!(error < expected / 20, "{expected} {faults:#?}");
    let most = &faults.methods[0];
    assert_eq!(
        (&*most.method, most.own),
        ("touch_pages", true),
        "{faults:#?}"
    );
    assert!(most.faults > faults.faults * 9 / 10, "{faults:#?}");
    let (all, below) = folded(saved, "touch_pages");
    assert_eq!((all, below), (faults.faults, most.faults));
    faults
}

#[test]
fn faults_of_a_command_are_those_that_it_counts() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = program(&programs);
    let directory = tempfile::tempdir().unwrap();
    let mut command = collect(&directory, &["--"]);
    let finished = run(command.arg(&program).args(["60", "2"]), LIMIT).expect_success();
    let expected = usage(&finished.stdout);
    assert!(expected > 2 * 60 * PAGES);
    let saved = Saved::open(directory, "x");
    let faults = expect_faults(&saved, expected);
    assert!(
        finished.stderr.contains("page faults: "),
        "{}",
        finished.stderr
    );
    // The rate of samples is limited.
    assert!(faults.samples < faults.faults / 30, "{faults:#?}");

    let path = saved.path.to_str().unwrap();
    let words = ["report", path, "-kind", "faults", "-format", "csv"];
    let table = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let row = table.stdout.lines().nth(1).unwrap_or_default();
    assert!(row.ends_with(",faults,touch_pages"), "{}", table.stdout);
    expect_a_part_and_a_copy(&saved);

    let beside = std::fs::read(saved.path.with_file_name("x.faults.svg")).unwrap();
    assert!(beside == entry(&saved, "faults.svg"));
    let words: Vec<_> = finished.stderr.split_whitespace().collect();
    let printed = words.join(" ");
    assert!(
        printed.contains(", of page faults to x.faults.svg"),
        "{printed}"
    );

    // They are no CPU samples, here and in PerfView.
    assert!(!String::from_utf8_lossy(&saved.perf_text).contains("page-faults"));
    for trace in [saved.path.clone(), saved.path.with_file_name("x.nettrace")] {
        let Some(cpu) = perfview_json("cpu", &trace, &[]) else {
            continue;
        };
        assert_eq!(
            cpu["samples"].as_u64(),
            Some(saved.summary.samples),
            "{cpu}"
        );
    }
}

/// A part of the time has some of the faults, and a converted trace has all.
#[track_caller]
fn expect_a_part_and_a_copy(saved: &Saved) {
    let path = saved.path.to_str().unwrap();
    let words = [
        "report", path, "-kind", "summary", "-format", "json", "-from", "0.2", "-to", "0.5",
    ];
    let part = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let part: serde_json::Value = serde_json::from_str(&part.stdout).unwrap();
    let part = part["faults"]["faults"].as_u64().unwrap();
    let all = saved.summary.faults.as_ref().unwrap().faults;
    assert!(part > 0 && part < all, "{part} {all}");

    let words = ["convert", path, "-o", "copy/x"];
    std::fs::create_dir(saved.directory().join("copy")).unwrap();
    run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    let copy = std::fs::read(saved.directory().join("copy/x.trace.zip")).unwrap();
    for name in ["faults.folded", "faults.perf.txt", "faults.svg"] {
        let copied = zip::entry(&copy, &format!("x.trace/{name}"));
        assert!(copied == entry(saved, name), "{name}");
    }
}

#[test]
fn faults_of_a_process_among_others_are_its_own() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = program(&programs);
    let [target, other] = ["1", "2"].map(|threads| {
        let mut command = Command::new(&program);
        start(command.args(["1000000", threads]))
    });
    let directory = tempfile::tempdir().unwrap();
    let pid = target.pid().to_string();
    let mut command = collect(&directory, &["-system", "-pid", &pid, "-collectsec", "2"]);
    let finished = run(&mut command, LIMIT).expect_success();
    drop((target, other));
    let saved = Saved::open(directory, "x");
    let counters = saved.summary.info.counters.as_ref().unwrap();
    let counted: u64 = counters.processes[0]
        .counts
        .iter()
        .take(2)
        .map(|row| row.count)
        .sum();
    let faults = saved.summary.faults.as_ref().unwrap();
    // Both programs share the events of a CPU, so this is an estimate.
    let error = faults.faults.abs_diff(counted);
    assert!(
        error < counted / 4,
        "{counted} {faults:#?} {}",
        finished.stderr
    );
    let pids: Vec<String> = faults
        .processes
        .iter()
        .map(|row| row.pid.to_string())
        .collect();
    assert_eq!(pids, [pid]);
}

#[test]
fn a_killed_capture_has_its_faults() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let target = start(Command::new(program(&programs)).arg("1000000"));
    let directory = tempfile::tempdir().unwrap();
    let pid = target.pid().to_string();
    let capture = start_capture(&mut collect(&directory, &["-pid", &pid]));
    std::thread::sleep(Duration::from_secs(2));
    capture.signal_group(Signal::KILL);
    drop(capture);
    let words = ["recover", "x"];
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "x");
    let (all, below) = folded(&saved, "touch_pages");
    assert!(all > PAGES && below > all * 9 / 10, "{below} of {all}");
}

#[test]
fn a_user_without_rights_has_the_faults_of_user_code() {
    need_capture!();
    need_command!("setpriv");
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let public = PublicDirectory::new();
    let program = public.add(&program(&programs));
    let finished = public.collect(&AS_NOBODY, &["-faults", "--", &program, "60", "2"]);
    let directory = public.into_inner();
    if finished.is_not_permitted() {
        return;
    }
    expect_faults(&Saved::open(directory, "x"), usage(&finished.stdout));
}
