//! `perfcollect stacks` of programs whose threads wait in functions with known names.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use perfcollect::waits::{Group, Reason, StackReport, WaitingThread};
use rustix::process::geteuid;
use support::{
    AS_NOBODY, PublicDirectory, Runtime, Workload, children, compiled, on_terminal, run,
    run_perfcollect, runtimes, start, wait_until, workloads,
};

const LIMIT: Duration = Duration::from_secs(60);

/// Compilers and options. The C library of the third one has no unwind information, and code of the
/// last one has no symbols either.
const COMPILERS: [(&str, &[&str]); 6] = [
    ("cc", &["-O2", "-pthread"]),
    ("cc", &["-O0", "-pthread", "-fno-omit-frame-pointer"]),
    ("cc", &["-O2", "-pthread", "-static"]),
    ("musl-gcc", &["-O2"]),
    ("musl-gcc", &["-O2", "-static"]),
    (
        "cc",
        &["-O2", "-pthread", "-fno-asynchronous-unwind-tables"],
    ),
];

/// Compiles `waits.c`. Returns the path of the program.
fn compile(directory: &Path, (compiler, options): (&str, &[&str])) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"));
    let source = source.join("tests/workloads/native/waits.c");
    let program = directory.join("waits");
    let mut command = Command::new(compiler);
    command.args(options).arg("-o").arg(&program).arg(source);
    run(&mut command, LIMIT).expect_success();
    program
}

#[track_caller]
fn stacks(arguments: &[&str]) -> StackReport {
    let arguments = ["stacks", "-json"]
        .into_iter()
        .chain(arguments.iter().copied());
    let printed = run_perfcollect(arguments, Path::new("/"), LIMIT);
    serde_json::from_str(&printed.expect_success().stdout).unwrap()
}

#[track_caller]
fn stacks_of(pid: u32) -> StackReport {
    let report = stacks(&["-p", &pid.to_string()]);
    assert!(
        report
            .processes
            .iter()
            .all(|process| process.pid == pid as i32)
    );
    report
}

fn by_name(report: &StackReport) -> HashMap<&str, (&Group, &WaitingThread)> {
    let groups = report.groups.iter();
    let threads = groups.flat_map(|group| group.threads.iter().map(move |thread| (group, thread)));
    threads
        .map(|(group, thread)| (&*thread.name, (group, thread)))
        .collect()
}

/// Returns whether the functions are on the stack of a group, from the top.
fn has(group: &Group, functions: &[&str]) -> bool {
    let mut frames = group.frames.iter();
    let mut functions = functions.iter();
    functions.all(|function| frames.any(|frame| frame.name.contains(function)))
}

/// Name of the thread, why it waits, its functions, what it waits for, and who has it.
type Expected = (
    &'static str,
    Reason,
    &'static [&'static str],
    &'static str,
    &'static str,
);

const DAY: &str = "86400 s";

