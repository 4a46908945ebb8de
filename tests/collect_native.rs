//! Captures of native programs by pid and as a command: complete stacks with and without frame
//! pointers and symbols.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use perfcollect_symbols::elf::ElfFile;
use perfcollect_symbols::table::Symbol;
use support::{
    Saved, Workload, captured, captured_for, compiled, expect_same_in_perfview, expect_shares,
    workloads,
};

/// Much longer than any run on a busy system.
const LIMIT: Duration = Duration::from_secs(600);

/// Captures one mode of the C program. Returns the capture and the program's output about the mode.
fn capture(name: &str, mode: &str) -> Option<(Saved, serde_json::Value)> {
    let (saved, done) = capture_with(name, mode, &[])?;
    assert_eq!(saved.summary.process_count, 1);
    let process = &saved.summary.processes[0];
    assert_eq!(process.name, name[..name.len().min(15)]);
    let arguments = format!("--mode {mode} --cpu-seconds 4");
    assert!(process.command_line.ends_with(&arguments));
    saved.expect_complete();
    expect_same_in_perfview(&saved);
    Some((saved, done))
}

/// Captures with additional options, without checks of the stacks.
fn capture_with(name: &str, mode: &str, options: &[&str]) -> Option<(Saved, serde_json::Value)> {
    let program = need!(workloads::native(name));
    let arguments = ["--mode", mode, "--cpu-seconds", "4"];
    let workload = Workload::start(Command::new(program).args(arguments));
    let saved = captured_for(Duration::from_secs(2), workload.pid(), options);
    Some((saved, workload.done(LIMIT)["modes"][0].clone()))
}

/// Returns the module of a method in the summary.
fn module_of<'a>(saved: &'a Saved, method: &str) -> &'a str {
    let methods = &saved.summary.methods;
    let found = methods.iter().find(|found| found.name == method);
    &found.unwrap_or_else(|| panic!("no {method}")).module
}

#[test]
fn cpu_shares_match_with_and_without_frame_pointers() {
    need_capture!();
    for name in ["native-fp", "native-nofp"] {
        let Some((saved, mode)) = capture(name, "shares") else {
            return;
        };
        let names = saved.summary.quality.names;
        assert_eq!(names.native.unresolved, 0, "{names:#?}");
        expect_shares(&saved, &mode);
        for stack in saved.stacks.keys() {
            assert!(stack[1..].starts_with(&["_start".into()]), "{stack:?}");
            assert!(stack.contains(&"main".into()), "{stack:?}");
        }
    }
}

/// Returns the function symbols of a program by address.
fn functions(program: &Path) -> BTreeMap<u64, String> {
    let file = File::open(program).unwrap();
    let symbols = ElfFile::open(file).unwrap().symbols().unwrap();
    let name = |symbol: Symbol<'_>| String::from_utf8(symbol.name.into()).unwrap();
    symbols
        .iter()
        .map(|symbol| (symbol.start, name(symbol)))
        .collect()
}

#[test]
fn stripped_program_has_one_row_per_function() {
    need_capture!();
    let Some((saved, _)) = capture("native-stripped", "shares") else {
        return;
    };
    assert!(saved.summary.quality.names.native.unresolved > 0);
    // The same code with symbols.
    let functions = functions(&workloads::native("native-nofp").unwrap());
    let rows = saved.summary.methods.iter();
    // The stubs through which it calls the C library have names.
    let own = rows.filter(|row| row.module == "native-stripped" && !row.name.ends_with("@plt"));
    let mut found: Vec<&str> = own
        .map(|row| {
            let start = row.name.strip_prefix("0x").unwrap();
            functions[&u64::from_str_radix(start, 16).unwrap()].as_str()
        })
        .collect();
    found.sort_unstable();
    // Some functions are only sampled by chance.
    let always = [
        "_start",
        "main",
        "share_caller",
        "shares",
        "work20",
        "work30",
        "work50",
    ];
    for name in always {
        assert!(found.contains(&name), "{name} is not in {found:?}");
    }
    let rows = found.len();
    found.dedup();
    assert_eq!(found.len(), rows, "{found:?}");
}

#[test]
fn stripped_program_keeps_its_stacks_without_wrong_symbols() {
    need_capture!();
    let Some((saved, _)) = capture("native-stripped", "shares") else {
        return;
    };
    for stack in saved.stacks.keys() {
        // The entry point, two functions of the C library, then `main`.
        assert!(stack.len() >= 5, "{stack:?}");
        for frame in [1, 4] {
            assert!(stack[frame].starts_with("native-stripped+0x"), "{stack:?}");
        }
        assert_eq!(stack[2..4], ["__libc_start_main", "__libc_start_call_main"]);
        let own = [
            "main",
            "shares",
            "share_caller",
            "work50",
            "work30",
            "work20",
        ];
        assert!(
            !own.iter().any(|own| stack.contains(&(*own).into())),
            "{stack:?}"
        );
    }
}

