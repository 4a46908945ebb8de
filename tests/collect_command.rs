//! `collect NAME -- COMMAND`, and the end of a capture: with the command, by the limit, by signals.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use support::{
    Finished, Running, Saved, finish, perfcollect, run, run_perfcollect, start, wait_for_cpu_time,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// Fields of `/proc/self/status` that programs inherit.
const RESTRICTIONS: &str = "SigBlk|CapPrm|NoNewPrivs|Seccomp:";
/// A script that uses the CPU for a moment, in the shell itself.
const BURN: &str = "i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";

/// A directory, and the messages of a capture in it.
fn collect(arguments: &[&str]) -> (TempDir, Finished) {
    let directory = tempfile::tempdir().unwrap();
    let arguments = ["collect"].iter().chain(arguments);
    let finished = run_perfcollect(arguments, directory.path(), LIMIT);
    (directory, finished)
}

/// Starts a capture and waits until it reports that it has started.
fn begin(directory: &Path, arguments: &[&str]) -> Running {
    // A test run under nohup ignores the signal.
    begin_after("exec env --default-signal=HUP", directory, arguments)
}

/// Starts it by `prefix` of a shell command.
fn begin_after(prefix: &str, directory: &Path, arguments: &[&str]) -> Running {
    let marker = directory.join("started");
    let mut command = Command::new("sh");
    // Messages go to a file, so that the test reads them at once.
    command
        .arg("-c")
        .arg(format!("{prefix} \"$0\" collect \"$@\" 2>\"$SAID\""))
        .arg(perfcollect())
        .args(arguments)
        .env("SAID", &marker)
        .current_dir(directory);
    let running = start(&mut command);
    wait_until(|| said(directory).contains("Collection started"));
    running
}

fn said(directory: &Path) -> String {
    fs::read_to_string(directory.join("started")).unwrap_or_default()
}

#[track_caller]
fn wait_until(mut holds: impl FnMut() -> bool) {
    for _ in 0..LIMIT.as_millis() / 2 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("waited in vain");
}

#[test]
fn command_and_its_children_from_the_first_instruction() {
    need_capture!();
    let script = format!(
        "echo to stdout; echo to stderr >&2; ({BURN}) & (sh -c '{BURN}') & ({BURN}) & wait; exit 7"
    );
    let (directory, finished) = collect(&["run", "-quiet", "--", "sh", "-c", &script]);
    assert_eq!(finished.status.code(), Some(7));
    assert_eq!(finished.stdout, "to stdout\n");
    assert_eq!(finished.stderr, "to stderr\n");
    let saved = Saved::open(directory, "run");
    // The shell itself may sleep all the time, its children do not.
    let busy = saved.summary.processes.iter();
    assert!(
        busy.filter(|process| process.samples >= 10).count() >= 3,
        "{:#?}",
        saved.summary.processes
    );
    assert!(
        saved
            .summary
            .processes
            .iter()
            .all(|process| process.name == "sh")
    );
    assert_eq!(saved.summary.info.target, format!("sh -c {script}"));
}

#[test]
fn start_of_a_command_is_sampled() {
    need_capture!();
    // At this rate even the dynamic linker is sampled; only the kernel's exec precedes it.
    let (directory, finished) = collect(&["run", "-quiet", "-freq", "20000", "--", "ls", "/"]);
    finished.expect_success();
    let saved = Saved::open(directory, "run");
    let in_linker = ["_dl_start", "_dl_relocate_object", "_start", "dl_main"];
    assert!(
        in_linker
            .iter()
            .any(|name| saved.samples_under(&[name]) > 0),
        "{:#?}",
        saved.stacks
    );
    assert!(
        saved
            .summary
            .processes
            .iter()
            .all(|process| process.name == "ls")
    );
}