const WAITS: [Expected; 28] = [
    (
        "holder",
        Reason::Sleep,
        &["sleep_caller", "holder_caller"],
        DAY,
        "",
    ),
    ("sleep", Reason::Sleep, &["sleep_caller"], DAY, ""),
    ("mutex", Reason::Lock, &["mutex_caller"], "", "holder"),
    (
        "read-lock",
        Reason::Lock,
        &["read_lock_caller"],
        "",
        "holder",
    ),
    ("inherit", Reason::Lock, &["inherit_caller"], "", "holder"),
    ("first", Reason::Lock, &["first_caller"], "", "second"),
    ("second", Reason::Lock, &["second_caller"], "", "first"),
    ("cond", Reason::Event, &["cond_caller"], "", ""),
    ("semaphore", Reason::Event, &["semaphore_caller"], "", ""),
    ("read", Reason::Io, &["read_caller"], "a pipe", ""),
    (
        "receive",
        Reason::Io,
        &["receive_caller"],
        "a Unix socket",
        "",
    ),
    (
        "accept",
        Reason::Io,
        &["accept_caller"],
        "listening TCP 127.0.0.1:",
        "",
    ),
    (
        "poll",
        Reason::Io,
        &["poll_caller"],
        "a pipe, a Unix socket",
        "",
    ),
    (
        "epoll",
        Reason::Io,
        &["epoll_caller"],
        "epoll of a pipe",
        "",
    ),
    ("join", Reason::Thread, &["join_caller"], "", ""),
    ("child", Reason::Child, &["child_caller"], "", ""),
    (
        "variable",
        Reason::Event,
        &["semaphore_caller", "variable_caller"],
        "",
        "",
    ),
    (
        "large",
        Reason::Event,
        &["semaphore_caller", "large_caller"],
        "",
        "",
    ),
    (
        "recursion",
        Reason::Event,
        &[
            "semaphore_caller",
            "deep_caller",
            "deep_caller",
            "recursion_caller",
        ],
        "",
        "",
    ),
    (
        "handler",
        Reason::Event,
        &["semaphore_caller", "handler", "handler_caller"],
        "",
        "",
    ),
    ("spin", Reason::Runs, &["spin_caller"], "", ""),
    ("self", Reason::Lock, &["self_caller"], "", "self"),
    ("timed", Reason::Lock, &["timed_caller"], "", "limited"),
    ("limited", Reason::Lock, &["limited_caller"], "", "timed"),
    ("orphan", Reason::Lock, &["orphan_caller"], "", ""),
    (
        "file-lock",
        Reason::Lock,
        &["file_lock_caller"],
        "/tmp/",
        "",
    ),
    ("select", Reason::Io, &["select_caller"], "", ""),
    ("waits", Reason::Signal, &["main_caller", "main"], "", ""),
];

#[track_caller]
fn expect_waits(report: &StackReport, is_musl: bool) {
    let threads = by_name(report);
    assert_eq!(threads.len(), WAITS.len(), "{report:#?}");
    for (name, reason, functions, waits_for, owner) in WAITS {
        let (group, thread) = threads[name];
        println!("{name}: {:?} {:?}", group.reason, thread.lock);
        // Without permission to sample, or on a busy machine, a thread that runs has no stack.
        assert!(has(group, functions), "{name}: {group:#?}");
        assert_eq!(group.truncated, None, "{name}: {group:#?}");
        assert_eq!(group.reason, reason, "{name}: {group:#?}");
        let found = thread.waits_for.as_deref().unwrap_or_default();
        assert!(
            found.starts_with(waits_for) && found.is_empty() == waits_for.is_empty(),
            "{found}"
        );
        // A normal mutex of musl and a lock for readers do not know their owner.
        let unknown = ["mutex", "read-lock", "self", "timed", "limited"];
        let owner = match is_musl && unknown.contains(&name) {
            true => "",
            false => owner,
        };
        let of_lock = thread.lock.and_then(|lock| lock.owner);
        assert_eq!(
            of_lock,
            threads.get(owner).map(|(_, thread)| thread.tid),
            "{name}"
        );
        if !matches!(reason, Reason::Runs | Reason::Signal) {
            assert!(
                !thread.has_moved && thread.since_s.is_none_or(|since| since > 0.01),
                "{thread:#?}"
            );
        }
    }
    let recursion = threads["recursion"].0.frames.iter();
    let deep = recursion
        .filter(|frame| frame.name == "deep_caller")
        .count();
    assert_eq!(deep, 301);
    let orphan = threads["orphan"].1.lock.unwrap();
    // When a thread ends, musl forgets it as the owner.
    assert_eq!(orphan.foreign_owner.is_some(), !is_musl, "{orphan:?}");
    let mut cycle = vec![threads["first"].1.tid, threads["second"].1.tid];
    cycle.sort_unstable();
    let mut cycles = vec![cycle];
    if !is_musl {
        cycles.push(vec![threads["self"].1.tid]);
    }
    cycles.sort_unstable();
    let mut found: Vec<Vec<i32>> = report
        .deadlocks
        .iter()
        .map(|cycle| cycle.threads.clone())
        .collect();
    found.sort_unstable();
    assert_eq!(found, cycles);
}

