//! Fallbacks of a capture to what the kernel permits, and their notices.
//!
//! These tests change kernel settings and restore them, so they run one at a time.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use perfcollect::machine;
use perfcollect::trace::{NoticeKind, Pid};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use support::{
    AS_NOBODY, Missing, POORER, PublicDirectory, Running, Runtime, Saved, Workload, children,
    cpu_time, end_capture, expect_shares, interrupt_capture, perfcollect, run, start,
    start_capture, wait_for_cpu_time, wait_until, workloads,
};

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
const BUSY: &str = "while :; do :; done";
/// CPU time of a target that is some 500 samples.
const HALF_A_SECOND: Duration = Duration::from_millis(500);

/// Waits until no other test runs.
fn exclusive() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A kernel setting, restored when the value is dropped.
struct Setting {
    path: PathBuf,
    previous: String,
}

impl Setting {
    /// Changes a setting. Returns `None` if it cannot be changed.
    fn set(path: &str, value: &str) -> Option<Self> {
        let path = PathBuf::from(path);
        let previous = fs::read_to_string(&path).ok()?;
        fs::write(&path, value).ok()?;
        Some(Self { path, previous })
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        fs::write(&self.path, &self.previous).unwrap();
    }
}

/// Sets perf_event_paranoid for the rest of a block. Skips the test if it cannot be set.
macro_rules! need_paranoid_level {
    ($level:expr) => {
        let Some(_setting) = Setting::set(PARANOIA, $level) else {
            skip!(Missing::Writable(PARANOIA));
        };
    };
}

const PARANOIA: &str = "/proc/sys/kernel/perf_event_paranoid";
const MAX_SAMPLE_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Starts a shell script, which is stopped when the value is dropped.
fn shell(prefix: &[&str], script: &str) -> Running {
    let mut words = prefix.to_vec();
    words.extend(["sh", "-c", script]);
    start(Command::new(words[0]).args(&words[1..]))
}

/// Whether there is a notice of a kind. It must be the only one and have a remedy.
#[track_caller]
fn has_notice(saved: &Saved, kind: NoticeKind) -> bool {
    let notices = saved.notices(kind);
    assert!(notices.len() <= 1, "{notices:#?}");
    notices.iter().for_each(|notice| {
        assert!(!notice.remedy.is_empty(), "{notice:#?}");
    });
    !notices.is_empty()
}

/// Whether code of a file is reported to have no names.
fn has_no_names(saved: &Saved, file: &str) -> bool {
    let notices = saved.notices(NoticeKind::CodeUnsymbolized);
    notices.iter().any(|notice| notice.subject.contains(file))
}

fn kernel_frames(saved: &Saved) -> u64 {
    let kernel = saved.summary.quality.names.kernel;
    kernel.named + kernel.unresolved
}

/// A real-time priority, which children do not inherit.
const REAL_TIME: [&str; 4] = ["chrt", "--reset-on-fork", "--rr", "1"];

/// Samples stay in the ring buffer for at least 20 ms; it has room for only a few copies of 60 KB.
///
/// It holds the samples of 60 ms, so perfcollect loses none if it runs every 40 ms. On a busy
/// system, only a real-time priority ensures that.
#[test]
fn small_ring_buffers_truncate_stacks_but_lose_no_samples() {
    need_capture!();
    need_command!("chrt");
    let _lock = exclusive();
    let native = need!(workloads::native("native-fp"));
    let directory = PublicDirectory::new();
    let program = directory.add_native(&native);
    let work = ["--", &program, "--mode", "shares", "--cpu-seconds", "3"];
    let arguments = [&["-buffersize", "512K"], &work[..]].concat();
    let saved = directory.capture(&REAL_TIME, &arguments);
    assert!(has_notice(&saved, NoticeKind::StackCopiesReduced));
    let lost = saved.summary.quality.losses.lost();
    assert!(lost * 100 < saved.summary.samples, "{lost}");
    saved.expect_complete();
}

