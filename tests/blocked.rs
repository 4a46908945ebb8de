//! Captures of processes whose threads wait: the trace has their stacks, and the first screen says what
//! they wait for.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Summary;
use perfcollect::waits::{Reason, StackReport};
use rustix::process::Signal;
use support::{
    Finished, Missing, Running, Runtime, Workload, compiled, run_perfcollect, start, wait_until,
    workloads, zip,
};
use syscalls::Sysno;
use tempfile::TempDir;

const LIMIT: Duration = Duration::from_secs(60);
/// A program with threads in known waits (`tests/workloads/native/waits.c`).
const WAITS: &str = include_str!("workloads/native/waits.c");
/// A program whose threads wait for one lock in different functions (`tests/workloads/native/lock_sites.c`).
const LOCK_SITES: &str = include_str!("workloads/native/lock_sites.c");

/// A trace `x` of a process.
struct Traced {
    directory: TempDir,
    screen: String,
}

impl Traced {
    fn of(pid: u32) -> Self {
        Self::of_pids(&pid.to_string())
    }

    fn of_pids(pids: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let arguments = ["collect", "x", "-collectsec", "0.5", "-pid", pids];
        let finished = run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
        Self {
            screen: finished.stdout,
            directory,
        }
    }

    fn entry(&self, archive: &str, name: &str) -> Vec<u8> {
        let file = self.directory.path().join(format!("{archive}.trace.zip"));
        let archived = std::fs::read(file).unwrap();
        zip::entry(&archived, &format!("{archive}.trace/{name}"))
    }

    fn summary(&self) -> Summary {
        serde_json::from_slice(&self.entry("x", "summary.json")).unwrap()
    }

    fn threads(&self) -> StackReport {
        serde_json::from_slice(&self.entry("x", "threads.json")).unwrap()
    }

    #[track_caller]
    fn run(&self, words: &[&str]) -> Finished {
        run_perfcollect(words.iter().copied(), self.directory.path(), LIMIT).expect_success()
    }
}

/// Starts a program that sleeps, and waits until it does.
fn sleeping() -> Running {
    let program = start(Command::new("sleep").arg("600"));
    let system_call = format!("/proc/{}/syscall", program.pid());
    let sleeps = [Sysno::nanosleep, Sysno::clock_nanosleep].map(|call| format!("{} ", call.id()));
    wait_until("it sleeps", || {
        let line = std::fs::read_to_string(&system_call).unwrap_or_default();
        sleeps.iter().any(|call| line.starts_with(call))
    });
    program
}

/// Reasons by thread of a process.
fn reasons(report: &StackReport, pid: u32) -> BTreeMap<i32, Reason> {
    let groups = report.groups.iter();
    let groups = groups.filter(|group| group.pid == pid as i32);
    let threads = groups.flat_map(|group| {
        let threads = group.threads.iter();
        threads.map(|thread| (thread.tid, group.reason))
    });
    threads.collect()
}

#[test]
fn a_process_that_sleeps_has_its_stack() {
    need_capture!();
    let target = sleeping();
    let traced = Traced::of(target.pid());
    let summary = traced.summary();
    assert_eq!(summary.samples, 0);
    let [finding] = &summary.findings[..] else {
        panic!("{:#?}", summary.findings);
    };
    assert_eq!(finding.rule, "waiting");
    assert!(
        finding.text.contains("its only thread sleeps"),
        "{finding:?}"
    );
    assert!(finding.text.contains("600 s"), "{finding:?}");
    assert!(traced.screen.contains(&finding.text), "{}", traced.screen);
    assert!(
        traced.screen.contains("report x.trace.zip -kind blocked"),
        "{}",
        traced.screen
    );
    let printed = traced
        .run(&["report", "x.trace.zip", "-kind", "blocked"])
        .stdout;
    for words in ["1 sleeps", "600 s", "nanosleep", "__libc_start"] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    let csv = [
        "report",
        "x.trace.zip",
        "-kind",
        "blocked",
        "-format",
        "csv",
    ];
    let csv = traced.run(&csv).stdout;
    assert!(csv.contains("\n1,sleep,"), "{csv}");
}