#[test]
fn every_wait_of_c_programs_is_found() {
    need_capture!();
    need_command!("musl-gcc");
    for compiler in COMPILERS {
        println!("{compiler:?}");
        let directory = tempfile::tempdir().unwrap();
        let program = compile(directory.path(), compiler);
        let workload = Workload::start(&mut Command::new(program));
        expect_waits(&stacks_of(workload.pid()), compiler.0 == "musl-gcc");
    }
}

/// Owners of locks have ids of the namespace.
#[test]
fn owners_of_locks_in_another_pid_namespace_are_found() {
    need_capture!();
    need_command!("unshare");
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), COMPILERS[0]);
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--pid", "--fork", "--kill-child"])
        .arg(program);
    let workload = Workload::start(&mut unshare);
    assert_eq!(workload.ready["pid"], 1);
    let [pid] = children(workload.pid())[..] else {
        panic!("one child");
    };
    let report = stacks_of(pid);
    expect_waits(&report, false);
    let first = by_name(&report)["first"].1;
    assert!(
        first.namespace_tid.is_some_and(|tid| tid < 100),
        "{first:#?}"
    );
}

fn trouble(
    runtime: &Runtime,
    mode: &str,
    variables: &[(&str, &str)],
) -> Result<Workload, support::Missing> {
    let mut command = runtime.command(&workloads::trouble()?);
    command
        .args(["--mode", mode, "--seconds", "600"])
        .envs(variables.iter().copied());
    Ok(Workload::start(&mut command))
}

/// Methods are named, also without diagnostics, and .NET 8 and later show the owners of monitors.
#[test]
fn a_deadlock_of_monitors_is_found() {
    need_capture!();
    let off = [("DOTNET_EnableDiagnostics", "0")];
    for runtime in runtimes() {
        for variables in [&[][..], &off] {
            let is_old = runtime.major() < 8;
            if is_old && !variables.is_empty() {
                continue;
            }
            println!("{} {variables:?}", runtime.version);
            let workload = need!(trouble(&runtime, "deadlock", variables));
            let locked = |report: &StackReport| {
                let locks = report
                    .groups
                    .iter()
                    .filter(|group| group.reason == Reason::Lock);
                locks.map(|group| group.threads.len()).sum::<usize>()
            };
            wait_until("all threads wait", || {
                locked(&stacks_of(workload.pid())) == 4
            });
            let report = stacks_of(workload.pid());
            let find = |method: &str| {
                let mut groups = report.groups.iter();
                groups
                    .find(|group| has(group, &[method]))
                    .unwrap_or_else(|| panic!("{report:#?}"))
            };
            let [order, stock] = ["TakeOrder", "CountStock"].map(find);
            let list = report
                .groups
                .iter()
                .filter(|group| has(group, &["ListOrders"]));
            assert!(list.clone().all(|group| group.reason == Reason::Lock));
            assert_eq!(list.map(|group| group.threads.len()).sum::<usize>(), 2);
            assert!(
                report
                    .groups
                    .iter()
                    .any(|group| group.reason == Reason::Task
                        && has(group, &["Task.Wait", "Deadlock.Round", "Program.Run"])),
                "{report:#?}"
            );
            let all = report.groups.iter();
            assert!(
                all.clone().all(|group| group.truncated.is_none()),
                "{report:#?}"
            );
            if is_old {
                continue;
            }
            let mut cycle = [order.threads[0].tid, stock.threads[0].tid];
            cycle.sort_unstable();
            assert_eq!(report.deadlocks.len(), 1, "{report:#?}");
            assert_eq!(report.deadlocks[0].threads, cycle);
            let waits = all.filter(|group| has(group, &["ListOrders"]));
            let owners: Vec<_> = waits
                .flat_map(|group| &group.threads)
                .map(|thread| thread.lock.unwrap().owner)
                .collect();
            assert_eq!(owners, [Some(order.threads[0].tid); 2]);
        }
    }
}

