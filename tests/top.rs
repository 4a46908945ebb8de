//! `perfcollect top` on a terminal.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use support::{Finished, Workload, on_terminal, perfcollect, run, workloads};

const LIMIT: Duration = Duration::from_secs(120);
/// What the cursor does before each screen.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Runs `top` on a terminal until Ctrl-C, with temporary files in `directory`.
fn top(directory: &Path, seconds: u32, pid: u32) -> Finished {
    let mut command = on_terminal(&format!("top -p {pid} -d 0.5"), seconds);
    run(command.env("TMPDIR", directory), LIMIT)
}

#[test]
fn each_screen_has_the_busiest_methods() {
    need_capture!();
    need_command!("script");
    let program = need!(workloads::native("native-fp"));
    let workload = Workload::start(Command::new(&program).args(["--seconds", "600"]));
    let directory = tempfile::tempdir().unwrap();
    let shown = top(directory.path(), 6, workload.pid())
        .expect_success()
        .stdout;
    let screens: Vec<&str> = shown.split(CLEAR).skip(1).collect();
    assert!(screens.len() > 1, "{shown:?}");
    for screen in screens {
        assert!(
            screen.contains("work50") && screen.contains("Ctrl-C"),
            "{screen}"
        );
        // There is no trace to look at.
        assert!(!screen.contains("->"), "{screen}");
    }
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn an_idle_process_is_waited_for_and_an_ended_one_is_an_error() {
    need_capture!();
    need_command!("script");
    let directory = tempfile::tempdir().unwrap();
    let mut idle = Command::new("sleep").arg("600").spawn().unwrap();
    let shown = top(directory.path(), 3, idle.id()).expect_success().stdout;
    assert!(shown.contains("No samples in 0.5 s"), "{shown:?}");
    let pid = idle.id();
    let ending = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(4));
        idle.kill().unwrap();
        idle.wait().unwrap();
    });
    let started = Instant::now();
    top(directory.path(), 60, pid).expect_success();
    assert!(
        started.elapsed() < Duration::from_secs(55),
        "it ended by itself"
    );
    ending.join().unwrap();
    let ended = top(directory.path(), 3, pid);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stdout.contains("does not exist"), "{ended:?}");
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
}

#[test]
fn it_needs_a_terminal() {
    let refused = run(Command::new(perfcollect()).arg("top"), LIMIT).expect_status(1);
    assert!(
        refused.stderr.contains("top needs a terminal"),
        "{refused:?}"
    );
}