#[test]
fn captures_unprivileged_command_at_each_paranoid_level() {
    need_capture!();
    need_command!("setpriv");
    let _lock = exclusive();
    // Half of the CPU time is kernel time. The script starts children of children.
    let script = "dd if=/dev/zero of=/dev/null bs=64K count=40000 2>&1; (i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done)";
    for (level, is_system_wide, kernel) in [
        ("-1", true, true),
        ("1", false, true),
        ("2", false, false),
        ("3", false, false),
    ] {
        need_paranoid_level!(level);
        let directory = PublicDirectory::new();
        // sudo and setpriv keep HOME: it belongs to another user and is not readable.
        let home = tempfile::tempdir().unwrap();
        fs::set_permissions(home.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let mut command = directory.command(&AS_NOBODY, &["--", "sh", "-c", script]);
        let finished = run(
            command
                .env("HOME", home.path())
                .env_remove("XDG_CACHE_HOME"),
            LIMIT,
        );
        if level == "3" && !finished.status.success() {
            // The kernels of Debian and Ubuntu permit no sampling at this level.
            assert!(finished.stderr.contains("perf_event_paranoid is 3"));
            continue;
        }
        finished.expect_success();
        let saved = Saved::open(directory.into_inner(), "x");
        let is_limited = has_notice(&saved, NoticeKind::NotSystemWide);
        assert_eq!(is_limited, !is_system_wide, "{level}");
        assert_eq!(
            has_notice(&saved, NoticeKind::UserCodeOnly),
            !kernel,
            "{level}"
        );
        let frames = kernel_frames(&saved);
        assert_eq!(frames > 0, kernel, "{level}: {frames}");
        assert!(saved.summary.processes.iter().any(|p| p.name == "sh"));
        let not_searched = saved.notices(NoticeKind::DebugFilesNotSearched);
        let [not_searched] = not_searched[..] else {
            panic!("{not_searched:#?}");
        };
        assert_eq!(not_searched.subject, home.path().display().to_string());
        assert!(not_searched.what.contains("Permission denied"));
        assert!(!has_notice(&saved, NoticeKind::DebugFileRejected));
        assert_eq!(saved.summary.quality.losses.malformed_records, 0);
    }
}

#[test]
fn unprivileged_capture_of_a_command_has_correct_shares() {
    need_capture!();
    let native = need!(workloads::native("native-fp"));
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let program = directory.add_native(&native);
    let arguments = ["--", &program, "--mode", "shares", "--cpu-seconds", "2"];
    let finished = directory.collect(&AS_NOBODY, &arguments).expect_success();
    let done = finished.stdout.lines().last().unwrap();
    let done: serde_json::Value = serde_json::from_str(done).unwrap();
    let saved = Saved::open(directory.into_inner(), "x");
    expect_shares(&saved, &done["modes"][0]);
    let rooted = saved.summary.quality.stacks.rooted;
    assert!(rooted * 100 >= saved.summary.samples * 99, "{rooted}");
}

/// Lists the running processes and threads; those that they start later inherit their events.
#[test]
fn unprivileged_capture_of_a_pid_samples_each_thread_once() {
    need_capture!();
    let native = need!(workloads::native("native-fp"));
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let program = directory.add_native(&native);
    // The shell starts a busy child before the capture, and a program with short-lived threads.
    let script = format!("(i=0; {BUSY}) & {program} --mode threads --seconds 6000; wait");
    let target = shell(&AS_NOBODY, &script);
    wait_until("two children", || children(target.pid()).len() == 2);
    let capture = directory.start(&AS_NOBODY, &[], target.pid());
    for child in children(target.pid()) {
        wait_for_cpu_time(child, HALF_A_SECOND);
    }
    let saved = directory.end(capture);
    assert!(
        has_notice(&saved, NoticeKind::NotSystemWide)
            && has_notice(&saved, NoticeKind::UserCodeOnly)
    );
    assert!(!has_notice(&saved, NoticeKind::ThreadsNotSampled));
    let names: Vec<_> = saved.summary.processes.iter().map(|p| &p.name).collect();
    assert!(names.iter().any(|name| *name == "sh"), "{names:?}");
    assert!(names.iter().any(|name| *name == "native-fp"), "{names:?}");
    for work in ["thread50", "thread30", "thread20"] {
        assert!(saved.samples_under(&["thread_main", work]) > 0, "{work}");
    }
    // The CPU time does not exceed the elapsed time of all CPUs.
    let info = &saved.summary.info;
    let elapsed_ms = (info.end_ns - info.start_ns) as f64 / 1e6;
    let cpus = f64::from(info.cpus);
    assert!(saved.summary.cpu_ms <= elapsed_ms * cpus * 1.01);
}

/// The owner of a process may open its replaced executable, but not its replaced libraries.
#[test]
#[ignore = "slow"]
fn unprivileged_capture_symbolizes_replaced_executable() {
    need_capture!();
    let native = need!(workloads::native("native-fp"));
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let program = directory.add_native(&native);
    let mut words = AS_NOBODY.to_vec();
    words.extend([&program, "--mode", "library", "--seconds", "6000"]);
    let target = Workload::start(Command::new(words[0]).args(&words[1..]));
    for path in [Path::new(&program), &directory.path().join("libwork.so")] {
        fs::remove_file(path).unwrap();
        fs::write(path, "another file").unwrap();
    }
    let saved = directory.capture_for(HALF_A_SECOND, &AS_NOBODY, &[], target.pid());
    assert!(saved.samples_under(&["library_caller"]) > 0);
    assert!(has_no_names(&saved, "libwork.so"));
    assert!(!has_no_names(&saved, "native-fp"));
}

/// The notice must not report such a library as JIT code.
#[test]
fn unprivileged_capture_reports_inaccessible_memfd_library() {
    need_capture!();
    let lives = need!(workloads::native("lives"));
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let [program, ..] =
        ["lives", "first.so", "second.so"].map(|name| directory.add(&lives.with_file_name(name)));
    let target = shell(&AS_NOBODY, &format!("exec {program} memory 1000000"));
    wait_until("a library in memory", || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", target.pid()));
        maps.is_ok_and(|maps| maps.contains("/memfd:"))
    });
    let saved = directory.capture_for(HALF_A_SECOND, &AS_NOBODY, &[], target.pid());
    assert!(has_no_names(&saved, "/memfd:"));
    assert!(!has_notice(&saved, NoticeKind::JitUnsymbolized));
}