/// Each thread has the lock for a moment: read one after the other, they look like a cycle.
#[test]
fn threads_that_take_turns_are_no_deadlock() {
    need_capture!();
    let workload = need!(trouble(&need!(Runtime::newest()), "lock", &[]));
    let mut waiting = 0;
    for _ in 0..20 {
        let report = stacks_of(workload.pid());
        assert_eq!(report.deadlocks, [], "{report:#?}");
        let locks = report
            .groups
            .iter()
            .filter(|group| group.reason == Reason::Lock);
        waiting += locks.map(|group| group.threads.len()).sum::<usize>();
    }
    assert!(waiting > 0);
}

#[test]
fn a_deadlock_is_on_the_first_screen() {
    need_capture!();
    need_command!("script");
    let workload = need!(trouble(&need!(Runtime::newest()), "deadlock", &[]));
    let pid = workload.pid().to_string();
    wait_until("all threads wait", || {
        stacks_of(workload.pid()).deadlocks.len() == 1
    });
    let screen = run(&mut on_terminal(&format!("stacks {pid}"), 60), LIMIT);
    let screen = screen.expect_success().stdout;
    assert!(screen.lines().count() <= 24, "{screen}");
    for part in [
        "DEADLOCK: 2 threads wait for each other",
        "waits in Deadlock.TakeOrder() for a lock that",
        "   > trouble!Deadlock.CountStock",
        "-full, or `| less`, shows all",
    ] {
        assert!(screen.contains(part), "{part}: {screen}");
    }
    // A file has all.
    let text = run_perfcollect(["stacks", "-p", &pid], Path::new("/"), LIMIT);
    let text = text.expect_success().stdout;
    for part in [
        "Deadlock.ListOrders()",
        ".NET Finalizer is idle",
        "clone3",
        "!Program.Main(string[])",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

const MANY: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *wait_for_ever(void *unused) { for (;;) pause(); }
int main(void) {
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, wait_for_ever, NULL)) return 1;
    }
    sleep(1);
    puts("{\"event\":\"ready\"}");
    fflush(stdout);
    wait_for_ever(NULL);
}
"#;

#[test]
fn threads_with_the_same_stack_are_one_group() {
    need_command!("cc");
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "many", MANY, &["-O2", "-pthread"]);
    let workload = Workload::start(&mut Command::new(program));
    let report = stacks_of(workload.pid());
    let sizes: Vec<usize> = report
        .groups
        .iter()
        .map(|group| group.threads.len())
        .collect();
    assert_eq!(sizes, [300, 1], "{report:#?}");
    assert!(has(&report.groups[0], &["wait_for_ever", "clone"]));
    let pid = workload.pid().to_string();
    let named = stacks(&["-n", "many"]);
    assert!(
        named
            .processes
            .iter()
            .any(|process| process.pid.to_string() == pid)
    );
}

const LEFT: &str = r#"
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
static int ends[2];
static void *read_for_ever(void *unused) {
    char byte;
    prctl(PR_SET_NAME, "reader");
    for (;;) read(ends[0], &byte, 1);
}
int main(void) {
    pthread_t thread;
    if (pipe(ends) || pthread_create(&thread, NULL, read_for_ever, NULL)) return 1;
    sleep(1);
    puts("{\"event\":\"ready\"}");
    fflush(stdout);
    pthread_exit(NULL);
}
"#;

/// The files of the main thread in /proc are empty then.
#[test]
fn threads_outlive_the_main_thread() {
    need_command!("cc");
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "left", LEFT, &["-O2", "-pthread"]);
    let workload = Workload::start(&mut Command::new(program));
    let mut report = stacks_of(workload.pid());
    wait_until("the main thread has ended", || {
        report = stacks_of(workload.pid());
        by_name(&report)["left"].0.reason == Reason::Ended
    });
    let (group, thread) = by_name(&report)["reader"];
    assert!(has(group, &["read_for_ever", "clone"]), "{group:#?}");
    assert_eq!(thread.waits_for.as_deref(), Some("a pipe"));
    assert_eq!(group.truncated, None);
}

