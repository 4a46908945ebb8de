//! Captures for a symptom of programs that have it: what is printed before, and the finding that is first.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::{StepKind, Summary};
use perfcollect::trace::Symptom;
use support::{
    Finished, Missing, Runtime, ServiceClient, Workload, captured_during, compiled, perfcollect,
    run, run_perfcollect, runtimes, start, workloads, zip,
};
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(120);
/// A program that keeps 40 MB of the C library's memory a second.
const LEAK: &str = r#"
    #include <stdlib.h>
    #include <string.h>
    #include <unistd.h>
    int main(void) {
        for (;;) {
            memset(malloc(400000), 1, 400000);
            usleep(10000);
        }
    }
"#;

/// A capture, and what it printed.
struct Captured {
    directory: TempDir,
    finished: Finished,
}

impl Captured {
    /// Captures with these words after the name.
    #[track_caller]
    fn new(words: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let words = ["collect", "x"].iter().chain(words);
        let finished = run_perfcollect(words, directory.path(), LIMIT).expect_success();
        Self {
            directory,
            finished,
        }
    }

    /// Captures a process for a symptom.
    #[track_caller]
    fn process(pid: u32, symptom: &str, seconds: &str) -> Self {
        let pid = pid.to_string();
        Self::new(&["-pid", &pid, "-for", symptom, "-collectsec", seconds])
    }

    fn summary(&self) -> Summary {
        let archived = std::fs::read(self.directory.path().join("x.trace.zip")).unwrap();
        let json = zip::entry(&archived, "x.trace/summary.json");
        serde_json::from_slice(&json).unwrap()
    }

    /// The options that the symptom stands for were printed before the start.
    #[track_caller]
    fn expect_meaning(&self, meaning: &str) {
        let stderr = &self.finished.stderr;
        let printed = stderr.find(meaning);
        let started = stderr.find("Collection started").unwrap();
        assert!(printed.is_some_and(|at| at < started), "{stderr}");
    }

    /// The first finding is of this rule, with these words. A later report shows it first, too.
    #[track_caller]
    fn expect_first(&self, rule: &str, words: &[&str]) -> Summary {
        let summary = self.summary();
        let first = summary.findings.first().unwrap();
        assert_eq!(first.rule, rule, "{:#?}", summary.findings);
        for words in words {
            assert!(first.text.contains(words), "{words}: {}", first.text);
        }
        let report = run_perfcollect(["report", "x"], self.directory.path(), LIMIT);
        let report = report.expect_success().stdout;
        let line = format!("  1. {}\n", first.text);
        assert!(report.starts_with(&line), "{report}");
        summary
    }
}

/// Starts the program with one trouble on the newest runtime, with these variables.
macro_rules! trouble {
    ($mode:expr, $variables:expr) => {{
        need_capture!();
        let program = need!(workloads::trouble());
        let mut command = need!(Runtime::newest()).command(&program);
        command.args(["--mode", $mode, "--seconds", "6000"]);
        command.envs::<_, &str, &str>($variables);
        Workload::start(&mut command)
    }};
}

/// Starts the service of ASP.NET Core on the newest runtime that has it.
macro_rules! service {
    () => {{
        need_capture!();
        let program = need!(workloads::service());
        let mut runtimes = runtimes();
        runtimes.retain(|runtime| runtime.aspnet && runtime.major() >= 8);
        let newest = runtimes.into_iter().max_by_key(Runtime::major);
        let runtime = need!(newest.ok_or(Missing::AspNet(8)));
        Workload::start(&mut runtime.command(&program))
    }};
}