/// Runs threads that each start the next one after 10 to 25 ms of CPU time.
#[test]
#[ignore = "the target of `threads_with_inherited_events_are_sampled_once`, which never ends"]
fn manual_chains_of_threads() {
    fn link(duration: Duration) {
        let cpu_time = || Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap();
        // The system call is kernel time, which is not sampled here: some 0.1 ms of user time follow.
        while cpu_time() < duration {
            for number in 0..10_000 {
                std::hint::black_box(number);
            }
        }
        std::thread::spawn(move || link(duration));
    }
    for ms in [10, 15, 20, 25] {
        std::thread::spawn(move || link(Duration::from_millis(ms)));
    }
    std::thread::sleep(LIMIT);
}

/// A thread that is listed after the events of its parent were opened has inherited them.
#[test]
fn threads_with_inherited_events_are_sampled_once() {
    need_capture!();
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let program = directory.add(&std::env::current_exe().unwrap());
    let mut words = AS_NOBODY.to_vec();
    words.extend([&program, "--ignored", "--exact", "manual_chains_of_threads"]);
    let target = start(Command::new(words[0]).args(&words[1..]));
    wait_until("CPU time of the target", || {
        cpu_time(target.pid()) > HALF_A_SECOND
    });
    let before = cpu_time(target.pid());
    let capture = directory.start(&AS_NOBODY, &["-noinline"], target.pid());
    let start = cpu_time(target.pid());
    wait_for_cpu_time(target.pid(), Duration::from_secs(2));
    // A stopped target uses no CPU time while the capture ends.
    target.signal(Signal::STOP);
    let pid = Pid(target.pid() as i32);
    wait_until("the target is stopped", || machine::is_stopped(pid));
    let end = cpu_time(target.pid());
    let saved = directory.end(capture);
    let sampled = Duration::from_secs_f64(saved.summary.cpu_ms / 1e3);
    // New threads are sampled only after a whole period.
    assert!(
        sampled < (end - before).mul_f64(1.05) && sampled > (end - start).mul_f64(0.25),
        "{sampled:?} of {:?} to {:?}",
        end - start,
        end - before
    );
}

