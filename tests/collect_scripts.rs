//! Scripts of Python and Node.js: with names if the interpreter reports them, else with a notice.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use perfcollect::trace::{Notice, NoticeKind};
use support::{Saved, captured_for, start};

const PYTHON: &str = "def inner():\n  sum(range(1000))\n  return inner\nwhile True: inner()";
const NODE: &str = "function inner() { let s = 0; for (let i = 0; i < 1e4; i++) s += i; return s }\n\
                    for (;;) inner()";

/// A capture of a script, and its process id. Interpreters leave files behind.
#[track_caller]
fn capture(words: &[&str]) -> (Saved, u32) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(words[0]);
    let script = start(command.args(&words[1..]).current_dir(&directory));
    let pid = script.pid();
    let saved = captured_for(Duration::from_millis(700), pid, &["-format", "zip"]);
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    (saved, pid)
}

fn notice(saved: &Saved) -> Option<&Notice> {
    let mut notices = saved.summary.quality.notices.iter();
    notices.find(|notice| notice.kind == NoticeKind::ScriptUnnamed)
}

#[track_caller]
fn expect_notice((saved, pid): &(Saved, u32), option: &str) {
    let notice = notice(saved).unwrap_or_else(|| panic!("{:#?}", saved.summary.quality));
    assert_eq!((&notice.subject, notice.count), (&pid.to_string(), 1));
    assert!(notice.remedy.contains(option), "{notice:?}");
    let mut notices = saved.summary.quality.notices.iter();
    let general = notices.find(|notice| notice.kind == NoticeKind::JitUnsymbolized);
    assert_eq!(general, None);
}

#[test]
fn python_reports_functions_on_request() {
    need_capture!();
    need_command!("python3");
    expect_notice(&capture(&["python3", "-c", PYTHON]), "-X perf");
    let minor = "import sys; print(sys.version_info.minor)";
    let minor = Command::new("python3").args(["-c", minor]).output();
    let minor = String::from_utf8(minor.unwrap().stdout).unwrap();
    if minor.trim().parse::<u32>().unwrap() >= 12 {
        let (saved, _) = capture(&["python3", "-X", "perf", "-c", PYTHON]);
        assert_eq!(notice(&saved), None);
        assert!(saved.samples_under(&["py::inner"]) > 0);
    }
}

#[test]
fn node_reports_functions_on_request() {
    need_capture!();
    need_command!("node");
    expect_notice(&capture(&["node", "-e", NODE]), "--perf-basic-prof");
    let (saved, _) = capture(&["node", "--perf-basic-prof", "-e", NODE]);
    assert_eq!(notice(&saved), None);
    assert!(saved.samples_under(&["JS:*"]) > 0);
}
