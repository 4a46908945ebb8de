//! Captures of what comes and goes: processes, threads, libraries, code made at run time; and of very deep stacks.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::{Path, PathBuf};

use support::{Missing, Saved, captured, workloads};

/// The small program of `tests/rings`, in a folder.
fn small_program(folder: &Path) -> PathBuf {
    let program = folder.join("program");
    let recorded: PathBuf = [env!("CARGO_MANIFEST_DIR"), "tests", "rings", "program"]
        .iter()
        .collect();
    std::fs::copy(recorded, &program).unwrap();
    program
}

/// User frames only, outermost first, without the process.
fn user_frames(stack: &[String]) -> Vec<&str> {
    let user = stack[1..].iter().map(String::as_str);
    user.filter(|frame| !frame.ends_with("_[k]")).collect()
}

/// Whole call paths of a process that makes code, maps a file over it, forks, forks and runs anew, does so by vfork, and of
/// its threads.
#[test]
fn processes_and_code_that_come_and_go() {
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let program = small_program(folder.path());
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
        let whole = [root, path].concat();
        let is = |stack: &[String]| stack[0].starts_with(&format!("{process} ("));
        let (mut inside, mut shown) = (0, 0);
        for (stack, samples) in saved.stacks.iter().filter(|(stack, _)| is(stack)) {
            let user = user_frames(stack);
            if user.last() == path.last() {
                inside += samples;
                shown += if user == whole { *samples } else { 0 };
            }
        }
        assert!(
            inside >= 5,
            "{process} {path:?}: {inside} samples\n{:#?}",
            saved.stacks
        );
        assert_eq!(shown, inside, "{process} {path:?}\n{:#?}", saved.stacks);
    }
    let made = saved.stacks.keys().filter_map(|stack| {
        let user = user_frames(stack);
        let at = user.iter().position(|frame| *frame == "run_made")?;
        let [leaf] = user[at + 1..] else { return None };
        Some((leaf.to_owned(), user[..=at].join(";")))
    });
    let made: Vec<_> = made.filter(|(leaf, _)| leaf != "mapped_leaf").collect();
    assert!(!made.is_empty());
    for (leaf, callers) in made {
        assert!(leaf.ends_with("_[j]"), "{leaf}");
        assert_eq!(callers, "_start;program_main;run_made");
    }
}

/// What `lives` does in a mode, so many times.
fn often_sampled(mode: &str, times: &str) -> Result<Saved, Missing> {
    let program = workloads::native("lives")?;
    let program = program.to_str().unwrap();
    Ok(captured(["-freq", "5000", "--", program, mode, times]))
}

/// A library takes the addresses of another that was unloaded: no function of one is shown for the other.
#[test]
fn libraries_that_take_turns_at_an_address() {
    need_capture!();
    let saved = need!(often_sampled("plugins", "80"));
    expect_functions_of_one(&saved);
}

/// Their names come from the memory itself, as perf cannot tell them.
#[test]
fn libraries_that_were_loaded_from_memory() {
    need_capture!();
    let saved = need!(often_sampled("memory", "80"));
    expect_functions_of_one(&saved);
}

fn expect_functions_of_one(saved: &Saved) {
    for (one, other) in [("first", "second"), ("second", "first")] {
        let path = ["_caller", "_outer", "_inner"].map(|part| format!("{one}{part}"));
        let path: Vec<_> = path.iter().map(String::as_str).collect();
        let whole = saved.samples_under(&[&["main"][..], &path].concat());
        assert!(whole > 200, "{whole} samples");
        for (stack, samples) in &saved.stacks {
            let has = |part: &str| stack.iter().any(|frame| frame.starts_with(part));
            let mixed = has(&format!("{one}_")) && has(&format!("{other}_"));
            assert!(!mixed, "{stack:?} {samples}");
        }
        let inside = saved.samples_under(&path[2..]);
        assert!(whole * 1000 >= inside * 998, "{whole} of {inside}");
    }
}

/// Threads that live for less than a millisecond: each is known, and its stack whole.
#[test]
fn threads_that_are_gone_in_a_millisecond() {
    need_capture!();
    let saved = need!(often_sampled("threads", "6000"));
    let whole = saved.samples_under(&["start_thread", "short_thread", "short_burn"]);
    let inside = saved.samples_under(&["short_burn"]);
    assert!(inside > 300, "{inside} samples");
    assert!(whole * 1000 >= inside * 998, "{whole} of {inside}");
    assert_eq!(saved.summary.process_count, 1);
}

/// Processes that end while they are looked at: what is shown of them is right, or says what it lacks.
#[test]
fn processes_that_end_while_they_are_read() {
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

/// A recursion deeper than any stack that is kept: cut, and said so. What lies above the cut is the inner end of the true
/// path, and no stack pretends to be one of fewer calls.
#[test]
fn deep_recursion_is_cut_with_a_mark() {
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
        let (mut cut, mut all) = (0, 0);
        for (stack, samples) in &saved.stacks {
            let user = user_frames(stack);
            if user.last() != Some(&"descend") {
                continue;
            }
            all += samples;
            if user[0].starts_with("[truncated") {
                cut += samples;
                // A stack of a few frames too many lost only the outermost.
                let callers = user.iter().rposition(|frame| *frame != "descend");
                let callers = &user[1..=callers.unwrap_or(0)];
                assert!(OUTERMOST.ends_with(callers), "{stack:?}");
                assert!(user.len() > 500, "{} frames", user.len());
            } else {
                assert!(user.contains(&"main"), "{stack:?}");
            }
        }
        // On the way down and up there are calls with fewer frames than are kept: 0.1 ms of work against 10 000 calls.
        assert!(cut * 10 >= all * 8 && all > 100, "{name}: {cut} of {all}");
    }
}