#[test]
fn a_stopped_process_is_said_to_be_stopped() {
    need_capture!();
    let target = sleeping();
    target.signal(Signal::STOP);
    let pid = target.pid();
    wait_until("it is stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| stat.contains(") T "))
    });
    let traced = Traced::of(pid);
    let text = &traced.summary().findings[0].text;
    assert!(text.contains("is stopped"), "{text}");
    assert!(traced.screen.contains("kill -CONT"), "{}", traced.screen);
}

/// A control group that can be frozen, which ends with the test.
struct Freezer {
    group: PathBuf,
    /// File that freezes it, and what that contains if it is frozen, and else.
    file: &'static str,
    words: [&'static str; 2],
}

impl Freezer {
    fn new() -> Option<Self> {
        let name = format!("perfcollect-test-{}", std::process::id());
        let version_1 = ("freezer", "freezer.state", ["FROZEN", "THAWED"]);
        let version_2 = ["unified", ""].map(|root| (root, "cgroup.freeze", ["1", "0"]));
        let kinds = [version_1].into_iter().chain(version_2);
        kinds.into_iter().find_map(|(root, file, words)| {
            let group = Path::new("/sys/fs/cgroup").join(root).join(&name);
            std::fs::create_dir(&group).ok()?;
            let freezer = Self { group, file, words };
            freezer.group.join(file).exists().then_some(freezer)
        })
    }

    /// Freezes a process until the result is dropped: a frozen one cannot be killed.
    fn freeze(&self, pid: u32) -> Frozen<'_> {
        std::fs::write(self.group.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.group.join(self.file), self.words[0]).unwrap();
        Frozen(self)
    }
}

struct Frozen<'a>(&'a Freezer);

impl Drop for Frozen<'_> {
    fn drop(&mut self) {
        let Freezer { group, file, words } = self.0;
        let _ = std::fs::write(group.join(file), words[1]);
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        // The kernel may need a moment to remove the last task.
        for _ in 0..100 {
            match std::fs::remove_dir(&self.group) {
                Ok(()) => return,
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// Its threads are in any system call, and some kernels show that they wait uninterruptibly.
#[test]
fn a_frozen_process_is_said_to_be_stopped() {
    need_capture!();
    let Some(freezer) = Freezer::new() else {
        return test_skip::skip(Missing::Writable("/sys/fs/cgroup"));
    };
    let target = sleeping();
    let pid = target.pid();
    let _frozen = freezer.freeze(pid);
    let traced = Traced::of(pid);
    let text = &traced.summary().findings[0].text;
    assert!(text.contains("is stopped"), "{text}");
    let notice = format!("process {pid} is frozen by its control group");
    assert!(traced.screen.contains(&notice), "{}", traced.screen);
}

/// A capture and `stacks` find the same.
#[test]
fn threads_in_a_trace_are_those_of_stacks() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let program = compiled(directory.path(), "waits", WAITS, &["-O2", "-pthread"]);
    let workload = Workload::start(&mut Command::new(program));
    let traced = Traced::of(workload.pid());
    let pid = workload.pid().to_string();
    let stacks = run_perfcollect(["stacks", "-p", &pid, "-json"], Path::new("/"), LIMIT);
    let stacks: StackReport = serde_json::from_str(&stacks.expect_success().stdout).unwrap();
    // The capture has its child, too.
    let found = reasons(&traced.threads(), workload.pid());
    assert!(found.len() > 20, "{found:?}");
    assert_eq!(found, reasons(&stacks, workload.pid()));
    let blocked = traced.summary().blocked.unwrap();
    for process in &blocked.processes {
        let groups = blocked.groups.iter();
        let groups = groups.filter(|group| group.pid == process.pid);
        let threads = groups.map(|group| group.threads).sum::<u64>();
        assert_eq!(threads, process.threads, "{blocked:#?}");
    }
    assert_eq!(blocked.processes.len(), 2, "{blocked:#?}");
}

#[test]
fn a_deadlock_is_the_first_finding() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let mut command = runtime.command(&need!(workloads::trouble()));
    command.args(["--mode", "deadlock", "--seconds", "600"]);
    let workload = Workload::start(&mut command);
    let pid = workload.pid().to_string();
    wait_until("all threads wait", || {
        let stacks = run_perfcollect(["stacks", "-p", &pid, "-json"], Path::new("/"), LIMIT);
        let report: StackReport = serde_json::from_str(&stacks.stdout).unwrap();
        let reasons = reasons(&report, workload.pid());
        reasons
            .values()
            .filter(|reason| **reason == Reason::Lock)
            .count()
            == 4
    });
    let traced = Traced::of(workload.pid());
    let finding = &traced.summary().findings[0];
    assert_eq!(finding.rule, "deadlock", "{finding:?}");
    for words in [
        "deadlock in trouble",
        "2 threads",
        "TakeOrder",
        "CountStock",
    ] {
        assert!(finding.text.contains(words), "{words}: {finding:?}");
    }
    assert_eq!(traced.threads().deadlocks.len(), 1);
    // Other files have it, too.
    traced.run(&["convert", "x.trace.zip", "-o", "y"]);
    let [before, after] = ["x", "y"].map(|name| traced.entry(name, "threads.json"));
    assert_eq!(before, after);
}

/// They are one finding, and so is their process: neither the main thread nor its ended child is another one.
#[test]
fn threads_in_different_functions_wait_for_one_lock() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let options = ["-O2", "-pthread"];
    let program = compiled(directory.path(), "lock_sites", LOCK_SITES, &options);
    let workload = Workload::start(&mut Command::new(program));
    let pid = workload.pid();
    let summary = Traced::of(pid).summary();
    let [finding] = &summary.findings[..] else {
        panic!("{:#?}", summary.findings);
    };
    assert_eq!(finding.rule, "blocked-by-lock");
    let start = format!("3 threads of lock_sites (pid {pid}) have waited");
    let owner = format!(" that thread {pid} has, which sleeps in main");
    let text = &finding.text;
    assert!(text.starts_with(&start) && text.ends_with(&owner), "{text}");
    let blocked = summary.blocked.unwrap();
    let [lock] = &blocked.locks[..] else {
        panic!("{:#?}", blocked.locks);
    };
    assert_eq!((lock.threads, lock.method_count), (3, 3), "{lock:?}");
    // A thread has not waited for longer than it exists.
    let times = blocked.groups.iter().filter_map(|group| group.since_s);
    assert!(times.flatten().all(|since| since < 60.0), "{blocked:#?}");
    let ended: Vec<u64> = blocked.processes.iter().map(|row| row.ended).collect();
    assert_eq!(ended, [0, 1], "{blocked:#?}");
}