#[test]
fn reports_threads_beyond_the_limit_of_open_files() {
    need_capture!();
    let _lock = exclusive();
    need_paranoid_level!("2");
    let directory = PublicDirectory::new();
    let script = format!("i=0; while [ $i -lt 60 ]; do sleep 60 & i=$((i+1)); done; {BUSY}");
    let target = shell(&AS_NOBODY, &script);
    wait_until("60 children", || children(target.pid()).len() == 60);
    let mut few_files = vec!["sh", "-c", "ulimit -n 300; exec \"$@\"", "sh"];
    few_files.extend(AS_NOBODY);
    let saved = directory.capture_for(HALF_A_SECOND, &few_files, &[], target.pid());
    assert!(has_notice(&saved, NoticeKind::ThreadsNotSampled));
}

#[test]
fn falls_back_to_frame_pointers_without_stack_copies() {
    need_capture!();
    need_command!("strace");
    let _lock = exclusive();
    let target = shell(&[], BUSY);
    // The first event requests stack copies. The injected error simulates a kernel without them.
    let refusing = [
        "strace",
        "-qq",
        "-o/dev/null",
        "-etrace=perf_event_open",
        "-einject=perf_event_open:error=EOPNOTSUPP:when=1",
    ];
    let saved = PublicDirectory::new().capture_for(HALF_A_SECOND, &refusing, &[], target.pid());
    assert!(has_notice(&saved, NoticeKind::NoStackCopies));
    assert!(saved.summary.quality.names.native != Default::default());
    assert_eq!(saved.summary.quality.losses.malformed_records, 0);
}

