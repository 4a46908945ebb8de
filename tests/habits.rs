//! The command lines of docs/other-tools.md: each works as the page says, or is answered as it says.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::events::entries;
use support::{Finished, POORER, Runtime, Workload, on_terminal, perfcollect, run, workloads};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// A program that is busy for some tenths of a second.
const PROGRAM: &str = "#!/bin/sh\ni=0; while [ $i -lt 200000 ]; do i=$((i+1)); done\n";

/// The lines of the table below a heading, with what the page says about them.
fn rows(heading: &str) -> Vec<(String, String)> {
    let page = include_str!("../docs/other-tools.md");
    let part = page.split("\n## ").find(|part| part.starts_with(heading));
    let lines = part.unwrap().lines().filter(|line| line.starts_with("| `"));
    let rows = lines.map(|line| {
        let (typed, said) = line[2..].split_once(" | ").unwrap();
        let said = said.strip_suffix(" |").unwrap();
        (typed.trim_matches('`').to_owned(), said.to_owned())
    });
    rows.collect()
}

/// The line of perfcollect that a cell of the table shows.
fn line_of(said: &str) -> Option<&str> {
    let line = said.strip_prefix('`')?.strip_suffix('`')?;
    let line = line.strip_prefix("perfcollect ")?;
    (!line.contains('`')).then_some(line)
}

/// A process that the lines capture, and the files that they read.
struct Scene {
    workload: Workload,
    directory: TempDir,
}

impl Scene {
    fn new(runtime: &Runtime, program: &Path) -> Self {
        let workload = Workload::start(runtime.command(program).args(["--seconds", "6000"]));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("program");
        fs::write(&path, PROGRAM).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        let scene = Self {
            workload,
            directory,
        };
        let at = scene.directory.path();
        let pid = scene.workload.pid().to_string();
        let profile = "dotnet-common,dotnet-sampled-thread-time";
        let events = [
            "-pid",
            &pid,
            "-collectsec",
            "1",
            "-perfdata",
            "-quiet",
            "-profile",
            profile,
        ];
        run(
            Command::new(perfcollect())
                .args(["collect", "web"])
                .args(events)
                .current_dir(at),
            LIMIT,
        )
        .expect_trace();
        fs::rename(at.join("web.perf.data"), at.join("perf.data")).unwrap();
        // As dotnet-trace writes it.
        let (_, stream) = entries(&at.join("web.trace.zip"), "/eventpipe/").remove(0);
        fs::write(at.join("app.nettrace"), stream).unwrap();
        scene
    }

    /// The words of a line with the workload's process, and a shorter time.
    fn words(&self, line: &str) -> Vec<String> {
        let pid = self.workload.pid().to_string();
        let line = line.replace("1234", &pid).replace("00:00:10", "00:00:01");
        let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for at in 1..words.len() {
            let shown = match (words[at - 1].to_lowercase().as_str(), words[at].as_str()) {
                // Some events are sent rarely.
                ("-collectsec", "10") if line.contains("-gc") => "3",
                ("sleep" | "-collectsec", "10") => "0.3",
                ("-n" | "-processfilter", "web") => "mixed",
                _ => continue,
            };
            words[at] = shown.into();
        }
        words
    }

    /// Runs a line beside copies of the files. One that captures until Ctrl-C gets that.
    fn run(&self, line: &str) -> Finished {
        let directory = tempfile::tempdir().unwrap();
        let captures = ["collect", "record", "start"];
        let is_capture = captures.iter().any(|command| line.starts_with(command));
        for entry in fs::read_dir(&self.directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap();
            let is_input = !is_capture && !line.starts_with("stop") || name == "program";
            if path.is_file() && is_input {
                fs::copy(&path, directory.path().join(name)).unwrap();
            }
        }
        if line.starts_with("stop") {
            in_directory(&directory, &["start", "web"]).expect_success();
        }
        let words = self.words(line);
        let finished = if line == "collect web" {
            let mut command = Command::new("timeout");
            command.args(["--preserve-status", "-s", "INT", "1"]);
            command.arg(perfcollect()).args(&words);
            run(command.current_dir(&directory), LIMIT)
        } else if line.starts_with("top") {
            let mut command = on_terminal(&words.join(" "), 3);
            run(command.current_dir(&directory), LIMIT)
        } else {
            in_directory(&directory, &words)
        };
        if line.starts_with("start") {
            in_directory(&directory, &["stop", "web"]).expect_trace();
        }
        if is_capture && matches!(finished.status.code(), Some(0 | POORER)) {
            assert!(has_trace(directory.path()), "{line}");
        }
        finished
    }
}

fn in_directory(directory: &TempDir, words: &[impl AsRef<std::ffi::OsStr>]) -> Finished {
    let mut command = Command::new(perfcollect());
    run(command.args(words).current_dir(directory), LIMIT)
}

fn has_trace(directory: &Path) -> bool {
    let mut entries = fs::read_dir(directory).unwrap();
    entries.any(|entry| {
        let name = entry.unwrap().file_name();
        name.to_string_lossy().ends_with(".trace.zip")
    })
}

/// Each line of a table does what the page says.
fn check(heading: &str, min_rows: usize) {
    need_capture!();
    need_command!("script");
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::mixed());
    let scene = Scene::new(&runtime, &program);
    let rows = rows(heading);
    assert!(rows.len() >= min_rows);
    for (typed, said) in rows {
        let (_, typed) = typed.split_once(' ').unwrap();
        let finished = scene.run(typed);
        let Finished { status, stderr, .. } = &finished;
        match line_of(&said) {
            Some(line) => {
                let is_done = status.success() || finished.stdout.contains("INCOMPLETE");
                assert!(is_done, "{typed}: {stderr}");
                let same = format!("the same as: perfcollect {}", scene.words(line).join(" "));
                let is_same = typed == line || typed.contains(" -q ");
                let first = stderr.lines().next().unwrap_or_default();
                assert!(is_same || first == same, "{typed}: {stderr}");
            }
            None => {
                assert_eq!(status.code(), Some(2), "{typed}: {stderr}");
                assert_eq!(*stderr, format!("perfcollect: {said}\n"), "{typed}");
            }
        }
    }
}

#[test]
fn lines_of_perf() {
    check("perf\n", 25);
}

#[test]
fn lines_of_dotnet_trace() {
    check("dotnet-trace\n", 15);
}

#[test]
fn lines_of_dotnet_stack() {
    check("dotnet-stack\n", 3);
}

#[test]
fn lines_of_the_script() {
    check("Microsoft's perfcollect script\n", 20);
}

#[test]
fn a_capture_without_a_name_has_that_of_its_program() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let command = [
        "collect",
        "--",
        "sh",
        "-c",
        "timeout 0.2 sha256sum /dev/zero; true",
    ];
    in_directory(&directory, &command).expect_success();
    let names = support::file_names(directory.path());
    let trace = names.iter().find(|name| name.ends_with(".trace.zip"));
    assert!(trace.unwrap().starts_with("sh_20"), "{names:?}");
    let capture = trace.unwrap().strip_suffix(".trace.zip").unwrap();
    let report = in_directory(&directory, &["report", capture, "-kind", "processes"]);
    assert!(report.expect_success().stdout.contains("sha256sum"));

    let none = in_directory(&directory, &["collect", "-n", "no such process"]);
    assert_eq!(none.status.code(), Some(1));
    assert!(none.stderr.contains("`perfcollect ps`"), "{}", none.stderr);
}