/// A runtime that answers no requests for events, as one that hangs.
#[test]
fn a_hang_is_a_deadlock_also_without_events() {
    let program = trouble!("deadlock", [("DOTNET_EnableDiagnostics", "0")]);
    let captured = Captured::process(program.pid(), "hang", "2");
    captured.expect_meaning("-for hang stands for -threadtime -nolttng: ");
    let words = ["Deadlock.TakeOrder and Deadlock.CountStock"];
    let summary = captured.expect_first("deadlock", &words);
    assert_eq!(summary.info.symptom, Some(Symptom::Hang));
    assert!(summary.thread_time.is_some());
    assert!(summary.quality.events.is_empty());
    expect_screen(&captured);
}

/// On a terminal of 80 columns and 24 lines, the answer follows what was captured.
fn expect_screen(captured: &Captured) {
    need_command!("script");
    let program = perfcollect().display();
    let view = format!("stty cols 80 rows 24; {program} view x");
    let mut script = Command::new("script");
    script.args(["-qec", &view, "/dev/null"]);
    script.current_dir(&captured.directory);
    script.env("NO_COLOR", "1").env("TERM", "xterm");
    let text = run(&mut script, LIMIT).expect_success().stdout;
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines.len() < 24, "{text}");
    let first = lines.iter().position(|line| line.starts_with("  1. "));
    let first = first.unwrap_or_else(|| panic!("{text}"));
    assert!(lines[first].starts_with("  1. deadlock in "), "{text}");
    assert!(first <= 4, "{text}");
}

#[test]
fn lock_contention_is_found_with_its_method() {
    let program = trouble!("lock", []);
    let captured = Captured::process(program.pid(), "lock-contention", "2");
    captured.expect_meaning("-for lock-contention stands for -threadtime: ");
    let words = ["in Locks.UpdateTotal"];
    let summary = captured.expect_first("lock-contention", &words);
    // The program is busy, too.
    assert!(summary.findings.len() > 1, "{:#?}", summary.findings);
}

#[test]
fn collections_are_found_with_what_allocates() {
    // Generation 0 is small, so that there are collections in a short capture.
    let program = trouble!("gc", [("DOTNET_GCgen0size", "0x400000")]);
    let captured = Captured::process(program.pid(), "gc", "2");
    captured.expect_meaning("-for gc stands for -profile gc-verbose: ");
    let words = ["garbage collection pauses", "in Collections.KeepForAWhile"];
    let summary = captured.expect_first("gc", &words);
    assert!(summary.samples > 0);
    // Its heap does not grow.
    let memory = &summary.info.memory;
    assert_eq!(memory.len(), 1, "{memory:#?}");
    assert!(memory[0].first_kib > 0 && memory[0].max_kib >= memory[0].last_kib);
    let gc = summary.runtimes[0].gc.as_ref().unwrap();
    let growth = gc.growth.as_ref().unwrap();
    assert!(
        growth.collections >= 2 && growth.seconds > 0.0,
        "{growth:#?}"
    );
}

#[test]
fn memory_of_a_native_program_grows() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "leak", LEAK, &["-O1"]);
    let leak = start(&mut Command::new(program));
    let captured = Captured::process(leak.pid(), "memory-leak", "2");
    let words = ["the resident memory of leak", "it is native memory"];
    let summary = captured.expect_first("memory-growth", &words);
    let [memory] = &summary.info.memory[..] else {
        panic!("{:#?}", summary.info.memory);
    };
    let grown = summary.findings[0].figures["last_mb"] - summary.findings[0].figures["first_mb"];
    let expected = (memory.last_kib - memory.first_kib) as f64 * 1024.0 / 1e6;
    assert!((grown - expected).abs() < 1e-6, "{grown} {memory:#?}");
}

