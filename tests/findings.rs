//! What captures of real programs find, and how it fits a terminal.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "findings/trouble.rs"]
mod trouble;

use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Finding;
use support::{
    LimitedGroup, Running, Runtime, Saved, Workload, captured_during, captured_for, perfcollect,
    run, start, wait_for_cpu_time, workloads,
};

const LIMIT: Duration = Duration::from_secs(300);

fn finding<'a>(saved: &'a Saved, rule: &str) -> Option<&'a Finding> {
    let mut findings = saved.summary.findings.iter();
    findings.find(|finding| finding.rule == rule)
}

#[test]
fn a_storm_of_exceptions_is_found_with_its_method() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::storm());
    let _alone = trouble::alone();
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--seconds", "6000"]));
    let saved = captured_for(Duration::from_secs(1), workload.pid(), &[]);
    let found = finding(&saved, "exceptions").unwrap();
    assert_eq!(found.pid, Some(workload.pid() as i32));
    assert!(found.text.contains("Program.Fail"), "{}", found.text);
    let runtime = &saved.summary.runtimes[0];
    let exceptions = runtime.exceptions.as_ref().unwrap();
    assert_eq!(found.figures["exceptions"], exceptions.count as f64);
    assert!(finding(&saved, "lock-contention").is_none());
    assert!(finding(&saved, "gc").is_none_or(|gc| gc.figures["collections"] > 0.0));
}

#[test]
fn the_users_methods_stand_for_what_they_call() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::cpu());
    let _alone = trouble::alone();
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--seconds", "6000"]));
    let saved = captured_for(Duration::from_secs(3), workload.pid(), &[]);
    let summary = &saved.summary;
    let own: u64 = summary.processes.iter().map(|row| row.work.own).sum();
    let first = &summary.shares.own_methods[0];
    assert!(first.name.contains("Work50"), "{first:#?}");
    let half = 0.4 * own as f64..0.6 * own as f64;
    assert!(half.contains(&(first.samples as f64)), "{own} {first:#?}");
    for rule in [
        "gc",
        "exceptions",
        "lock-contention",
        "thread-pool",
        "debug-build",
    ] {
        assert!(finding(&saved, rule).is_none(), "{:#?}", summary.findings);
    }
    if let Some(found) = finding(&saved, "cpu-use") {
        assert!(found.text.contains("Work50"), "{}", found.text);
    }
    expect_table_equals_summary(&saved);
    expect_method(&saved);
    expect_screen(&saved);
}

/// The table of processes has the numbers of the summary.
fn expect_table_equals_summary(saved: &Saved) {
    let mut report = Command::new(perfcollect());
    report.arg("report").arg(&saved.path);
    report.args(["-kind", "processes", "-format", "csv"]);
    let csv = run(&mut report, LIMIT).expect_success().stdout;
    let first = csv.lines().nth(1).unwrap();
    let process = &saved.summary.processes[0];
    let pressure = saved.summary.info.cpu_pressure.as_ref().unwrap();
    let mut waits = pressure.processes.iter();
    let waits = waits.find(|waits| waits.pid == process.pid).unwrap();
    let expected = format!(
        ",{:.1},{},{:.1},{},",
        process.cpu_ms, process.samples, waits.waited_ms, process.pid
    );
    assert!(first.contains(&expected), "{first}");
}

/// Callers and callees of a method add up.
fn expect_method(saved: &Saved) {
    let mut view = Command::new(perfcollect());
    view.arg("view")
        .arg(&saved.path)
        .args(["-method", "Work50"]);
    let text = run(&mut view, LIMIT).expect_success().stdout;
    let under = saved.samples_under(&["Work50"]);
    assert!(
        text.contains(&format!("in or below it ({under})")),
        "{text}"
    );
    assert!(text.contains("ShareCaller"), "{text}");
}

