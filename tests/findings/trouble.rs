//! A program with one trouble at a time (`tests/workloads/trouble.cs`): its finding, and no other.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::output::summary::{Finding, RuntimeSummary, Summary, TRACE, WorkKind};

use super::{LIMIT, finding};
use crate::support::{
    Runtime, Saved, Workload, captured_during, captured_for, end_capture, perfcollect, run,
    runtimes, start_capture, wait_for_cpu_time, wait_until, workloads,
};

/// Rules about troubles of a process. A finding of another rule is none.
const TROUBLES: [&str; 10] = [
    "gc",
    "lock-contention",
    "thread-pool",
    "sync-over-async",
    "exceptions",
    "jit",
    "spinning",
    "debug-build",
    "page-faults",
    "kernel-time",
];
/// CPU time in which a program compiles what it needs.
const WARM_UP: Duration = Duration::from_millis(300);
/// CPUs below which a program is not in the trouble that it makes: others have the CPUs.
const STARVED_CPUS: f64 = 0.2;
/// One program at a time: each needs the CPUs to get into trouble.
static CPUS: Mutex<()> = Mutex::new(());

/// Waits until no other test has the CPUs.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    CPUS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A running program, with one trouble.
struct Program {
    workload: Workload,
    _alone: MutexGuard<'static, ()>,
}

impl Program {
    #[track_caller]
    fn start(runtime: &Runtime, program: &Path, mode: &str) -> Self {
        let alone = alone();
        let mut command = runtime.command(program);
        command.args(["--mode", mode, "--seconds", "6000"]);
        // A small budget of generation 0, so that collections are frequent on every machine.
        command.env("DOTNET_GCgen0size", "0x400000");
        Self {
            workload: Workload::start(&mut command),
            _alone: alone,
        }
    }

    fn pid(&self) -> u32 {
        self.workload.pid()
    }

    /// Captures it while it uses this much CPU time, after it has warmed up.
    #[track_caller]
    fn captured_for(&self, cpu: Duration, options: &[&str]) -> Saved {
        wait_for_cpu_time(self.pid(), WARM_UP);
        captured_for(cpu, self.pid(), options)
    }
}

/// Captures a mode of the program with the newest runtime.
macro_rules! captured {
    ($mode:expr, $cpu_ms:expr) => {{
        need_capture!();
        let program = need!(workloads::trouble());
        let program = Program::start(&need!(Runtime::newest()), &program, $mode);
        program.captured_for(Duration::from_millis($cpu_ms), &[])
    }};
}

/// Returns the finding of a rule, which contains the method, whose command works. No other trouble
/// was found but those that follow from it.
#[track_caller]
fn only<'a>(saved: &'a Saved, rule: &str, method: &str, following: &[&str]) -> &'a Finding {
    let findings = &saved.summary.findings;
    let others = findings.iter().map(|finding| &*finding.rule);
    let mut others = others
        .filter(|other| TROUBLES.contains(other) && *other != rule && !following.contains(other));
    assert_eq!(others.next(), None, "{findings:#?}");
    let found = finding(saved, rule).unwrap_or_else(|| panic!("no {rule}: {findings:#?}"));
    assert!(found.text.contains(method), "{found:#?}");
    assert_eq!(found.pid, Some(saved.summary.processes[0].pid));
    let mut more = Command::new(perfcollect());
    let path = saved.path.to_str().unwrap();
    more.args(
        found
            .command
            .iter()
            .map(|word| if word == TRACE { path } else { word }),
    );
    assert!(!run(&mut more, LIMIT).expect_success().stdout.is_empty());
    found
}

fn expect_figure(found: &Finding, name: &str, expected: f64) {
    let figure = found.figures[name];
    let difference = (figure - expected).abs();
    assert!(
        difference <= expected.abs() * 1e-9,
        "{name} {expected}: {found:#?}"
    );
}

/// The figures of a kind of work are those of the process, and its method those of the shares.
#[track_caller]
fn expect_work(saved: &Saved, found: &Finding, kind: WorkKind, method: &str) {
    let summary = &saved.summary;
    let process = &summary.processes[0];
    let part = process.work.samples(kind) as f64 / process.samples as f64;
    expect_figure(found, "cpu_percent", part * 100.0);
    let seconds = (summary.info.end_ns - summary.info.start_ns) as f64 / 1e9;
    expect_figure(found, "used_cpus", part * process.cpu_ms / 1e3 / seconds);
    let mut rows = summary.shares.work_methods.iter();
    let row = rows.find(|row| row.work == kind).unwrap();
    assert!(row.name.contains(method), "{row:#?}");
    assert!(row.samples <= process.work.samples(kind), "{row:#?}");
    assert!(row.samples * 2 > process.work.samples(kind), "{row:#?}");
}

#[track_caller]
fn events(saved: &Saved) -> &RuntimeSummary {
    let [runtime] = &saved.summary.runtimes[..] else {
        panic!("{:#?}", saved.summary.runtimes);
    };
    runtime
}

