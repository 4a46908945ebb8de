//! Captures of many, short-lived, hidden or suspended .NET processes: each has symbols, or a notice
//! reports why not.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::thread;
use std::time::Duration;

use perfcollect::trace::{Notice, NoticeKind};
use rustix::process::{Pid, Signal, kill_process};
use support::{
    Missing, Runtime, Saved, Workload, captured, children, end_capture, perfcollect, run, runtimes,
    start, start_capture, wait_until, workloads,
};

const LIMIT: Duration = Duration::from_secs(60);
/// Frames of the last moments of a process, which may have no symbols however short it ran.
const FEW: u64 = 10;

/// Counts JIT frames, once for each sample that contains them.
#[derive(Debug, Default)]
struct Made {
    all: u64,
    nameless: u64,
}

/// Counts those of a process.
fn made_by(saved: &Saved, pid: i32) -> Made {
    let mut made = Made::default();
    let root = format!("({pid})");
    let of_process = |stack: &&Vec<String>| stack[0].ends_with(&root);
    for stack in saved.stacks.keys().filter(of_process) {
        let samples = saved.stacks[stack];
        for frame in stack.iter().filter(|frame| frame.ends_with("_[j]")) {
            made.all += samples;
            made.nameless += samples * u64::from(frame.starts_with("jit+0x"));
        }
    }
    made
}

