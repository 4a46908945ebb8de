//! Stacks of C programs on musl, the C library of Alpine, beside those on glibc: threads that
//! block, and large frames that are not in memory.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::recording::{can_record, record};
use support::{Saved, run, run_perfcollect};

const LIMIT: Duration = Duration::from_secs(120);
/// Each C library, loaded and linked: a compiler and its options.
const COMPILERS: [(&str, &[&str]); 4] = [
    ("musl-gcc", &[]),
    ("musl-gcc", &["-static"]),
    ("gcc", &["-pthread"]),
    ("gcc", &["-pthread", "-static"]),
];

/// Compiles a program of tests/workloads/native as `program` in a directory.
fn compile(name: &str, directory: &Path, (compiler, options): (&str, &[&str])) {
    println!("{name}: {compiler} {options:?}");
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("tests/workloads/native").join(name);
    let mut compiler = Command::new(compiler);
    compiler
        .args(["-O2", "-o", "program"])
        .args(options)
        .arg(source);
    run(compiler.current_dir(directory), LIMIT).expect_success();
}

/// Records a program with perf and converts the recording, which waits for all analyses of code.
fn converted(name: &str, argument: &str, options: &str, compiler: (&str, &[&str])) -> Saved {
    let directory = tempfile::tempdir().unwrap();
    compile(name, directory.path(), compiler);
    let options: Vec<_> = options.split(' ').collect();
    let program = directory.path().join("program");
    let command = [program.to_str().unwrap(), argument];
    record(&directory.path().join("perf.data"), &options, command);
    let convert = ["convert", "perf.data", "-o", "x", "-quiet"];
    run_perfcollect(convert, directory.path(), LIMIT).expect_success();
    let saved = Saved::open(directory, "x");
    let (all, stacks) = (saved.summary.samples, saved.summary.quality.stacks);
    println!("{stacks:?}");
    assert!(all > 500, "{all}");
    // A copy is empty where a new thread has not touched its stack yet.
    assert!((all - stacks.rooted) * 1000 <= all.max(3000), "{stacks:?}");
    let doubtful = stacks.likely + stacks.guessed;
    assert!(doubtful * 1000 <= all.max(3000), "{stacks:?}");
    saved
}

/// Functions of `blocked.c` that block, and the one that wakes them.
const BLOCKED: [&str; 10] = [
    "cond_caller",
    "semaphore_caller",
    "read_caller",
    "epoll_caller",
    "poll_caller",
    "recv_caller",
    "sleep_caller",
    "join_caller",
    "handler_caller",
    "wake_caller",
];

/// Threads that wait are recorded where they leave the CPU, deep in the C library. New threads
/// start with an empty stack.
#[test]
fn callers_of_blocked_threads_are_found() {
    need!(can_record());
    need_command!("musl-gcc");
    let options = "-e context-switches -c 1 --call-graph dwarf,4096";
    for compiler in COMPILERS {
        let saved = converted("blocked.c", "300", options, compiler);
        for name in BLOCKED {
            let samples = saved.samples_under(&[name]);
            assert!(samples > 20, "{name}: {samples}");
        }
        let in_handler = saved.samples_under(&["signal_caller", "handler", "handler_caller"]);
        assert_eq!(in_handler, saved.samples_under(&["handler_caller"]));
        // Few threads are interrupted between two calls.
        let of_threads = saved.samples_under(&["blocking_loop"]);
        let with_caller = saved.samples_under(&["blocking_loop", "_caller"]);
        assert!(
            (of_threads - with_caller) * 100 <= of_threads,
            "{with_caller} of {of_threads}"
        );
    }
}

/// Each sample in the C library has the function that called it.
#[test]
fn callers_of_the_c_library_are_found() {
    need!(can_record());
    need_command!("musl-gcc");
    let options = "-F 1999 --call-graph dwarf,4096";
    for compiler in COMPILERS {
        let saved = converted("libc_callers.c", "1", options, compiler);
        let called = saved.samples_under(&["main", "all_callers", "_caller"]);
        let all = saved.summary.samples;
        assert!(called * 100 >= all * 95, "{called} of {all}");
    }
}

/// A large local variable that is not used leaves pages that are not in memory, where the stack
/// copy ends. The callers are read from the memory of the process.
#[test]
fn callers_above_absent_pages_are_found() {
    need_capture!();
    need_command!("musl-gcc");
    for compiler in [COMPILERS[0], COMPILERS[1], COMPILERS[2]] {
        let directory = tempfile::tempdir().unwrap();
        compile("untouched.c", directory.path(), compiler);
        let collect = ["collect", "x", "-quiet", "--", "./program", "2"];
        run_perfcollect(collect, directory.path(), LIMIT).expect_success();
        let saved = Saved::open(directory, "x");
        let (all, stacks) = (saved.summary.samples, saved.summary.quality.stacks);
        println!("{stacks:?}");
        // The memory of the last samples is gone when they are read.
        assert!(stacks.absent_page * 10 < all, "{stacks:?}");
        let large = saved.samples_under(&["main", "large_caller", "large_callee"]);
        assert!(large * 10 > all * 4, "{large} of {all}");
        // Half of the others print. The first of them do not wait until musl is analyzed.
        let print = saved.samples_under(&["main", "print_caller"]);
        assert!(print * 10 > all * 2, "{print} of {all}");
    }
}