/// Yama may deny what the injected error denies.
/// Runs a command that may not call `process_vm_readv`, as with Yama: a seccomp filter of x86-64.
const NO_MEMORY: &str = r#"
import ctypes, os, struct, sys
SYSCALL, EPERM = 310, 1
filter = struct.pack("HBBI" * 4, 0x20, 0, 0, 0, 0x15, 0, 1, SYSCALL, 6, 0, 0, 0x50000 | EPERM, 6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(filter)
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", 4, ctypes.addressof(code)))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program) == 0
os.execvp(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn warns_before_a_rundown_that_may_crash_the_process() {
    need_capture!();
    for command in ["strace", "python3"] {
        need_command!(command);
    }
    let _lock = exclusive();
    let runtime = need!(Runtime::at_least(9));
    let mut command = runtime.command(&need!(workloads::cpu()));
    let target = Workload::start(command.args(["--seconds", "600"]));
    let memory = format!("-P/proc/{}/mem", target.pid());
    let refusing = [
        "python3",
        "-c",
        NO_MEMORY,
        "strace",
        "-f",
        "-qq",
        "-o/dev/null",
        &memory,
        "-etrace=openat,open",
        "-einject=openat,open:error=EACCES",
    ];
    for (prefix, option, expected) in [
        (&refusing[..], "-nolttng", true),
        (&refusing, "-noinline", true),
        (&[], "-noinline", false),
    ] {
        let directory = PublicDirectory::new();
        let capture = directory.start(prefix, &[option], target.pid());
        wait_for_cpu_time(target.pid(), HALF_A_SECOND);
        let output = end_capture(capture);
        let warning = output.stderr.find("warning: the memory of .NET process");
        assert_eq!(warning.is_some(), expected, "{option}: {}", output.stderr);
        assert!(warning < output.stderr.find("STOPPED"), "{}", output.stderr);
        let saved = Saved::open(directory.into_inner(), "x");
        let names = saved.summary.quality.names.jit;
        assert!(names.unresolved * 20 < names.named, "{option}: {names:?}");
    }
}

#[test]
fn falls_back_to_cpu_clock_without_cycles() {
    need_capture!();
    let _lock = exclusive();
    let target = shell(&[], BUSY);
    let directory = PublicDirectory::new();
    let capture = directory.start(&[], &["-hwevents"], target.pid());
    wait_for_cpu_time(target.pid(), HALF_A_SECOND);
    let finished = interrupt_capture(capture);
    let saved = Saved::open(directory.into_inner(), "x");
    let info = &saved.summary.info;
    let notices = saved.summary.quality.notices.iter();
    let about = notices.filter(|notice| {
        let kinds = [NoticeKind::NoHardwareCycles, NoticeKind::CountersMissing];
        kinds.contains(&notice.kind)
    });
    let about: Vec<&str> = about.map(|notice| &*notice.what).collect();
    let has_cycles = !about.iter().any(|what| what.contains("no hardware events"));
    finished.expect_status(0);
    assert!(has_cycles || about.len() == 1, "{about:?}");
    assert_eq!(info.event, if has_cycles { "cycles" } else { "cpu-clock" });
    // A weight is a time, regardless of the event.
    let per_sample = saved.summary.cpu_ms * 1e6 / saved.summary.samples as f64;
    assert!((per_sample / info.period_ns as f64 - 1.0).abs() < 0.05);
}

/// Mappings, samples, and samples with short stack copies.
const EVENTS_PER_CPU: usize = 3;

/// Returns the descriptors of the perf events of a process.
fn perf_events(pid: u32) -> BTreeSet<u32> {
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    descriptors
        .map(|descriptor| descriptor.unwrap().path())
        .filter(|path| {
            let target = fs::read_link(path);
            target.is_ok_and(|target| target.as_os_str() == "anon_inode:[perf_event]")
        })
        .map(|path| path.file_name().unwrap().to_str().unwrap().parse().unwrap())
        .collect()
}

#[test]
#[ignore = "slow"]
fn follows_cpu_hotplug() {
    need_capture!();
    let _lock = exclusive();
    let cpu = "/sys/devices/system/cpu/cpu1/online";
    if fs::read_to_string(cpu)
        .map(|online| online.trim() == "1")
        .ok()
        != Some(true)
    {
        skip!(Missing::CpuHotplug);
    }
    let directory = PublicDirectory::new();
    let busy = [shell(&[], BUSY), shell(&[], BUSY)];
    let capture = start_capture(&mut directory.command(&[], &[]));
    let sample = || std::thread::sleep(Duration::from_secs(2));
    // perfcollect closes the events of a CPU that went offline, and opens others when it came online.
    let count = || perf_events(capture.pid()).len();
    let all = count();
    let went_offline = Instant::now();
    let Some(setting) = Setting::set(cpu, "0") else {
        skip!(Missing::CpuHotplug);
    };
    wait_until("the events are closed", || count() + EVENTS_PER_CPU == all);
    drop(setting);
    wait_until("the events are open again", || count() == all);
    let offline = went_offline.elapsed();
    sample();
    // perfcollect cannot check the CPUs while it is stopped.
    let before = perf_events(capture.pid());
    let stopped = Instant::now();
    capture.signal(Signal::STOP);
    let pid = Pid(capture.pid() as i32);
    wait_until("perfcollect is stopped", || machine::is_stopped(pid));
    drop(Setting::set(cpu, "0"));
    capture.signal(Signal::CONT);
    wait_until("the events are replaced", || {
        let new = &perf_events(capture.pid()) - &before;
        new.len() == EVENTS_PER_CPU
    });
    let moment = stopped.elapsed();
    sample();
    end_capture(capture);
    drop(busy);
    let saved = Saved::open(directory.into_inner(), "x");
    let notices = saved.notices(NoticeKind::CpuHotplug);
    let [notice] = notices[..] else {
        panic!("{:#?}", saved.summary.quality.notices);
    };
    assert_eq!(notice.count, 3);
    let what = &notice.what;
    for words in [
        "went offline at +",
        "came online at +",
        "was offline for a moment",
    ] {
        assert!(what.contains(words), "{what}");
    }
    // Both CPUs were busy. One was not sampled while it was offline and until perfcollect followed.
    let info = &saved.summary.info;
    let elapsed = Duration::from_nanos(info.end_ns - info.start_ns);
    let lost = Duration::from_nanos(info.period_ns * saved.summary.quality.losses.lost());
    let sampled = Duration::from_secs_f64(saved.summary.cpu_ms / 1e3) + lost;
    let expected = 2 * elapsed - offline - moment;
    assert!(
        sampled > expected.mul_f64(0.95),
        "{sampled:?} of {expected:?}, {elapsed:?} with {offline:?} and {moment:?}"
    );
    assert_eq!(saved.summary.quality.losses.malformed_records, 0);
}

#[test]
fn reports_a_sample_rate_that_the_kernel_lowered() {
    need_capture!();
    let _lock = exclusive();
    let target = shell(&[], BUSY);
    let directory = PublicDirectory::new();
    let capture = directory.start(&[], &["-freq", "4000"], target.pid());
    wait_for_cpu_time(target.pid(), HALF_A_SECOND);
    let Some(limit) = Setting::set(MAX_SAMPLE_RATE, "1000") else {
        skip!(Missing::Writable(MAX_SAMPLE_RATE));
    };
    wait_for_cpu_time(target.pid(), Duration::from_secs(2));
    let saved = directory.end(capture);
    drop(limit);
    assert!(has_notice(&saved, NoticeKind::SampleRateLowered));
    assert_eq!(saved.notices(NoticeKind::SampleRateLowered)[0].count, 1000);
    assert!(has_notice(&saved, NoticeKind::Throttled));
    let pauses = &saved.summary.quality.losses.pauses;
    // The paused time is reported. Together with the sampled time, it is the time of the target.
    let missing_ms = pauses.paused_ns() as f64 / 1e6;
    assert!(missing_ms > 500.0, "{pauses:?}");
    let info = &saved.summary.info;
    let elapsed_ms = (info.end_ns - info.start_ns) as f64 / 1e6;
    assert!(saved.summary.cpu_ms < elapsed_ms, "{pauses:?}");
}

#[test]
fn all_outputs_report_an_incomplete_trace() {
    need_capture!();
    let _lock = exclusive();
    let target = shell(&[], BUSY);
    let directory = PublicDirectory::new();
    let options = ["-buffersize", "128K", "-freq", "4000"];
    let capture = directory.start(&[], &options, target.pid());
    wait_for_cpu_time(target.pid(), HALF_A_SECOND);
    // While perfcollect is stopped, the target has 2000 samples each time, so that records are lost.
    for _ in 0..2 {
        capture.signal(Signal::STOP);
        wait_for_cpu_time(target.pid(), HALF_A_SECOND);
        capture.signal(Signal::CONT);
        wait_for_cpu_time(target.pid(), HALF_A_SECOND);
    }
    interrupt_capture(capture).expect_status(POORER);
    let saved = Saved::open(directory.into_inner(), "x");
    let losses = &saved.summary.quality.losses;
    assert!(saved.summary.incomplete, "{losses:?}");
    assert!(losses.range().is_some_and(|(first, last)| first < last));
    assert!(has_notice(&saved, NoticeKind::RecordsLost));
    let marker = losses.incomplete_warning().unwrap();
    assert!(saved.svg().contains(&marker));
    let text = String::from_utf8_lossy(&saved.perf_text);
    let mut comments = text.lines().take_while(|line| line.starts_with('#'));
    assert!(comments.any(|line| line == format!("# {marker}")));
    // The comment is the end of an archive.
    assert!(fs::read(&saved.path).unwrap().ends_with(marker.as_bytes()));
    let view = run(
        Command::new(perfcollect()).arg("view").arg(&saved.path),
        LIMIT,
    );
    assert!(view.expect_success().stdout.contains(&marker));
    // PerfView must ignore the marker.
    support::expect_same_in_perfview(&saved);
}

#[test]
fn names_the_limit_of_open_files_once() {
    need_capture!();
    need_command!("setpriv");
    let program = need!(workloads::mixed());
    let runtime = need!(Runtime::newest());
    let _lock = exclusive();
    let targets = [0, 1].map(|_| {
        let mut command = runtime.command(&program);
        Workload::start(command.args(["--seconds", "600"]))
    });
    // Enough to sample every CPU, but not for all files with code. Else root could raise it.
    let cpus = std::thread::available_parallelism().unwrap().get();
    let limit = 40 + 3 * cpus;
    let script = format!("ulimit -n {limit}; exec \"$@\"");
    let without_resource = ["setpriv", "--bounding-set=-sys_resource"];
    let prefix = [&without_resource[..], &["sh", "-c", &script, "sh"]].concat();
    let directory = PublicDirectory::new();
    let mut command = directory.command(&prefix, &["-collectsec", "2"]);
    let finished = run(&mut command, LIMIT).expect_success();
    let remedy = "raise the limit of open files (ulimit -n)";
    assert_eq!(finished.stdout.matches(remedy).count(), 1, "{finished:?}");
    // Counted, or missing with a notice.
    assert!(finished.stdout.contains("events"), "{finished:?}");
    let all = finished.stdout + &finished.stderr;
    assert!(!all.contains("CAP_SYS_PTRACE"), "{all}");
    assert!(!all.contains("lists its methods"), "{all}");
    for target in targets {
        target.signal(rustix::process::Signal::KILL);
    }
}