/// A terminal of 80 columns and 24 lines shows all of it.
fn expect_screen(saved: &Saved) {
    need_command!("script");
    let view = format!(
        "stty cols 80 rows 24; {} view {}",
        perfcollect().display(),
        saved.path.display()
    );
    let mut script = Command::new("script");
    script
        .args(["-qec", &view, "/dev/null"])
        .env("NO_COLOR", "1");
    script.env("TERM", "xterm");
    let text = run(&mut script, LIMIT).expect_success().stdout;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    assert!(lines.len() < 24, "{text}");
    assert!(lines[0].contains("CPUs busy"), "{text}");
    assert!(
        text.contains("your code") && text.contains("Work50"),
        "{text}"
    );
    let path = saved.path.display().to_string();
    let long = lines.iter().find(|line| line.chars().count() > 80);
    // Commands are whole.
    assert!(long.is_none_or(|line| line.contains(&path)), "{text}");
}

const LOOP: [&str; 6] = ["taskset", "-c", "0", "sh", "-c", "while :; do :; done"];

/// Starts loops that share a CPU.
fn loops() -> [Running; 4] {
    [(); 4].map(|()| start(Command::new(LOOP[0]).args(&LOOP[1..])))
}

/// Several loops share a CPU, and a process that sleeps beside them needs none.
#[test]
fn a_process_that_waits_for_a_cpu_is_found() {
    need_capture!();
    need_command!("taskset");
    let _alone = trouble::alone();
    let loops = loops();
    let asleep = start(Command::new("sleep").arg("6000"));
    let [starved, other] = [loops[0].pid(), asleep.pid()].map(|pid| pid.to_string());
    let pids = format!("{starved},{other}");
    let wait = || wait_for_cpu_time(loops[0].pid(), Duration::from_millis(500));
    let saved = captured_during(&["-pid", &pids], wait);
    let found = finding(&saved, "run-queue").unwrap();
    assert_eq!(found.pid, Some(loops[0].pid() as i32));
    let figure = |name: &str| found.figures[name];
    // Three of four loops wait at any time.
    assert!(figure("waited_ms") > 2.0 * figure("ran_ms"), "{found:?}");
    assert_eq!(found.evidence, ["info.cpu_pressure", "processes"]);
    let pressure = saved.summary.info.cpu_pressure.as_ref().unwrap();
    let sleeping = pressure
        .processes
        .iter()
        .find(|row| row.pid == asleep.pid() as i32);
    let sleeping = sleeping.unwrap();
    assert_eq!((sleeping.threads, sleeping.ran_ms), (1, 0.0));
    assert_eq!(pressure.threads_omitted, 0);
    let findings = saved.summary.findings.iter();
    let found = findings.filter(|finding| finding.rule == "run-queue");
    assert_eq!(found.count(), 1, "{:#?}", saved.summary.findings);
}

/// The group is not that of the target: all processes of the machine are looked at.
#[test]
fn a_throttled_control_group_is_found() {
    need_capture!();
    // A twentieth of a CPU.
    let group = need!(LimitedGroup::new(5000));
    let _alone = trouble::alone();
    let limited = group.start(&LOOP[3..]);
    let wait = || wait_for_cpu_time(limited.pid(), Duration::from_millis(80));
    let saved = captured_during(&[], wait);
    let found = finding(&saved, "throttled").unwrap();
    assert!(found.text.contains(group.name()), "{found:?}");
    // It runs for a twentieth of the time.
    let pressure = saved.summary.info.cpu_pressure.as_ref().unwrap();
    assert!(pressure.throttled_ms > 600.0, "{pressure:?}");
    assert_eq!(found.figures["throttled_ms"], pressure.throttled_ms);
}

/// The counters of a process are gone when the command has ended.
#[test]
fn a_command_that_waits_for_a_cpu_is_found() {
    need_capture!();
    need_command!("taskset");
    need_command!("timeout");
    let _alone = trouble::alone();
    let _loops = loops();
    let ending = ["sh", "-c", "\"$@\"; true", "sh", "timeout", "4"];
    let command = [&["-format", "zip", "--"][..], &ending, &LOOP].concat();
    let saved = support::captured(command);
    assert!(saved.summary.info.end.starts_with("command ended"));
    let found = finding(&saved, "run-queue").unwrap();
    assert_eq!(found.subject, "sh");
}
