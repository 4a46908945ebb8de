//! `perfcollect.log`: what a ticket needs, in lines that names of the target cannot forge.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Runtime, perfcollect, run, run_perfcollect, workloads, zip};

const LIMIT: Duration = Duration::from_secs(120);
/// A value of the environment, which the log must not contain.
const SECRET: &str = "hunter2-c0ffee";

/// The log of a trace in a directory.
fn log(directory: &Path, name: &str) -> String {
    let archive = std::fs::read(directory.join(format!("{name}.trace.zip"))).unwrap();
    let log = zip::entry(&archive, &format!("{name}.trace/perfcollect.log"));
    String::from_utf8(log).unwrap()
}

/// The values of a name, in order.
fn values<'a>(log: &'a str, name: &str) -> Vec<&'a str> {
    let lines = log.lines().filter_map(|line| line.split_once(": "));
    lines
        .filter_map(|(key, value)| (key == name).then_some(value))
        .collect()
}

/// The only value of a name.
#[track_caller]
fn value<'a>(log: &'a str, name: &str) -> &'a str {
    match values(log, name)[..] {
        [value] => value,
        ref values => panic!("{name}: {values:?} in\n{log}"),
    }
}

/// Captures `sh` with a hostile argument.
fn captured(directory: &Path) -> String {
    let work = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    let hostile = "x\nended: forged\u{1b}[2J";
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-quiet", "-freq", "500", "--", "sh", "-c"])
        .args([work, hostile])
        .env("PASSWORD", SECRET)
        .current_dir(directory);
    run(&mut command, LIMIT).expect_success();
    log(directory, "x")
}

#[test]
fn says_what_was_requested_granted_and_captured() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let log = captured(directory.path());
    let command_line = value(&log, "command line");
    let expected = " collect x -quiet -freq 500 -- sh -c 'i=0; while [ $i -lt 200000 ]; do";
    assert!(command_line.contains(expected), "{command_line}");
    assert!(log.starts_with(concat!("perfcollect: ", env!("CARGO_PKG_VERSION"), "\n")));
    let host = rustix::system::uname();
    assert_eq!(value(&log, "host"), host.nodename().to_str().unwrap());
    assert_eq!(value(&log, "kernel"), host.release().to_str().unwrap());
    let times = ["start", "end"].map(|name| value(&log, name));
    for time in times {
        let form: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert_eq!(form, "0000-00-00T00:00:00.000Z");
    }
    assert!(times[0] < times[1], "{times:?}");
    assert_eq!(value(&log, "requested frequency"), "500 Hz");
    assert_eq!(value(&log, "granted event"), "cpu-clock");
    assert!(value(&log, "granted ring buffer").ends_with(" KiB per CPU"));
    assert!(!values(&log, "event provider").is_empty(), "{log}");
    assert!(value(&log, "sandbox").contains("seccomp"), "{log}");
    assert_eq!(value(&log, "ended"), "command ended: exit status 0");
    let samples: u64 = value(&log, "samples").parse().unwrap();
    let rooted: u64 = value(&log, "quality.stacks.rooted").parse().unwrap();
    assert!(samples > 20 && rooted <= samples, "{log}");
    assert_eq!(value(&log, "quality.losses.lost_records"), "0");
    let modules = values(&log, "module");
    assert!(
        modules
            .iter()
            .any(|module| module.contains("libc.so.6, build id ")),
        "{log}"
    );
}

#[test]
fn names_of_the_target_are_one_line_and_the_environment_is_absent() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let log = captured(directory.path());
    assert!(
        value(&log, "target").contains("x\\u{a}ended: forged\\u{1b}[2J"),
        "{log}"
    );
    assert!(!log.contains(SECRET) && !log.contains('\u{1b}'), "{log}");
    // No value is printed as Rust prints it for debugging.
    let dumps = ["{ ", "Some(", "None", " {\n"];
    assert!(!dumps.iter().any(|dump| log.contains(dump)), "{log}");
    assert!(log.lines().all(|line| line.contains(": ")), "{log}");
}

#[test]
fn a_converted_trace_has_a_log_of_its_conversion() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    captured(directory.path());
    let text = directory.path().join("text");
    let archive = std::fs::read(directory.path().join("x.trace.zip")).unwrap();
    std::fs::write(&text, zip::entry(&archive, "x.trace/perf.data.txt")).unwrap();
    let words = ["convert", "text", "-o", "y", "-quiet"];
    run_perfcollect(words, directory.path(), LIMIT).expect_success();
    let log = log(directory.path(), "y");
    assert!(
        value(&log, "command line").ends_with(" convert text -o y -quiet"),
        "{log}"
    );
    let imported = values(&log, "notice");
    assert!(
        imported
            .iter()
            .any(|notice| notice.starts_with("imported: ")),
        "{log}"
    );
}

#[test]
fn names_the_runtime_of_a_process() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::mixed());
    let directory = tempfile::tempdir().unwrap();
    let mut collect = Command::new(perfcollect());
    let target = runtime.command(&program);
    collect
        .args(["collect", "x", "-quiet", "--"])
        .arg(target.get_program())
        .args(target.get_args())
        .args(["--cpu-seconds", "1"])
        .current_dir(&directory);
    for (key, value) in target.get_envs() {
        collect.env(key, value.unwrap_or_default());
    }
    run(&mut collect, LIMIT).expect_success();
    let log = log(directory.path(), "x");
    let runtimes = values(&log, ".NET runtime");
    let [runtime] = runtimes[..] else {
        panic!("{runtimes:?} in\n{log}");
    };
    let (version, path) = runtime.split_once(", ").unwrap();
    assert!(
        version.starts_with(|c: char| c.is_ascii_digit()),
        "{runtime}"
    );
    assert!(
        path.contains(&format!("/{version}/libcoreclr.so")),
        "{runtime}"
    );
}
