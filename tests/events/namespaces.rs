//! Programs in a separate pid namespace, as in a container: their runtimes use other thread ids
//! than the host.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::LIMIT;
use crate::captured::{Captured, view};
use crate::readers::EXCEPTION;
use crate::support::events::{babeltrace, entries, wait_for_events};
use crate::support::{
    Missing, Runtime, Workload, captured, finish, perfcollect, run, start, workloads,
};
use crate::timeline::threads_in;

/// Command prefix that creates such a namespace.
const UNSHARED: [&str; 3] = ["unshare", "-pmf", "--mount-proc"];

/// Returns the requirements of a test in a namespace, or why it cannot run.
fn what_runs_in_one() -> Result<(Runtime, PathBuf), Missing> {
    let mut command = Command::new(UNSHARED[0]);
    let command = command.args(&UNSHARED[1..]).arg("true");
    match run(command, LIMIT).status.success() {
        true => Ok((Runtime::newest()?, workloads::mixed()?)),
        false => Err(Missing::Unshare("-pm")),
    }
}

/// A program that runs in one.
#[track_caller]
fn unshared(runtime: &Runtime, program: &std::path::Path) -> Workload {
    let inside = runtime.command(program);
    let mut command = Command::new(UNSHARED[0]);
    command
        .args(&UNSHARED[1..])
        .arg(inside.get_program())
        .args(inside.get_args())
        .args(["--seconds", "60"])
        .env("DOTNET_ROLL_FORWARD", "LatestMajor");
    let workload = Workload::start(&mut command);
    assert_eq!(workload.ready["pid"], 1);
    workload
}

/// Samples and events have the same threads nevertheless.
#[test]
fn events_in_another_namespace_are_of_the_threads_that_are_sampled() {
    need_capture!();
    let (runtime, program) = need!(what_runs_in_one());
    let workload = unshared(&runtime, &program);
    let pid = workload.pid().to_string();
    let saved = captured(["-pid", &pid, "-collectsec", "2"]);
    let Some(lines) = babeltrace("babeltrace2", &saved.path) else {
        return;
    };
    let text = String::from_utf8_lossy(&saved.perf_text);
    let sampled: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("dotnet ")?
                .split_once(" [")?
                .0
                .split_once('/')
        })
        .map(|(_, tid)| tid)
        .collect();
    let throws = lines
        .iter()
        .filter(|line| line.contains("ExceptionThrown_V1"));
    let thread = |line: &String| -> Option<String> {
        Some(line.split_once("vtid = ")?.1.split_once(',')?.0.to_owned())
    };
    let threads: BTreeSet<String> = throws.filter_map(thread).collect();
    assert!(!threads.is_empty());
    let both = threads.iter().filter(|tid| sampled.contains(tid.as_str()));
    assert_eq!(both.count(), threads.len(), "{threads:?} {sampled:?}");
}

/// The same if all processes have ended before the events are read.
#[test]
fn threads_in_another_namespace_are_known_when_they_have_ended() {
    need_capture!();
    let (runtime, program) = need!(what_runs_in_one());
    let arguments = ["--seconds", "5"];
    let captured = Captured::run_in(&UNSHARED, &runtime, &program, &arguments, &[]);
    let (events, sampled) = threads_in(&captured.nettrace(), EXCEPTION);
    assert!(!events.is_empty());
    assert!(events.is_subset(&sampled), "{events:?} {sampled:?}");
    let listed = view(&captured.trace(), "events");
    let lines = listed
        .lines()
        .filter(|line| line.contains("/ExceptionThrown  "));
    let shown = lines.map(|line| line.split_whitespace().nth(2).unwrap().parse().unwrap());
    assert_eq!(shown.collect::<BTreeSet<u64>>(), events);
}

/// The same if perfcollect was killed, and all processes have ended before the trace is written.
#[test]
fn threads_in_another_namespace_are_known_to_a_recovery() {
    need_capture!();
    let (runtime, program) = need!(what_runs_in_one());
    let workload = unshared(&runtime, &program);
    let directory = tempfile::tempdir().unwrap();
    let mut collect = Command::new(perfcollect());
    let pid = workload.pid().to_string();
    collect.args(["collect", "x", "-quiet", "-pid", &pid]);
    let collector = start(collect.current_dir(&directory));
    wait_for_events(directory.path(), 60_000);
    // Samples are written to disk twice a second.
    std::thread::sleep(Duration::from_millis(700));
    collector.signal(Signal::KILL);
    finish(collector, LIMIT);
    drop(workload);
    let mut recover = Command::new(perfcollect());
    recover.args(["recover", "x", "-quiet"]);
    run(recover.current_dir(&directory), LIMIT).expect_success();
    let (events, sampled) = threads_in(&directory.path().join("x.nettrace"), EXCEPTION);
    assert!(!events.is_empty());
    assert!(events.is_subset(&sampled), "{events:?} {sampled:?}");
    let (_, summary) = entries(&directory.path().join("x.trace.zip"), "/summary.json").remove(0);
    let summary: Value = serde_json::from_slice(&summary).unwrap();
    let known = summary["quality"]["events"][0]["threads"].as_array();
    assert!(known.unwrap().len() >= events.len(), "{summary:#}");
    // Only the trace is left.
    let left = std::fs::read_dir(&directory).unwrap().flatten();
    let hidden = left.filter(|file| file.file_name().to_string_lossy().starts_with('.'));
    assert_eq!(hidden.count(), 0);
}