const FILE_STACK: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
static ucontext_t context;
static void wait_for_ever(void) {
    puts("{\"event\":\"ready\"}");
    fflush(stdout);
    for (;;) pause();
}
int main(int argc, char **argv) {
    int file = open(argv[1], O_RDWR | O_CREAT, 0600);
    if (ftruncate(file, 1 << 16)) return 1;
    getcontext(&context);
    context.uc_stack.ss_sp = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    context.uc_stack.ss_size = 1 << 16;
    makecontext(&context, wait_for_ever, 0);
    setcontext(&context);
}
"#;

/// The file system of a target could let the reader wait.
#[test]
fn a_stack_in_a_file_is_not_read() {
    need_command!("cc");
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "filed", FILE_STACK, &["-O2"]);
    let mut command = Command::new(program);
    let workload = Workload::start(command.arg(directory.path().join("stack")));
    let report = stacks_of(workload.pid());
    let [group] = &report.groups[..] else {
        panic!("{report:#?}");
    };
    assert!(
        group.frames.len() == 1 && group.truncated.is_some(),
        "{group:#?}"
    );
}

#[test]
fn a_stopped_process_is_reported_as_stopped() {
    let mut command = Command::new("sleep");
    let sleeping = start(command.arg("600"));
    sleeping.signal(rustix::process::Signal::STOP);
    let is_stopped = || {
        let report = stacks_of(sleeping.pid());
        report.groups[0].reason == Reason::Stopped
    };
    wait_until("it is stopped", is_stopped);
    sleeping.signal(rustix::process::Signal::CONT);
    wait_until("it waits again", || {
        stacks_of(sleeping.pid()).groups[0].reason == Reason::Sleep
    });
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let run_with =
        |arguments: &[&str]| run_perfcollect(arguments.iter().copied(), Path::new("/"), LIMIT);
    run_with(&["stacks"]).expect_status(2);
    let gone = run_with(&["stacks", "-p", "2147483647"]).expect_status(1);
    assert!(gone.stderr.contains("does not exist"), "{gone:?}");
    let gone = run_with(&["stacks", "-n", "no-such-program"]).expect_status(1);
    assert!(gone.stderr.contains("no process has the name"), "{gone:?}");
    if !geteuid().is_root() {
        return;
    }
    need_command!("setpriv");
    let directory = PublicDirectory::new();
    let sleeping = start(Command::new("sleep").arg("600"));
    let pid = sleeping.pid().to_string();
    sleep(Duration::from_millis(100));
    let program = directory.path().join("perfcollect");
    let mut as_nobody = Command::new(AS_NOBODY[0]);
    let as_nobody = as_nobody.args(&AS_NOBODY[1..]).arg(&program);
    let as_nobody = as_nobody.args(["stacks", "-p", &pid]);
    let denied = run(as_nobody, LIMIT).expect_status(1);
    assert!(denied.stderr.contains("CAP_SYS_PTRACE"), "{denied:?}");
    // With that capability, the files of another user are still not readable.
    need_capture!();
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-dac_override,-dac_read_search"]);
    command.arg(&program);
    command.args(["collect", "x", "-for", "hang", "-collectsec", "1", "-pid"]);
    let of_nobody = start(
        Command::new(AS_NOBODY[0])
            .args(&AS_NOBODY[1..])
            .args(["sleep", "600"]),
    );
    let pid = of_nobody.pid().to_string();
    let finished = run(command.arg(pid).current_dir(directory.path()), LIMIT).expect_trace();
    let words: Vec<_> = finished.stdout.split_whitespace().collect();
    let printed = words.join(" ");
    for text in [
        "nothing found for hang: what the threads waited for could not be read",
        "what the threads waited for at the end is missing: Permission denied",
        "CAP_DAC_READ_SEARCH",
    ] {
        assert!(printed.contains(text), "{printed}");
    }
}
