//! Captures of Java, which keeps no frame pointer and no unwind information.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Saved, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(120);
/// Frames of `main` and of the methods below it that cannot be inlined.
const CALLERS: usize = 14;
/// Java writes the names of its code when it ends, all in one file in /tmp.
const NAMES: [&str; 2] = ["-XX:+UnlockDiagnosticVMOptions", "-XX:+DumpPerfMapAtExit"];

/// Compiles the program in a directory.
fn compile(directory: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads/jit/Callers.java");
    let mut javac = Command::new("javac");
    javac.arg("-d").arg(directory).arg(source);
    run(&mut javac, LIMIT).expect_success();
}

/// Removes the file with the names of a process, such as `java (123)`.
fn remove_names(process: &str) {
    let pid = process.split(['(', ')']).nth(1).unwrap();
    let _ = fs::remove_file(format!("/tmp/perf-{pid}.map"));
}

/// Returns whether a frame is one of `main` or of the methods below it, or may be.
fn is_caller(frame: &str) -> bool {
    let is_method = frame.contains(".run(Callers") || frame.contains("Callers.main(");
    // Java may have dropped the code before it wrote the names.
    is_method || frame.starts_with("Interpreter") || frame.starts_with("jit+")
}

/// The program works for some seconds. All of its stacks have the callers.
#[track_caller]
fn expect_callers(options: &[&str]) {
    need_capture!();
    need_command!("javac");
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path());
    let collect = ["collect", "x", "-quiet", "--", "java"].iter();
    let program = ["-cp", ".", "Callers", "8"].iter();
    let arguments = collect.chain(&NAMES).chain(options).chain(program);
    run_perfcollect(arguments.copied(), directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "x");
    let (mut all, mut kept) = (0, 0);
    for (stack, count) in &saved.stacks {
        let (process, frames) = stack.split_first().unwrap();
        remove_names(process);
        let has = |name: &str| frames.iter().any(|frame| frame.contains(name));
        // Other threads and the start of Java run other code.
        let is_other = has("thread_native_entry") || has("create_vm");
        if !has("_[j]") || is_other {
            continue;
        }
        all += count;
        let is_rooted = has("JavaMain") && !has("[truncated");
        let callers = frames.iter().filter(|frame| is_caller(frame)).count();
        if is_rooted && callers >= CALLERS {
            kept += count;
        } else {
            println!("{count} {callers} {stack:?}");
        }
    }
    assert!(all > 500, "{all}");
    // By frame pointers, a third of the samples of compiled methods has all callers.
    assert!(kept * 100 >= all * 95, "{kept} of {all}");
}

#[test]
fn callers_of_compiled_methods_are_found() {
    expect_callers(&[]);
}

#[test]
fn callers_of_interpreted_methods_are_found() {
    expect_callers(&["-Xint"]);
}

#[test]
fn callers_of_quickly_compiled_methods_are_found() {
    expect_callers(&["-XX:TieredStopAtLevel=1"]);
}