/// A service whose requests wait for requests that it sends to itself.
#[test]
fn slow_requests_and_their_network_are_found() {
    let service = service!();
    let client = ServiceClient::new(&service);
    let pid = service.pid().to_string();
    let mut network = None;
    let slow = captured_during(&["-pid", &pid, "-for", "slow-requests"], || {
        network = Some(captured_during(
            &["-pid", &pid, "-for", "networking"],
            || {
                client.get((0..3).map(|_| "/call/550".to_owned()));
            },
        ));
    });
    let first = &slow.summary.findings[0];
    assert_eq!(first.rule, "slow-requests", "{:#?}", slow.summary.findings);
    assert!(first.text.starts_with("requests GET /"), "{}", first.text);
    let findings = network.unwrap().summary;
    let (findings, [runtime]) = (&findings.findings, &findings.runtimes[..]) else {
        panic!("{:#?}", findings.runtimes);
    };
    assert_eq!(findings[0].rule, "network", "{findings:#?}");
    let words = "requests to http://127.0.0.1:";
    assert!(findings[0].text.contains(words), "{findings:#?}");
    let mut others = findings.iter().map(|found| &*found.rule);
    assert!(others.any(|rule| rule == "slow-requests"), "{findings:#?}");
    // The first request of the service to itself connects.
    let mut steps = runtime.network.iter();
    let connected = steps.find(|step| step.kind == StepKind::Connect);
    assert_eq!(connected.unwrap().failed, 0);
    assert_eq!(slow.summary.runtimes[0].network, []);
}

#[test]
fn the_start_of_a_program_is_described() {
    need_capture!();
    let program = need!(workloads::mixed());
    let runtime = need!(Runtime::newest());
    let command = runtime.command(&program);
    let words = command.get_args().map(|word| word.to_str().unwrap());
    let words = [command.get_program().to_str().unwrap()]
        .into_iter()
        .chain(words);
    let options = ["-for", "startup", "--"].into_iter();
    let words: Vec<&str> = options.chain(words).chain(["--seconds", "1"]).collect();
    let captured = Captured::new(&words);
    captured.expect_meaning("-for startup stands for -threadtime: ");
    let summary = captured.expect_first("startup", &["mixed (pid ", "compilation of"]);
    assert!(summary.findings[0].figures["jit_methods"] > 10.0);
}

/// A program without that trouble, and a background capture.
#[test]
fn what_was_measured_is_said_if_nothing_is_found() {
    let program = trouble!("healthy", []);
    let directory = tempfile::tempdir().unwrap();
    let perfcollect = |words: &[&str]| {
        let finished = run_perfcollect(words, directory.path(), LIMIT);
        finished.expect_success().stdout
    };
    let pid = program.pid().to_string();
    let started = perfcollect(&["start", "x", "-pid", &pid, "-for", "SLOW-requests"]);
    let meaning = "-for slow-requests stands for -threadtime -requests -awaits: ";
    assert!(started.starts_with(meaning), "{started}");
    let stopped = perfcollect(&["stop", "x"]);
    assert!(stopped.contains(meaning), "{stopped}");
    let report = perfcollect(&["report", "x"]);
    let expected =
        "  1. nothing found for slow-requests: ASP.NET Core got no request while the capture ran, ";
    assert!(report.starts_with(expected), "{report}");
    let summary = perfcollect(&["report", "x", "-kind", "summary"]);
    assert!(
        summary.contains("\n  for      slow-requests\n"),
        "{summary}"
    );
}

#[test]
fn symptoms_that_cannot_be_answered_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for (words, said) in [
        (&["-for", "slow"][..], ""),
        (&["-for", "slow-request"], "did you mean slow-requests?"),
        (&["-for", "itch"], "\n  memory-leak "),
        (&["-for", "gc", "-nolttng"], "-nolttng excludes them"),
        (&["-for", "high-cpu", "-gconly"], "-gconly excludes them"),
    ] {
        for command in ["collect", "start"] {
            let start = [command, "x", "-pid", "2147483647"];
            let words = start.iter().chain(words);
            let finished = run_perfcollect(words, directory.path(), LIMIT);
            // An alias is understood: only its process is missing.
            let status = if said.is_empty() { 1 } else { 2 };
            assert_eq!(finished.status.code(), Some(status), "{}", finished.stderr);
            assert!(finished.stderr.contains(said), "{}", finished.stderr);
        }
    }
}