#[test]
fn library_functions_belong_to_their_library() {
    need_capture!();
    for name in ["native-fp", "native-nofp"] {
        let Some((saved, mode)) = capture(name, "library") else {
            return;
        };
        expect_shares(&saved, &mode);
        assert_eq!(module_of(&saved, "library_inner"), "libwork.so");
        assert_eq!(module_of(&saved, "library_outer"), "libwork.so");
        assert_eq!(module_of(&saved, "library_caller"), name);
    }
}

#[test]
fn stacks_of_recursion_callbacks_and_threads_are_complete() {
    need_capture!();
    for (mode, under) in [
        ("recursion", &["main", "descend", "descend", "descend"][..]),
        (
            "callback",
            &["main", "callback_caller", "qsort", "compare_burn"],
        ),
        ("threads", &["start_thread", "thread_main"]),
    ] {
        let Some((saved, done)) = capture("native-nofp", mode) else {
            return;
        };
        expect_shares(&saved, &done);
        let found = saved.samples_under(under);
        // Other stacks belong to the program's own bookkeeping: a share of the run, and a start and an end that
        // take as long on a busy system.
        let all = saved.summary.samples;
        assert!(found + all / 20 + 10 >= all, "{mode}: {found} of {all}");
    }
}

/// Counts the samples with at least `count` frames of `wide`, by presence of `main`.
fn wide_frames(saved: &Saved, count: usize, main: bool) -> u64 {
    let stacks = saved.stacks.iter().filter(|(stack, _)| {
        let wide = stack.iter().filter(|frame| *frame == "wide").count();
        wide == count && stack.contains(&"main".into()) == main
    });
    stacks.map(|(_, samples)| samples).sum()
}

#[test]
#[ignore = "slow"]
fn unwinds_beyond_the_stack_copy_by_frame_pointers() {
    need_capture!();
    const FRAMES: usize = 33;
    for (name, call_graph, whole) in [
        ("native-fp", "auto", true),
        ("native-fp", "fp", true),
        ("native-fp", "dwarf", false),
        ("native-nofp", "auto", false),
        ("native-nofp", "dwarf,4096", false),
    ] {
        let Some((saved, _)) = capture_with(name, "frames", &["-callgraph", call_graph]) else {
            return;
        };
        let samples = saved.summary.samples;
        let found = wide_frames(&saved, FRAMES, true);
        if whole {
            assert!(
                found * 100 >= samples * 95,
                "{name} {call_graph}: {found} of {samples}"
            );
        } else {
            assert_eq!(found, 0, "{name} {call_graph}");
            let truncated = saved.summary.quality.stacks.stack_copy_ended;
            assert!(
                truncated * 100 >= samples * 95,
                "{name} {call_graph}: {truncated} of {samples}"
            );
        }
        for stack in saved.stacks.keys() {
            let wide = stack.iter().filter(|frame| *frame == "wide").count();
            assert!(wide <= FRAMES, "{stack:?}");
            // No frame replaces unknown callers.
            if stack[1] == "[truncated: stack copy ended]" && !stack.contains(&"main".into()) {
                let mut callees = stack[2..].iter();
                let known = callees.all(|frame| {
                    frame == "wide" || frame.ends_with("_[k]") || frame.ends_with("_[i]")
                });
                assert!(known, "{stack:?}");
            }
        }
    }
}

const CLOCK: &str = "
#include <time.h>
int main(void) {
    struct timespec now;
    for (int i = 0; i < 5000000; i++) clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec == 0;
}
";

/// The vDSO is not in any file: its symbols come from the memory of the process.
#[test]
fn vdso_frames_have_symbols() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "clock", CLOCK, &["-O1"]);
    let saved = captured(["-freq", "1000", "--", program.to_str().unwrap()]);
    let methods = saved.summary.methods.iter();
    let (unresolved, named): (Vec<_>, Vec<_>) = methods
        .filter(|method| method.module == "vdso")
        .partition(|method| method.is_offset);
    assert!(
        unresolved.is_empty() && named.len() == 1,
        "{unresolved:?} {named:?}"
    );
    // The symbol is `__vdso_clock_gettime` on x86.
    let name = &named[0].name;
    assert!(name.ends_with("clock_gettime"), "{name}");
    assert!(saved.samples_under(&["main", name]) > 0);
}
