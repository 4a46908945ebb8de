//! Captures of short-lived processes, threads, libraries and JIT code, and of very deep stacks.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Missing, Saved, captured, perfcollect, perfview_json, workloads};

/// Copies the program of `tests/rings` to a directory.
fn small_program(directory: &Path) -> PathBuf {
    let program = directory.join("program");
    let recorded: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "rings", "program"]
        .iter()
        .collect();
    std::fs::copy(recorded, &program).unwrap();
    program
}

/// Returns the user frames of a stack, outermost first, without the process.
fn user_frames(stack: &[String]) -> Vec<&str> {
    let user = stack[1..].iter().map(String::as_str);
    user.filter(|frame| !frame.ends_with("_[k]")).collect()
}

/// The shell that starts a capture of itself and its children is in it, perfcollect is not.
#[test]
fn a_capture_is_not_about_perfcollect() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let script = "(while :; do :; done) & \
                  \"$0\" collect trace -pid $$ -threadtime -nolttng -collectsec 1; kill $!";
    let output = Command::new("sh")
        .args(["-c", script])
        .arg(perfcollect())
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let saved = Saved::open(directory, "trace");
    let names = saved.summary.processes.iter().map(|row| &*row.name);
    let names: BTreeSet<&str> = names.collect();
    assert_eq!(
        names,
        BTreeSet::from(["sh"]),
        "{:#?}",
        saved.summary.processes
    );
    let times = saved.summary.thread_time.as_ref().unwrap();
    let is_own = times
        .places
        .iter()
        .any(|place| place.process == "perfcollect");
    assert!(!is_own && !times.places.is_empty(), "{:#?}", times.places);
}

/// A shell that becomes another program is one process, and all of its samples have names in both traces.
#[test]
fn a_process_that_executes_another_program_is_one() {
    need_capture!();
    let program = need!(workloads::native("native-fp"));
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exec \"$0\" --seconds 0.5";
    let saved = captured(["--", "sh", "-c", script, program.to_str().unwrap()]);
    let [process] = &saved.summary.processes[..] else {
        panic!("{:#?}", saved.summary.processes);
    };
    assert_eq!(
        (&*process.name, saved.summary.process_count),
        ("native-fp", 1)
    );
    assert_eq!(process.samples, saved.summary.samples);
    let modules: Vec<&str> = saved
        .summary
        .shares
        .modules
        .iter()
        .map(|row| &*row.name)
        .collect();
    assert!(modules.contains(&"native-fp"), "{modules:?}");
    let nettrace = saved.path.with_extension("").with_extension("nettrace");
    let Some(cpu) = perfview_json("cpu", &nettrace, &["--top", "0"]) else {
        return;
    };
    let [row] = &cpu["processes"].as_array().unwrap()[..] else {
        panic!("{}", cpu["processes"]);
    };
    let counts = (row["samples"].as_u64(), row["pid"].as_i64());
    assert_eq!(
        counts,
        (Some(saved.summary.samples), Some(process.pid.into()))
    );
    let unknown = cpu["unknown"]["leaf"].clone();
    let without_name = ["noModule", "noSymbol", "moduleOnly", "garbled", "broken"];
    let without_name = without_name.map(|kind| unknown[kind].as_u64().unwrap());
    assert_eq!(without_name, [0; 5], "{unknown}");
}

/// The program runs JIT code, maps a file over it, forks, executes itself after fork and vfork, and
/// starts threads. All call paths must be complete.
#[test]
fn unwinds_short_lived_processes_and_jit_code() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let program = small_program(directory.path());
    let script = "for i in 1 2 3 4 5 6 7 8; do \"$0\"; done";
    let saved = captured(["--", "sh", "-c", script, program.to_str().unwrap()]);
    let start = ["_start", "program_main"];
    let thread = ["thread_entry", "thread_of_number", "thread"];
    for (process, root, path) in [
        ("program", &start[..], &["outer", "middle", "inner"][..]),
        ("program", &start, &["read_zeros"]),
        ("program", &start, &["run_made", "mapped_leaf"]),
        ("program", &start, &["fork_only", "in_child"]),
        ("forked", &start, &["after_exec"]),
        ("vforked", &start, &["after_exec"]),
        ("program", &thread, &["left"]),
        ("program", &thread, &["right"]),
    ] {
        let complete = [root, path].concat();
        let is_process = |stack: &[String]| stack[0].starts_with(&format!("{process} ("));
        let (mut in_leaf, mut with_path) = (0, 0);
        for (stack, samples) in saved.stacks.iter().filter(|(stack, _)| is_process(stack)) {
            let user = user_frames(stack);
            if user.last() == path.last() {
                in_leaf += samples;
                with_path += if user == complete { *samples } else { 0 };
            }
        }
        assert!(
            in_leaf >= 5,
            "{process} {path:?}: {in_leaf} samples\n{:#?}",
            saved.stacks
        );
        assert_eq!(
            with_path, in_leaf,
            "{process} {path:?}\n{:#?}",
            saved.stacks
        );
    }
    let jit_leaves = saved.stacks.keys().filter_map(|stack| {
        let user = user_frames(stack);
        let caller = user.iter().position(|frame| *frame == "run_made")?;
        let [leaf] = user[caller + 1..] else {
            return None;
        };
        Some((leaf.to_owned(), user[..=caller].join(";")))
    });
    let jit_leaves: Vec<_> = jit_leaves
        .filter(|(leaf, _)| leaf != "mapped_leaf")
        .collect();
    assert!(!jit_leaves.is_empty());
    for (leaf, callers) in jit_leaves {
        assert!(leaf.ends_with("_[j]"), "{leaf}");
        assert_eq!(callers, "_start;program_main;run_made");
    }
}