#[test]
fn collections_of_garbage() {
    let saved = captured!("gc", 1000);
    // The collector gives memory back, and gets it again.
    let found = only(&saved, "gc", "collections", &["page-faults", "kernel-time"]);
    let gc = events(&saved).gc.as_ref().unwrap();
    assert!(gc.generations[1] + gc.generations[2] > 0, "{gc:#?}");
    expect_figure(found, "paused_percent", gc.paused_percent);
    expect_figure(found, "max_pause_ms", gc.max_pause_ms);
    expect_figure(found, "cpu_percent", gc.cpu_percent.unwrap());
    expect_figure(found, "allocated_mb_per_s", gc.allocated_mb_per_second);
    expect_figure(found, "collections", gc.count as f64);
}

/// Without samples, but with the types of what is allocated.
#[test]
fn what_allocates() {
    need_capture!();
    let program = need!(workloads::trouble());
    let program = Program::start(&need!(Runtime::newest()), &program, "gc");
    let directory = tempfile::tempdir().unwrap();
    let mut collect = Command::new(perfcollect());
    let pid = program.pid().to_string();
    collect.args(["collect", "trace", "-gconly", "-pid", &pid]);
    let capture = start_capture(collect.current_dir(&directory));
    wait_for_cpu_time(program.pid(), Duration::from_millis(1500));
    end_capture(capture);
    let mut report = Command::new(perfcollect());
    report.args(["report", "trace.trace.zip", "-kind", "summary"]);
    report.args(["-format", "json"]).current_dir(&directory);
    let json = run(&mut report, LIMIT).expect_success().stdout;
    let summary: Summary = serde_json::from_str(&json).unwrap();
    let mut findings = summary.findings.iter();
    let found = findings.find(|finding| finding.rule == "gc").unwrap();
    let allocations = summary.runtimes[0].allocations.as_ref().unwrap();
    let row = &allocations.rows[0];
    let own = row.methods.own.as_ref().unwrap();
    assert!(own.name.contains("Collections.KeepForAWhile"), "{row:#?}");
    let part = format!("{} in Collections.KeepForAWhile", row.type_name);
    assert!(found.text.contains(&part), "{found:#?}");
}

#[test]
fn waits_for_a_lock() {
    let saved = captured!("lock", 1000);
    let found = only(&saved, "lock-contention", "in Locks.UpdateTotal", &[]);
    let waits = events(&saved).contention.as_ref().unwrap();
    expect_figure(found, "waits", (waits.count + waits.unended) as f64);
    expect_figure(found, "waiting_ms", waits.ms + waits.unended_ms);
    expect_figure(found, "max_ms", waits.max_ms);
}

/// The capture goes on, but the threads of a process that has ended wait no longer.
#[test]
fn waits_end_with_the_process() {
    need_capture!();
    let program = need!(workloads::trouble());
    let runtime = need!(Runtime::newest());
    // Threads spin before they wait, so sometimes none waits at the end.
    let found = (0..5).any(|_| has_waits_at_its_end(&runtime, &program));
    assert!(found, "no process ended while its threads waited");
}

/// Captures a process whose threads wait for a lock. Returns whether some of them did when it ended.
fn has_waits_at_its_end(runtime: &Runtime, program: &Path) -> bool {
    let mut pid = 0;
    let mut life = Duration::ZERO;
    let saved = captured_during(&[], || {
        let started = Instant::now();
        let program = Program::start(runtime, program, "lock");
        pid = program.pid() as i32;
        wait_for_cpu_time(program.pid(), Duration::from_millis(1500));
        drop(program);
        life = started.elapsed();
        sleep(2 * life);
    });
    let mut runtimes = saved.summary.runtimes.iter();
    let runtime = runtimes.find(|runtime| runtime.pid == pid).unwrap();
    let waits = runtime.contention.as_ref().unwrap();
    // One of three threads has the lock.
    let most = 2.0 * life.as_secs_f64() * 1e3;
    assert!(waits.ms + waits.unended_ms < most, "{most} {waits:#?}");
    assert!(waits.max_ms < most / 2.0, "{most} {waits:#?}");
    waits.unended > 0
}

/// The pool adds a thread every half second.
#[test]
fn a_starved_thread_pool() {
    need_capture!();
    let program = need!(workloads::trouble());
    let runtime = need!(Runtime::at_least(9));
    let program = Program::start(&runtime, &program, "pool");
    let threads = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", program.pid()));
        tasks.map_or(0, Iterator::count)
    };
    let pid = program.pid().to_string();
    let options = [
        "-pid",
        &pid,
        "-clrevents",
        "threading+waithandle",
        "-clreventlevel",
        "verbose",
    ];
    let saved = captured_during(&options, || {
        let before = threads();
        wait_until("the pool adds threads", || threads() >= before + 5);
    });
    let found = only(&saved, "thread-pool", "in Pool.WaitForReply", &[]);
    let pool = events(&saved).thread_pool.as_ref().unwrap();
    assert!(pool.starvations >= 3 && pool.blocking == 0, "{pool:#?}");
    expect_figure(found, "starvations", pool.starvations as f64);
    expect_figure(found, "blocking", 0.0);
    expect_figure(found, "max_threads", pool.max_threads.into());
}