#[test]
fn end_of_a_command_is_reported() {
    need_capture!();
    for (end, status, reported) in [
        ("exit 7", 7, "exit status 7"),
        ("kill -KILL $$", 137, "killed by signal 9"),
    ] {
        let (directory, finished) =
            collect(&["run", "--", "sh", "-c", &format!("echo own; {BURN}; {end}")]);
        assert_eq!(finished.status.code(), Some(status));
        assert!(finished.stderr.contains(reported), "{}", finished.stderr);
        assert!(finished.stdout.starts_with("own\n"), "{}", finished.stdout);
        Saved::open(directory, "run");
    }
}

#[test]
fn limit_leaves_the_command_running() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let running = begin(
        directory.path(),
        &[
            "run",
            "-collectsec",
            "0.5",
            "--",
            "sh",
            "-c",
            "echo $$ > pid; while :; do :; done >/dev/null",
        ],
    );
    // A command that keeps perfcollect's standard output keeps it open. Only the exit of
    // perfcollect is awaited.
    wait_until(|| {
        said(directory.path()).contains("STOPPED")
            && directory
                .path()
                .join("run.trace.zip")
                .metadata()
                .is_ok_and(|file| file.len() > 0)
    });
    let pid = fs::read_to_string(directory.path().join("pid")).unwrap();
    assert!(Path::new("/proc").join(pid.trim()).exists());
    drop(running);
    assert!(said(directory.path()).contains("time limit"));
}

#[test]
fn signals_end_a_capture_with_a_whole_trace() {
    need_capture!();
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().unwrap();
        let target = start(Command::new("sh").args(["-c", "while :; do :; done"]));
        let capture = begin(
            directory.path(),
            &["stopped", "-pid", &target.pid().to_string()],
        );
        wait_for_cpu_time(target.pid(), Duration::from_millis(100));
        capture.signal(signal);
        let finished = finish(capture, LIMIT).expect_success();
        assert!(finished.stdout.contains("stopped.trace.zip"));
        assert!(said(directory.path()).contains("STOPPED (signal)"));
        let saved = Saved::open(directory, "stopped");
        assert_eq!(saved.summary.process_count, 1);
    }
}

#[test]
fn capture_under_nohup_outlives_its_terminal() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let target = start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let pid = target.pid().to_string();
    let arguments = ["kept", "-pid", &pid];
    let capture = begin_after("trap '' HUP; exec", directory.path(), &arguments);
    capture.signal(Signal::HUP);
    wait_for_cpu_time(target.pid(), Duration::from_millis(500));
    assert!(!said(directory.path()).contains("STOPPED"));
    capture.signal(Signal::INT);
    finish(capture, LIMIT).expect_success();
    assert!(Saved::open(directory, "kept").summary.samples > 200);
}

/// `timeout` signals the process and then its group.
#[test]
fn signals_of_timeout_are_one_request() {
    need_capture!();
    need_command!("timeout");
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new("timeout");
    command.args(["--preserve-status", "-s", "INT", "1"]);
    command.arg(perfcollect()).args(["collect", "web"]);
    run(command.current_dir(&directory), LIMIT).expect_trace();
    assert!(directory.path().join("web.trace.zip").exists());
}

#[test]
fn second_signal_ends_at_once_and_leaves_nothing_half() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let target = start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let capture = begin(
        directory.path(),
        &["twice", "-pid", &target.pid().to_string()],
    );
    wait_for_cpu_time(target.pid(), Duration::from_millis(100));
    capture.signal(Signal::INT);
    wait_until(|| said(directory.path()).contains("STOPPED"));
    // It still writes. Signals that follow each other closely are one request.
    capture.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(300));
    capture.signal(Signal::TERM);
    capture.signal(Signal::CONT);
    let finished = finish(capture, LIMIT);
    assert_eq!(finished.status.code(), Some(1));
    assert!(
        said(directory.path()).contains("stopped by a signal"),
        "{}",
        said(directory.path())
    );
    assert!(!directory.path().join("twice.trace.zip").exists());
}

