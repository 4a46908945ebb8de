//! Captures of a stripped program: their messages and requests.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use perfcollect::trace::{Notice, NoticeKind};

use crate::program::Program;
use crate::server::Server;
use crate::support::{Finished, Saved, finish, run, start};
use crate::{LIMIT, server_of};

fn capture(program: &Program, options: &[&str], variable: (&str, &str)) -> (Saved, Finished) {
    let path = program.path.to_str().unwrap();
    let workload = ["--", path, "--mode", "shares", "--seconds", "1"];
    let arguments = [&["collect", "trace", "-force"], options, &workload].concat();
    let mut command = program.command(arguments);
    let output = run(command.env(variable.0, variable.1), LIMIT).expect_success();
    let copy = tempfile::tempdir().unwrap();
    for name in ["trace.trace.zip", "trace.flamegraph.svg"] {
        fs::copy(program.directory.path().join(name), copy.path().join(name)).unwrap();
    }
    (Saved::open(copy, "trace"), output)
}

fn has_names(saved: &Saved) -> bool {
    saved
        .summary
        .methods
        .iter()
        .any(|method| method.name == "main")
}

#[test]
fn capture_prints_symbols_command_and_sends_no_requests() {
    need_capture!();
    let program = need_program!();
    let server = server_of(&program);
    let path = format!("srv*{}", server.url());
    let variable = ("_NT_SYMBOL_PATH", &*path);
    let (saved, output) = capture(&program, &[], variable);
    assert!(!has_names(&saved));
    let row = saved
        .summary
        .modules
        .iter()
        .find(|module| module.path.ends_with("/native-app"));
    let row = row.unwrap();
    assert!(!row.has_symbols && row.frames.unresolved > 0, "{row:?}");
    // Standard output is that of the command, so the report is on standard error.
    let command_for_module = format!("perfcollect symbols {}", program.build_id);
    assert!(
        output.stderr.contains(&command_for_module),
        "{}",
        output.stderr
    );
    assert!(
        output
            .stderr
            .contains("perfcollect symbols trace.trace.zip"),
        "{}",
        output.stderr
    );
    assert_eq!(server.take_requests(), []);

    // The server does not have the debug files of other modules.
    let mut command = program.command(["symbols", "trace.trace.zip"]);
    let output = run(command.env(variable.0, variable.1), LIMIT);
    assert!(
        output
            .stderr
            .contains(&format!("native-app ({}): ", program.build_id)),
        "{}",
        output.stderr
    );
    assert!(program.cached().exists(), "{}", output.stderr);
    server.take_requests();

    let (saved, output) = capture(&program, &[], variable);
    assert!(has_names(&saved), "{:?}", saved.summary.methods);
    assert!(
        !output.stderr.contains(&command_for_module),
        "{}",
        output.stderr
    );
    assert_eq!(server.take_requests(), []);
}

#[test]
fn capture_downloads_on_request_and_reports_missing_files() {
    need_capture!();
    let program = need_program!();
    let server = server_of(&program);
    let path = format!(
        "srv*{}*{}",
        program.directory.path().join("own").display(),
        server.url()
    );
    let (saved, _) = capture(
        &program,
        &["-symbols", "download"],
        ("_NT_SYMBOL_PATH", &path),
    );
    assert!(has_names(&saved), "{:?}", saved.summary.methods);
    let own = program
        .directory
        .path()
        .join(format!("own{}", program.key()));
    assert_eq!(fs::read(own).unwrap(), program.debug);

    let other = need_program!();
    let empty = Server::of_files(Vec::new());
    let path = format!("srv*{}", empty.url());
    let (saved, _) = capture(
        &other,
        &["-symbols", "download"],
        ("_NT_SYMBOL_PATH", &path),
    );
    let notices = &saved.summary.quality.notices;
    let is_expected = |notice: &Notice| {
        notice.kind == NoticeKind::NoDebugFile && notice.subject.contains(&other.build_id)
    };
    assert!(notices.iter().any(is_expected), "{notices:?}");
}

/// During an incident, a user must not have to wait for a server.
#[test]
fn signal_stops_capture_that_waits_for_server() {
    need_capture!();
    let program = need_program!();
    let server = Server::start(|_, _| thread::sleep(LIMIT));
    let path = program.path.to_str().unwrap();
    let workload = ["--", path, "--mode", "shares", "--seconds", "0.3"];
    let arguments = [&["collect", "trace", "-symbols", "download"][..], &workload].concat();
    let mut command = program.command(arguments);
    let running = start(command.env("_NT_SYMBOL_PATH", format!("srv*{}", server.url())));
    while server.take_requests().is_empty() {
        thread::sleep(Duration::from_millis(20));
    }
    running.signal(Signal::INT);
    let output = finish(running, Duration::from_secs(20));
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(
        output.stderr.contains("samples are kept"),
        "{}",
        output.stderr
    );
}

#[test]
fn symbols_command_reports_modules_without_build_id() {
    need_capture!();
    let program = need_program!();
    let strip = ["--remove-section", ".note.gnu.build-id"];
    run(
        Command::new("objcopy").args(strip).arg(&program.path),
        LIMIT,
    )
    .expect_success();
    let server = Server::of_files(Vec::new());
    let (_, output) = capture(&program, &[], ("_NT_SYMBOL_PATH", "cache*/nonexistent"));
    assert!(output.stderr.contains("no build id"), "{}", output.stderr);
    let url = server.url();
    let mut command = program.command(["symbols", "trace.trace.zip", "-server", &url]);
    let finished = run(&mut command, LIMIT);
    assert_eq!(finished.status.code(), Some(1));
    let output = finished.stderr;
    let mut lines = output
        .lines()
        .filter(|line| line.contains("without a build id"));
    assert!(lines.any(|line| line.contains("/native-app")), "{output}");
}