/// Fails unless each .NET process has symbols for all but [`FEW`] frames and a share in
/// thousandths, or a notice. Returns how many have symbols.
#[track_caller]
fn named_or_explained(saved: &Saved, permille: u64) -> usize {
    let summary = &saved.summary;
    let notices = &summary.quality.notices;
    let pids_in = |notice: &Notice| -> Vec<String> {
        let words = notice.subject.split(|c: char| !c.is_ascii_digit());
        words
            .filter(|word| !word.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let listed: Vec<String> = notices.iter().flat_map(pids_in).collect();
    // A notice lists the first processes and counts the others.
    let counted = |notice: &Notice| notice.count.saturating_sub(pids_in(notice).len() as u64);
    let mut more: u64 = notices.iter().map(counted).sum();
    let mut named = 0;
    for process in summary.processes.iter().filter(|p| p.name == "dotnet") {
        let made = made_by(saved, process.pid);
        let few = FEW + made.all * permille / 1000;
        if made.all > 0 && made.nameless <= few {
            named += 1;
        } else if !listed.contains(&process.pid.to_string()) {
            assert!(more > 0, "{process:?}: {made:?}\n{notices:#?}");
            more -= 1;
        }
    }
    named
}

/// Each test holds this lock: fifty runtimes leave no CPU time for others.
static MACHINE: RwLock<()> = RwLock::new(());

fn share_machine() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// One runtime of each version, and the program that uses the CPU.
fn on_each_version() -> Vec<(Runtime, PathBuf)> {
    let program = need!(workloads::cpu());
    let mut runtimes = runtimes();
    runtimes.dedup_by_key(|runtime| runtime.major());
    if runtimes.is_empty() {
        skip!(Missing::Dotnet(0));
    }
    let with_program = |runtime| (runtime, program.clone());
    runtimes.into_iter().map(with_program).collect()
}

/// Captures a shell script in which `"$0" "$1"` is the program.
fn captured_script(runtime: &Runtime, program: &Path, script: &str) -> Saved {
    let words = [runtime.dotnet.as_os_str(), program.as_os_str()];
    let start = [
        "--",
        "env",
        "DOTNET_ROLL_FORWARD=LatestMajor",
        "sh",
        "-c",
        script,
    ];
    captured(start.iter().map(AsRef::as_ref).chain(words))
}

/// Fails unless all processes were seen and this share of them has symbols.
#[track_caller]
fn expect_named(runtime: &Runtime, saved: &Saved, named: usize, started: usize, least: f64) {
    let processes = saved.summary.processes.iter();
    let seen = processes.filter(|process| process.name == "dotnet").count();
    println!("on .NET {}: {named} of {seen} named", runtime.version);
    // The record with a process's name may have been dropped.
    assert!(seen == started || saved.is_lossy(), "{seen} of {started}");
    assert!(named as f64 >= seen as f64 * least, "{named} of {seen}");
}

#[test]
#[ignore = "slow"]
fn fifty_at_once() {
    need_capture!();
    let _alone = MACHINE.write().unwrap_or_else(PoisonError::into_inner);
    for (runtime, program) in on_each_version() {
        let script = r#"for i in $(seq 50); do "$0" "$1" --seconds 4 >/dev/null & done; wait"#;
        let saved = captured_script(&runtime, &program, script);
        let named = named_or_explained(&saved, 50);
        // A notice names the reason for the others. Before .NET 8, each must be queried, and how
        // many are depends on the machine.
        let least = if runtime.major() < 8 { 0.2 } else { 0.8 };
        expect_named(&runtime, &saved, named, 50, least);
    }
}

#[test]
#[ignore = "slow"]
fn ten_new_ones_a_second() {
    need_capture!();
    let _beside_others = share_machine();
    for (runtime, program) in on_each_version() {
        let script =
            r#"for i in $(seq 20); do "$0" "$1" --seconds 0.2 >/dev/null & sleep 0.1; done; wait"#;
        let saved = captured_script(&runtime, &program, script);
        let named = named_or_explained(&saved, 50);
        // Before .NET 8, a process that ends before it is queried has no symbols, and a notice says
        // so.
        let least = if runtime.major() < 8 { 0.5 } else { 1.0 };
        expect_named(&runtime, &saved, named, 20, least);
    }
}

/// Its sockets and its pid differ from those of the host.
#[test]
#[ignore = "slow"]
fn one_in_namespaces_of_its_own() {
    need_capture!();
    let _beside_others = share_machine();
    for (runtime, program) in on_each_version() {
        let script = r#"exec unshare -pmf --mount-proc sh -c \
            'mount -t tmpfs none /mnt && mkdir /mnt/own && TMPDIR=/mnt/own "$0" "$1" --seconds 3' "$0" "$1""#;
        let saved = captured_script(&runtime, &program, script);
        assert_eq!(named_or_explained(&saved, 20), 1);
        assert!(saved.samples_under(&["ShareCaller", "Work50"]) > 0);
        let notices = &saved.summary.quality.notices;
        assert!(notices.is_empty() || saved.is_lossy(), "{notices:?}");
    }
}

#[test]
#[ignore = "slow"]
fn one_that_is_stopped() {
    need_capture!();
    let _beside_others = share_machine();
    for (runtime, program) in on_each_version() {
        let mut command = runtime.command(&program);
        let workload = Workload::start(command.args(["--seconds", "6"]));
        let pid = workload.pid().to_string();
        let target = Pid::from_raw(workload.pid() as i32).unwrap();
        let stopper = thread::spawn(move || {
            thread::sleep(Duration::from_millis(2500));
            kill_process(target, Signal::STOP).unwrap();
        });
        let saved = captured(["-pid", &pid, "-collectsec", "4"]);
        stopper.join().unwrap();
        workload.signal(Signal::CONT);
        let named = named_or_explained(&saved, 1);
        assert!(saved.summary.samples > 50, "{}", saved.summary.samples);
        assert_eq!(named, usize::from(runtime.major() >= 8));
        workload.done(LIMIT);
    }
}

/// The process is never resumed, so there is only its start.
#[test]
fn one_that_waits_at_its_start() {
    need_capture!();
    let _beside_others = share_machine();
    for (runtime, program) in on_each_version()
        .into_iter()
        .filter(|(runtime, _)| runtime.major() >= 8)
    {
        let script = r#"DOTNET_DefaultDiagnosticPortSuspend=1 timeout -s KILL 10 "$0" "$1" >/dev/null 2>&1 & sleep 3"#;
        let saved = captured_script(&runtime, &program, script);
        let not_running = saved.notices(NoticeKind::NotRunning);
        assert_eq!(not_running.len(), 1, "{:#?}", saved.summary.quality.notices);
    }
}

/// `program & perfcollect collect NAME -pid $!`: the process may still be the shell.
#[test]
fn one_that_a_shell_has_just_started() {
    need_capture!();
    let _beside_others = share_machine();
    let (runtime, program) = need!(on_each_version().pop().ok_or(Missing::Dotnet(0)));
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        let script = r#""$1" "$2" --seconds 3 >/dev/null & exec "$0" collect trace -quiet -collectsec 2 -pid $!"#;
        let mut command = Command::new("sh");
        command
            .env("DOTNET_ROLL_FORWARD", "LatestMajor")
            .env("HOME", directory.path())
            .current_dir(&directory);
        command
            .args(["-c", script])
            .args([perfcollect(), &*runtime.dotnet, &*program]);
        run(&mut command, LIMIT);
        let saved = Saved::open(directory, "trace");
        let runtimes = &saved.summary.runtimes;
        assert!(
            runtimes.iter().any(|row| !row.events.is_empty()),
            "{:#?}",
            saved.summary.quality.notices
        );
    }
}

#[test]
fn one_that_ends() {
    need_capture!();
    let _beside_others = share_machine();
    for (runtime, program) in on_each_version() {
        let mut command = runtime.command(&program);
        let workload = Workload::start(command.args(["--seconds", "2"]));
        let pid = workload.pid().to_string();
        let saved = captured(["-pid", &pid, "-collectsec", "5"]);
        assert_eq!(named_or_explained(&saved, 20), 1);
        assert!(saved.samples_under(&["ShareCaller", "Work50"]) > 0);
        workload.done(LIMIT);
    }
}

/// Returns what the open files of a process are.
fn open_files(pid: u32) -> Vec<PathBuf> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let links = files.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    links.collect()
}