#[test]
fn a_selected_process_has_its_threads() {
    need_capture!();
    let targets = [sleeping(), sleeping()];
    let [first, second] = targets.each_ref().map(|target| target.pid());
    let traced = Traced::of_pids(&format!("{first},{second}"));
    let second = second.to_string();
    let (is_shown, is_not) = (format!("(pid {second})"), format!("(pid {first})"));
    for kind in ["findings", "blocked"] {
        let printed = traced.run(&["report", "x.trace.zip", "-kind", kind, "-process", &second]);
        let printed = printed.stdout;
        assert!(printed.contains(&is_shown), "{printed}");
        assert!(!printed.contains(&is_not), "{printed}");
    }
    // Samples are selected by time, and these threads have none.
    let hidden = traced.run(&["report", "x.trace.zip", "-kind", "blocked", "-to", "0.1"]);
    assert!(hidden.stdout.contains("select by process"), "{hidden:?}");
    assert!(!hidden.stdout.contains("stacks -p"), "{hidden:?}");
}

/// Children that have just ended are still a part of the target.
#[test]
fn an_ended_child_does_not_hide_the_threads() {
    need_capture!();
    let parent = start(Command::new("sh").args(["-c", "while :; do sleep 0.02; done"]));
    let blocked = Traced::of(parent.pid()).summary().blocked.unwrap();
    let pids: Vec<i32> = blocked
        .processes
        .iter()
        .map(|process| process.pid)
        .collect();
    assert!(pids.contains(&(parent.pid() as i32)), "{blocked:#?}");
}

/// What has no threads at its end has no such part.
#[test]
fn a_command_that_has_ended_has_no_threads() {
    need_capture!();
    let traced = Traced {
        directory: tempfile::tempdir().unwrap(),
        screen: String::new(),
    };
    let busy = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
    traced.run(&["collect", "x", "--", "sh", "-c", busy]);
    assert_eq!(traced.summary().blocked, None);
    let printed = traced.run(&["report", "x.trace.zip", "-kind", "blocked"]);
    assert!(
        printed.stdout.contains("perfcollect stacks -p PID"),
        "{}",
        printed.stdout
    );
}
