//! Counted events of the CPU and the kernel: they equal what the kernel counts for the program.
//!
//! Hardware counters are tested where the machine has them; where it has none, the notice about that is.
//! What a report makes of their values is tested in `src/view/counters.rs`.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{CounterEvent, NoticeKind, ProcessCounters};
use support::{
    AS_NOBODY, Finished, PublicDirectory, Saved, compiled, end_capture, perfcollect, run,
    run_perfcollect, start, start_capture, wait_until,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// A program that touches pages and sleeps, and prints the counts of its `getrusage` when it ends.
const FAULTS: &str = include_str!("workloads/native/faults.c");
/// Pages of one of its rounds.
const PAGES: u64 = 1024;

fn counts(saved: &Saved) -> &ProcessCounters {
    let counters = saved.summary.info.counters.as_ref().unwrap();
    let [process] = &counters.processes[..] else {
        panic!("{counters:#?}");
    };
    process
}

/// The counts that the program has printed: minor faults, major faults, context switches.
fn usage(text: &str) -> [u64; 3] {
    let line = text
        .lines()
        .find(|line| line.starts_with("usage "))
        .unwrap();
    let numbers = line
        .split(' ')
        .skip(1)
        .map(|number| number.parse().unwrap());
    numbers.collect::<Vec<u64>>().try_into().unwrap()
}

fn is_near(count: u64, expected: u64, tolerance: u64) -> bool {
    count.abs_diff(expected) <= tolerance
}

#[test]
fn counts_of_a_command_equal_its_resource_usage() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "faults", FAULTS, &["-pthread"]);
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command.args(["collect", "x", "-system", "-hwevents", "--"]);
    command.arg(&program).arg("50").current_dir(&directory);
    let finished = run(&mut command, LIMIT).expect_success();
    let [minor, major, switches] = usage(&finished.stdout);
    assert!(minor > 50 * PAGES && switches >= 50);
    let saved = Saved::open(directory, "x");
    let counted = counts(&saved);
    let count = |event| counted.count(event).unwrap();
    // The kernel also counts pages that it reads for itself; perf does not count before the exec.
    assert!(
        is_near(count(CounterEvent::MinorFaults), minor, 300),
        "{minor} {counted:?}"
    );
    assert!(
        is_near(count(CounterEvent::MajorFaults), major, 10),
        "{major} {counted:?}"
    );
    assert!(
        is_near(count(CounterEvent::ContextSwitches), switches, 10),
        "{switches} {counted:?}"
    );
    expect_hardware(&saved, counted);
    expect_reports(&saved, &finished, count(CounterEvent::MinorFaults));
    // Counted events are no CPU samples.
    let text = String::from_utf8_lossy(&saved.perf_text);
    assert!(
        !text.contains("fault:") && !text.contains("faults:"),
        "{text}"
    );
}

/// Hardware events are counted, or one notice says why not.
#[track_caller]
fn expect_hardware(saved: &Saved, counted: &ProcessCounters) {
    let notices = saved.summary.quality.notices.iter();
    let missing: Vec<&str> = notices
        .filter(|notice| notice.kind == NoticeKind::CountersMissing)
        .map(|notice| &*notice.what)
        .collect();
    match counted.count(CounterEvent::Instructions) {
        Some(instructions) => assert!(instructions > 1_000_000, "{instructions}"),
        None => {
            let [what] = missing[..] else {
                panic!("{missing:?}");
            };
            assert!(
                what.contains("this machine has no performance counters"),
                "{what}"
            );
        }
    }
}

/// The first screen and the table have the count of minor faults.
#[track_caller]
fn expect_reports(saved: &Saved, finished: &Finished, minor: u64) {
    let words = format!("{minor} minor-faults");
    // Standard output is that of the command.
    assert!(finished.stderr.contains(&words), "{}", finished.stderr);
    let path = saved.path.to_str().unwrap();
    for (format, expected) in [
        ("text", format!("{minor}  ")),
        ("csv", format!(",minor-faults,{minor},")),
        ("md", format!("| minor-faults | {minor} |")),
        ("json", format!("\"count\": {minor},")),
    ] {
        let words = ["report", path, "-kind", "counters", "-format", format];
        let printed = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
        assert!(
            printed.stdout.contains(&expected),
            "{expected}: {}",
            printed.stdout
        );
    }
    let words = ["report", path, "-kind", "counters", "-to", "0.2"];
    let selected = run_perfcollect(words, saved.directory(), LIMIT).expect_success();
    assert!(
        selected.stdout.contains("nothing was counted"),
        "{}",
        selected.stdout
    );
}