/// perfcollect closes the memory of a process after its end, and opens a root directory once.
#[test]
fn nothing_of_an_ended_process_stays_open() {
    const PROCESSES: usize = 6;
    need_capture!();
    let program = need!(workloads::cpu());
    let runtime = need!(Runtime::at_least(8));
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "trace", "-nolttng"])
        .current_dir(&directory);
    let capture = start_capture(&mut command);
    let roots = || {
        let links = open_files(capture.pid());
        links.iter().filter(|link| *link == Path::new("/")).count()
    };
    let before = roots();
    let is_open = |link: PathBuf| open_files(capture.pid()).contains(&link);
    for _ in 0..PROCESSES {
        let workload = Workload::start(runtime.command(&program).args(["--seconds", "1"]));
        let memory = PathBuf::from(format!("/proc/{}/mem", workload.pid()));
        wait_until("its memory is read", || is_open(memory.clone()));
        workload.done(LIMIT);
        wait_until("its memory is closed", || {
            // perfcollect notices at the end of another process.
            run(&mut Command::new("true"), LIMIT).expect_success();
            !is_open(memory.clone())
        });
    }
    // This one is not reaped by its parent.
    let mut shell = Command::new("sh");
    let program = runtime.command(&program);
    shell
        .args(["-c", "\"$@\" --seconds 1 & exec sleep 600", "sh"])
        .arg(program.get_program())
        .args(program.get_args());
    for (name, value) in program.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let parent = start(&mut shell);
    wait_until("the program starts", || !children(parent.pid()).is_empty());
    let memory = PathBuf::from(format!("/proc/{}/mem", children(parent.pid())[0]));
    wait_until("its memory is read", || is_open(memory.clone()));
    wait_until("its memory is closed", || {
        run(&mut Command::new("true"), LIMIT).expect_success();
        !is_open(memory.clone())
    });
    parent.signal(Signal::KILL);
    let after = roots();
    assert!(after < before + PROCESSES, "{before} {after}");
    end_capture(capture);
}