#[test]
fn target_that_ends_ends_the_capture() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let target = start(
        Command::new("sh")
            .args(["-c", "while [ ! -e end ]; do :; done"])
            .current_dir(&directory),
    );
    let capture = begin(
        directory.path(),
        &["gone", "-pid", &target.pid().to_string()],
    );
    wait_for_cpu_time(target.pid(), Duration::from_millis(100));
    fs::write(directory.path().join("end"), "").unwrap();
    finish(target, LIMIT).expect_success();
    finish(capture, LIMIT).expect_success();
    assert!(said(directory.path()).contains("all processes of the target ended"));
    Saved::open(directory, "gone");
}

#[test]
fn name_may_have_a_directory_and_the_suffix() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("below")).unwrap();
    for name in ["below/plain", "./below/full.trace.zip", "dots.in.it"] {
        let arguments = ["collect", name, "-quiet", "--", "sh", "-c", BURN];
        run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
    }
    for file in [
        "below/plain.trace.zip",
        "below/plain.nettrace",
        "below/plain.flamegraph.svg",
        "below/full.trace.zip",
        "below/full.nettrace",
        "below/full.flamegraph.svg",
        "dots.in.it.trace.zip",
        "dots.in.it.flamegraph.svg",
    ] {
        let file = fs::metadata(directory.path().join(file)).expect(file);
        assert_eq!(file.permissions().mode() & 0o777, 0o600);
    }
    Saved::open(directory, "dots.in.it");
}

#[test]
fn one_format_alone() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    for (format, file) in [("ZIP", "zip.trace.zip"), ("nettrace", "nettrace.nettrace")] {
        let name = format.to_ascii_lowercase();
        let arguments = [
            "collect", &name, "-format", format, "-quiet", "--", "sh", "-c", BURN,
        ];
        run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
        let mut names: Vec<_> = fs::read_dir(&directory)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [format!("{name}.flamegraph.svg"), file.to_owned()]);
        names
            .iter()
            .for_each(|name| fs::remove_file(directory.path().join(name)).unwrap());
    }
}

#[test]
fn force_replaces_an_older_trace() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let older = [
        "old.trace.zip",
        "old.nettrace",
        "old.flamegraph.svg",
        // The new trace has no page faults.
        "old.faults.svg",
    ];
    for file in older {
        fs::write(directory.path().join(file), "older").unwrap();
    }
    let arguments = ["collect", "old", "-force", "-quiet", "--", "sh", "-c", BURN];
    run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
    let mut names: Vec<_> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["old.flamegraph.svg", "old.nettrace", "old.trace.zip"]
    );
    Saved::open(directory, "old");
}

/// It could not be ended with Ctrl-C or `kill` otherwise, nor use `sudo`.
#[test]
fn command_inherits_no_restrictions() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let command = [
        "collect",
        "x",
        "-quiet",
        "--",
        "grep",
        "-E",
        RESTRICTIONS,
        "/proc/self/status",
    ];
    let own = Command::new("grep").args(&command[5..]).output().unwrap();
    // It ends before it is sampled.
    let finished = run_perfcollect(command, directory.path(), LIMIT);
    assert_eq!(finished.stdout.as_bytes(), own.stdout, "{finished:?}");
}

/// An attacker who runs code in one of its threads must not start programs with its rights.
#[test]
fn all_threads_are_restricted_while_it_captures() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let running = begin(directory.path(), &["x", "-gccollectonly"]);
    let restricted = || {
        let tasks = fs::read_dir(format!("/proc/{}/task", running.pid())).unwrap();
        let status = tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")));
        // A thread may end meanwhile.
        let status: Vec<_> = status.flatten().collect();
        status.len() > 1 && status.iter().all(|status| status.contains("Seccomp:\t2\n"))
    };
    wait_until(restricted);
    running.signal(Signal::INT);
    finish(running, LIMIT);
}