#[test]
fn counts_of_a_command_have_its_threads_and_children() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "faults", FAULTS, &["-pthread"]);
    let directory = tempfile::tempdir().unwrap();
    let script = "\"$0\" 20 4 & \"$0\" 10 2; wait";
    let mut command = collect(&directory, &["-system", "--", "sh", "-c", script]);
    let finished = run(command.arg(&program), LIMIT).expect_success();
    let mut minor = 0;
    let lines = finished.stdout.lines();
    for line in lines.filter(|line| line.starts_with("usage ")) {
        minor += usage(line)[0];
    }
    assert!(minor > (20 * 4 + 10 * 2) * PAGES, "{}", finished.stdout);
    let saved = Saved::open(directory, "x");
    let counted = counts(&saved);
    assert_eq!(counted.name, "sh");
    let count = counted.count(CounterEvent::MinorFaults).unwrap();
    // The shell has some, too.
    assert!(
        (minor..minor + 2000).contains(&(count + 300)),
        "{count} {minor}"
    );
}

#[test]
fn counts_of_a_running_process_are_those_of_the_capture() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "faults", FAULTS, &["-pthread"]);
    let target = start(Command::new(program).args(["1000000", "3"]));
    let minor = || {
        let stat = fs::read_to_string(format!("/proc/{}/stat", target.pid())).unwrap();
        let fields = stat.rsplit_once(") ").unwrap().1.split(' ');
        fields
            .skip(7)
            .map(|field| field.parse::<u64>().unwrap())
            .next()
            .unwrap()
    };
    wait_until("it faults", || minor() > PAGES);
    let directory = tempfile::tempdir().unwrap();
    let pid = target.pid().to_string();
    let before = minor();
    let mut command = collect(&directory, &["-system", "-pid", &pid]);
    let capture = start_capture(&mut command);
    let started = minor();
    wait_until("it faults more", || minor() > started + 20 * PAGES);
    let ended = minor();
    end_capture(capture);
    let after = minor();
    let saved = Saved::open(directory, "x");
    let counted = counts(&saved);
    assert_eq!(counted.pid, Some(target.pid() as i32));
    let count = counted.count(CounterEvent::MinorFaults).unwrap();
    let (least, most) = (ended - started, after - before);
    assert!(
        (least..=most + 50).contains(&count),
        "{count}: {least} to {most}"
    );
}

#[test]
fn the_whole_system_has_one_row() {
    need_capture!();
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "faults", FAULTS, &["-pthread"]);
    let directory = tempfile::tempdir().unwrap();
    let capture = start_capture(&mut collect(&directory, &["-system"]));
    let minor = usage(
        &run(Command::new(program).arg("20"), LIMIT)
            .expect_success()
            .stdout,
    )[0];
    end_capture(capture);
    let saved = Saved::open(directory, "x");
    let counted = counts(&saved);
    assert_eq!((counted.pid, &*counted.name), (None, "whole system"));
    assert!(counted.count(CounterEvent::MinorFaults).unwrap() + 300 > minor);
    assert!(counted.count(CounterEvent::ContextSwitches).unwrap() > 20);
}

#[test]
fn a_user_without_rights_counts_user_code_and_reads_what_is_missing() {
    need_capture!();
    need_command!("setpriv");
    need_command!("cc");
    let programs = tempfile::tempdir().unwrap();
    let program = compiled(programs.path(), "faults", FAULTS, &["-pthread"]);
    let public = PublicDirectory::new();
    let program = public.add(&program);
    // User code, of which samples are taken, runs for a millisecond only.
    let options = ["-system", "-freq", "10000", "--", &program, "100"];
    let finished = public.collect(&AS_NOBODY, &options);
    let directory = public.into_inner();
    if finished.is_not_permitted() {
        return;
    }
    let [minor, ..] = usage(&finished.stdout);
    let saved = Saved::open(directory, "x");
    let counters = saved.summary.info.counters.clone().unwrap();
    let count = counters.processes[0]
        .count(CounterEvent::MinorFaults)
        .unwrap();
    assert!(is_near(count, minor, 400), "{count} {minor}");
    if counters.user_code_only {
        let mut notices = saved.summary.quality.notices.iter();
        let missing = notices.find(|notice| notice.kind == NoticeKind::CountersMissing);
        assert_eq!(missing.unwrap().subject, "context-switches, cpu-migrations");
    }
}

fn collect(directory: &TempDir, options: &[&str]) -> Command {
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x"])
        .args(options)
        .current_dir(directory);
    command
}