#[test]
fn tasks_that_block_threads() {
    need_capture!();
    let program = need!(workloads::trouble());
    let runtime = need!(Runtime::at_least(8));
    let program = Program::start(&runtime, &program, "sync-over-async");
    let saved = program.captured_for(Duration::from_millis(700), &[]);
    let method = "SyncOverAsync.LoadUser";
    if saved.summary.cpus().unwrap() < STARVED_CPUS {
        // Its waits take less than the 0.01 CPUs of the rule then.
        assert!(saved.summary.processes[0].work.task_waits > 0);
        return;
    }
    // The threads share the lock of the timers, too.
    let following = ["thread-pool", "kernel-time", "lock-contention"];
    let found = only(&saved, "sync-over-async", method, &following);
    expect_work(&saved, found, WorkKind::TaskWaits, method);
    // The runtime adds a thread for each that blocks.
    let pool = events(&saved).thread_pool.as_ref().unwrap();
    let Some(found) = finding(&saved, "thread-pool") else {
        // On a busy machine, few block in this time.
        assert!(pool.starvations + pool.blocking < 3, "{pool:#?}");
        return;
    };
    assert!(found.text.contains(method), "{found:#?}");
    expect_figure(found, "blocking", pool.blocking as f64);
}

#[test]
fn a_loop_that_waits() {
    let saved = captured!("spin", 1000);
    let method = "Spinning.WaitForTurn";
    let found = only(&saved, "spinning", method, &[]);
    expect_work(&saved, found, WorkKind::Spinning, method);
}

#[test]
fn exceptions_of_two_types() {
    let saved = captured!("throw", 1000);
    let method = "Exceptions.ValidateOrder";
    let found = only(&saved, "exceptions", method, &[]);
    expect_work(&saved, found, WorkKind::Exceptions, method);
    let thrown = events(&saved).exceptions.as_ref().unwrap();
    expect_figure(found, "exceptions", thrown.count as f64);
    expect_figure(found, "exceptions_per_s", thrown.per_second);
    // The program does nothing else, but for the thread that sends the events.
    assert!(found.figures["cpu_percent"] > 50.0, "{found:#?}");
}

#[test]
fn methods_that_are_compiled_again_and_again() {
    let saved = captured!("jit", 1000);
    let method = "Compilations.CompileRule";
    let found = only(&saved, "jit", method, &[]);
    expect_work(&saved, found, WorkKind::Jit, method);
    let jit = events(&saved).jit.as_ref().unwrap();
    assert!(
        found.text.contains(&format!("{} methods", jit.count)),
        "{found:#?}"
    );
    assert!(jit.again[0].name.contains("Rule"), "{jit:#?}");
}

#[test]
fn system_calls() {
    let saved = captured!("kernel", 1000);
    let found = only(&saved, "kernel-time", "SystemCalls.CopyFile", &[]);
    assert!(found.text.contains("system call read"), "{found:#?}");
    let process = &saved.summary.processes[0];
    let percent = |samples: u64| samples as f64 / process.samples as f64 * 100.0;
    let kernel = process.work.samples(WorkKind::Kernel);
    expect_figure(found, "kernel_percent", percent(kernel));
    let call = &saved.summary.shares.syscalls[0];
    assert_eq!(call.name, "read");
    expect_figure(found, "syscall_percent", percent(call.samples));
}

#[test]
fn page_faults() {
    let saved = captured!("faults", 1000);
    let method = "PageFaults.TouchPages";
    let found = only(&saved, "page-faults", method, &["kernel-time"]);
    expect_work(&saved, found, WorkKind::PageFaults, method);
}

/// Every runtime: where the tier of a method is read differs.
#[test]
fn a_debug_build() {
    need_capture!();
    let program = need!(workloads::trouble_debug());
    for runtime in runtimes() {
        let program = Program::start(&runtime, &program, "healthy");
        let saved = program.captured_for(Duration::from_millis(400), &[]);
        let found = only(&saved, "debug-build", "Work.Burn", &[]);
        let work = saved.summary.processes[0].work;
        let part = work.not_optimized as f64 / work.own as f64;
        assert!(part > 0.9, "{}: {found:#?}", runtime.version);
        expect_figure(found, "not_optimized_percent", part * 100.0);
    }
}

#[test]
fn a_healthy_program_has_no_trouble() {
    let saved = captured!("healthy", 1000);
    let findings = &saved.summary.findings;
    let troubles = findings
        .iter()
        .filter(|found| TROUBLES.contains(&&*found.rule));
    assert_eq!(troubles.count(), 0, "{findings:#?}");
}

#[test]
fn an_idle_program_has_no_trouble() {
    need_capture!();
    let program = need!(workloads::trouble());
    let program = Program::start(&need!(Runtime::newest()), &program, "idle");
    let pid = program.pid().to_string();
    let saved = captured_during(&["-pid", &pid], || sleep(Duration::from_secs(4)));
    let findings = &saved.summary.findings;
    // It is there unless a thread of the runtime runs just then.
    let only_waits = findings.iter().all(|finding| finding.rule == "waiting");
    assert!(only_waits, "{findings:#?}");
}
