//! Captures of programs on musl, the C library of Alpine, whose code has no unwind information.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::{Saved, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(120);

/// Compiles the program in a directory.
fn compile(directory: &Path, options: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("tests/workloads/native/libc_callers.c");
    let mut compiler = Command::new("musl-gcc");
    compiler
        .args(["-O2", "-o", "callers"])
        .args(options)
        .arg(source);
    run(compiler.current_dir(directory), LIMIT).expect_success();
}

/// The program calls musl from eight functions for two seconds. Their names are in each stack.
#[track_caller]
fn expect_callers(options: &[&str]) {
    need_capture!();
    need_command!("musl-gcc");
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), options);
    let collect = ["collect", "x", "-quiet", "--", "./callers", "2"];
    run_perfcollect(collect, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "x");
    let (mut all, mut kept) = (0, 0);
    for (stack, count) in &saved.stacks {
        // The loader starts the program.
        let Some(main) = stack.iter().position(|frame| frame == "main") else {
            println!("{count} {stack:?}");
            all += count;
            continue;
        };
        all += count;
        let callers = stack.get(main + 1..).unwrap();
        let is_kept = match callers {
            [caller, rest @ ..] if caller == "all_callers" => rest
                .first()
                .is_none_or(|caller| caller.ends_with("_caller")),
            [] => true,
            [caller, ..] => caller.starts_with("clock"),
        };
        kept += if is_kept { *count } else { 0 };
        if !is_kept {
            println!("{count} {stack:?}");
        }
    }
    assert!(all > 1000, "{all}");
    // Without the analysis of instructions, none of the stacks that end in musl has a caller.
    assert!(kept * 1000 >= all * 995, "{kept} of {all}");
    let stacks = saved.summary.quality.stacks;
    assert!(stacks.rooted * 1000 >= all * 995, "{stacks:?}");
    assert!((stacks.likely + stacks.guessed) * 200 <= all, "{stacks:?}");
}

#[test]
fn callers_of_the_c_library_are_found() {
    expect_callers(&[]);
}

/// The program has no symbol of musl that it does not use, and `_start` is in the same file.
#[test]
fn callers_of_a_linked_c_library_are_found() {
    expect_callers(&["-static"]);
}

/// Without symbols, the functions are found by their instructions.
#[test]
fn stacks_of_a_stripped_program_are_whole() {
    need_capture!();
    need_command!("musl-gcc");
    let directory = tempfile::tempdir().unwrap();
    compile(directory.path(), &["-static", "-s"]);
    let collect = ["collect", "x", "-quiet", "--", "./callers", "2"];
    run_perfcollect(collect, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "x");
    let stacks = saved.summary.quality.stacks;
    let all = saved.summary.samples;
    assert!(
        all > 1000 && stacks.rooted * 1000 >= all * 995,
        "{stacks:?}"
    );
    assert!((stacks.likely + stacks.guessed) * 200 <= all, "{stacks:?}");
    let frames = saved.stacks.keys().flatten();
    let unnamed = frames.filter(|frame| frame.starts_with("callers+0x"));
    let functions: HashSet<&String> = unnamed.collect();
    // The symbol table that was removed has some 60 functions that run, the samples 1000 addresses.
    assert!((20..150).contains(&functions.len()), "{functions:?}");
}