/// Captures the program `lives` in a mode with a number of repetitions.
fn capture_lives(mode: &str, repetitions: &str) -> Result<Saved, Missing> {
    let program = workloads::native("lives")?;
    let program = program.to_str().unwrap();
    Ok(captured([
        "-freq",
        "5000",
        "--",
        program,
        mode,
        repetitions,
    ]))
}

/// Two libraries are loaded alternately at the same addresses.
#[test]
fn distinguishes_libraries_at_one_address() {
    need_capture!();
    let saved = need!(capture_lives("plugins", "80"));
    expect_functions_of_one(&saved);
}

/// The libraries have no path, so their symbols come from the mapped memory file.
#[test]
fn symbolizes_libraries_loaded_from_memory() {
    need_capture!();
    let saved = need!(capture_lives("memory", "80"));
    expect_functions_of_one(&saved);
}

fn expect_functions_of_one(saved: &Saved) {
    for (one, other) in [("first", "second"), ("second", "first")] {
        let path = ["_caller", "_outer", "_inner"].map(|part| format!("{one}{part}"));
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let complete = saved.samples_under(&[&["main"][..], &path].concat());
        assert!(complete > 200, "{complete} samples");
        for (stack, samples) in &saved.stacks {
            let has = |part: &str| stack.iter().any(|frame| frame.starts_with(part));
            let mixed = has(&format!("{one}_")) && has(&format!("{other}_"));
            assert!(!mixed, "{stack:?} {samples}");
        }
        let in_leaf = saved.samples_under(&path[2..]);
        assert!(complete * 1000 >= in_leaf * 998, "{complete} of {in_leaf}");
    }
}

/// Each thread ends within a millisecond.
#[test]
fn unwinds_short_lived_threads() {
    need_capture!();
    let saved = need!(capture_lives("threads", "6000"));
    let complete = saved.samples_under(&["start_thread", "short_thread", "short_burn"]);
    let in_leaf = saved.samples_under(&["short_burn"]);
    assert!(in_leaf > 300, "{in_leaf} samples");
    assert!(complete * 1000 >= in_leaf * 998, "{complete} of {in_leaf}");
    assert_eq!(saved.summary.process_count, 1);
}

/// Processes end while perfcollect reads them. Their names and stacks must still be correct.
#[test]
fn captures_processes_that_end_while_they_are_read() {
    need_capture!();
    let script = "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done";
    let saved = captured(["--", "sh", "-c", script]);
    for process in &saved.summary.processes {
        assert!(
            ["sh", "true"].contains(&process.name.as_str()),
            "{process:#?}"
        );
    }
    assert!(
        saved.summary.process_count > 100,
        "{}",
        saved.summary.process_count
    );
    let quality = saved.summary.quality.stacks;
    assert!(
        quality.rooted * 100 >= saved.summary.samples * 95,
        "{quality:#?}"
    );
}

/// The recursion is deeper than the frame limit.
///
/// A truncated stack must contain the innermost frames, and no stack may look complete with fewer
/// calls.
#[test]
fn flags_truncated_stacks_of_deep_recursion() {
    const OUTERMOST: &[&str] = &[
        "_start",
        "__libc_start_main",
        "__libc_start_call_main",
        "main",
        "recursion",
    ];
    need_capture!();
    for name in ["native-fp", "native-nofp"] {
        let program = need!(workloads::native(name));
        let program = program.to_str().unwrap();
        let mode = ["--mode", "recursion", "--depth", "10000", "--seconds", "2"];
        let saved: Saved = captured([&["-noinline", "--", program], &mode[..]].concat());
        let (mut truncated, mut total) = (0, 0);
        for (stack, samples) in &saved.stacks {
            let user = user_frames(stack);
            if user.last() != Some(&"descend") {
                continue;
            }
            total += samples;
            if user[0].starts_with("[truncated") {
                truncated += samples;
                // A stack slightly above the limit lost only the outermost frames.
                let callers = user.iter().rposition(|frame| *frame != "descend");
                let callers = &user[1..=callers.unwrap_or(0)];
                assert!(OUTERMOST.ends_with(callers), "{stack:?}");
                assert!(user.len() > 500, "{} frames", user.len());
            } else {
                assert!(user.contains(&"main"), "{stack:?}");
            }
        }
        // During descent and return the stack is within the limit: 0.1 ms of work against 10 000
        // calls.
        assert!(
            truncated * 10 >= total * 8 && total > 100,
            "{name}: {truncated} of {total}"
        );
    }
}
