//! Captures of programs on musl, the C library of Alpine, whose code has no unwind information.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::geteuid;
use support::{Saved, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(120);

/// Compiles the program that calls the C library in a directory.
fn compile(directory: &Path, options: &[&str]) {
    compile_as("callers", "libc_callers.c", directory, options);
}

fn compile_as(program: &str, source: &str, directory: &Path, options: &[&str]) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workloads/native");
    let source = sources.join(source);
    let mut compiler = Command::new("musl-gcc");
    compiler
        .args(["-O2", "-o", program])
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

/// Compiles a program whose `.debug_frame` describes what its instructions do not show, and captures
/// it after these changes.
fn captured_described(options: &[&str], change: impl FnOnce(&Path)) -> Saved {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let compiled = "-g -static -fno-unwind-tables -fno-asynchronous-unwind-tables";
    let compiled: Vec<_> = compiled.split(' ').chain(options.iter().copied()).collect();
    compile_as("program", "debug_frame.c", at, &compiled);
    fs::create_dir(at.join("debug")).unwrap();
    change(at);
    let collect = ["collect", "x", "-quiet", "-symbols", "debug", "--"];
    run_perfcollect(collect.into_iter().chain(["./program", "1"]), at, LIMIT).expect_success();
    Saved::open(directory, "x")
}

fn objcopy(directory: &Path, arguments: &str) {
    let mut objcopy = Command::new("objcopy");
    let objcopy = objcopy.args(arguments.split(' ')).current_dir(directory);
    run(objcopy, LIMIT).expect_success();
}

/// Moves the symbols and the unwind information to `program.debug`.
fn strip(directory: &Path) {
    objcopy(directory, "--only-keep-debug program program.debug");
    objcopy(directory, "--strip-all program");
}

const DESCRIBED: [&str; 3] = ["main", "frame_caller", "spin_in_frame"];

#[track_caller]
fn expect_described(saved: &Saved) {
    let (all, stacks) = (saved.summary.samples, saved.summary.quality.stacks);
    println!("{stacks:?}");
    let with_callers = saved.samples_under(&DESCRIBED);
    assert!(all > 500, "{all}");
    assert!(with_callers * 100 >= all * 98, "{with_callers} of {all}");
    assert!((stacks.likely + stacks.guessed) * 200 <= all, "{stacks:?}");
}

#[test]
fn callers_are_found_by_debug_frames_of_the_program() {
    need_capture!();
    need_command!("musl-gcc");
    expect_described(&captured_described(&[], |_| {}));
}

#[test]
fn callers_are_found_by_debug_frames_of_a_linked_file() {
    need_capture!();
    need_command!("musl-gcc");
    need_command!("objcopy");
    let without_id = "-Wl,--build-id=none";
    expect_described(&captured_described(&[without_id], |directory| {
        strip(directory);
        let link = "--add-gnu-debuglink=program.debug program";
        objcopy(directory, link);
        let hidden = directory.join(".debug");
        fs::create_dir(&hidden).unwrap();
        let debug = "program.debug";
        fs::rename(directory.join(debug), hidden.join(debug)).unwrap();
    }));
}

/// `.build-id/11/22.debug` in a directory of debug files.
#[test]
fn callers_are_found_by_debug_frames_of_a_file_with_the_build_id() {
    need_capture!();
    need_command!("musl-gcc");
    need_command!("objcopy");
    let id = "-Wl,--build-id=0x1122334455667788990011223344556677889900";
    expect_described(&captured_described(&[id], |directory| {
        strip(directory);
        let tree = directory.join("debug/.build-id/11");
        fs::create_dir_all(&tree).unwrap();
        fs::rename(
            directory.join("program.debug"),
            tree.join("22334455667788990011223344556677889900.debug"),
        )
        .unwrap();
    }));
}

/// A debug file of another user names functions, but its unwind information is not used.
#[test]
fn debug_frames_of_other_users_are_not_used() {
    need_capture!();
    need_command!("musl-gcc");
    need_command!("objcopy");
    let id = "-Wl,--build-id=0x1122334455667788990011223344556677889900";
    let saved = captured_described(&[id], |directory| {
        strip(directory);
        let debug = directory.join("program.debug");
        fs::set_permissions(&debug, fs::Permissions::from_mode(0o644)).unwrap();
        if geteuid().is_root() {
            chown(&debug, Some(4321), None).unwrap();
        } else {
            fs::remove_file(&debug).unwrap();
        }
    });
    let (all, stacks) = (saved.summary.samples, saved.summary.quality.stacks);
    assert!(all > 500, "{all}");
    // The first and last instructions of the function show where its return address is.
    let with_callers = saved.samples_under(&DESCRIBED);
    assert!(with_callers * 100 < all, "{with_callers} of {all}");
    assert!(stacks.rooted * 10 < all, "{stacks:?}");
    // rbp leads to one more frame each time, but to no root: one guess is kept, none follows it.
    let one = saved.samples_under(&["never_called", "spin_in_frame"]);
    let two = saved.samples_under(&["never_called", "never_called"]);
    assert!(one * 10 > all * 9 && two == 0, "{one} {two} of {all}");
}
