//! The spool seen from outside: captures that are killed, truncated, or run out of disk space.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::output::spool_file::spool_path;
use perfcollect::output::summary::Summary;
use perfcollect::perf;
use perfcollect::trace::spool::{SpoolRow, SpoolWriter};
use perfcollect::trace::{
    Blocked, CodeAddress, FrameId, Header, Losses, Nanos, NoticeKind, Pid, ProcessId, RawTrace,
    Sample, StackId, ThreadId, Tid,
};
use rustix::process::Signal;
use support::random::Random;
use support::{
    Missing, POORER, Running, Runtime, Workload, cpu_time, end_capture, file_names, finish,
    perfcollect, run, run_perfcollect, start_capture, wait_for_cpu_time, wait_until, workloads,
};

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
const KILLS: usize = 20;
/// Maximum of the median time between the last sample in a spool and the kill. The spool is written
/// twice a second.
const MAX_TYPICAL_LAG: Duration = Duration::from_secs(1);
/// Maximum size of a spool per second of CPU time; measured: 5 to 20 KB.
const MAX_BYTES_PER_CPU_SECOND: f64 = 100e3;

/// Checks that all samples of `earlier` are the first samples of `now`.
#[track_caller]
fn expect_prefix(earlier: &RawTrace, now: &RawTrace) {
    let first = now.samples.iter().take(earlier.samples.len());
    assert!(earlier.samples.iter().eq(first));
}

/// Returns numbers that are different in every run.
fn random() -> Random {
    let seed = perf::now().0 | 1;
    println!("seed {seed}");
    Random(seed)
}

/// Starts a capture of a process and waits until sampling has started.
fn collect(directory: &Path, name: &str, pid: u32) -> Running {
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", name, "-pid", &pid.to_string()])
        .current_dir(directory);
    start_capture(&mut command)
}

/// Waits until there are samples in a spool. It is written twice a second.
fn wait_for_samples(spool: &Path) {
    wait_until("samples in the spool", || {
        RawTrace::read(File::open(spool).unwrap()).is_ok_and(|trace| !trace.samples.is_empty())
    });
}

fn kill(capture: Running) {
    capture.signal(Signal::KILL);
    assert!(!finish(capture, LIMIT).status.success());
}

fn read(spool: &Path) -> RawTrace {
    RawTrace::read(File::open(spool).unwrap()).unwrap()
}

fn entry(directory: &Path, name: &str, entry: &str) -> Vec<u8> {
    let archive = fs::read(directory.join(format!("{name}.trace.zip"))).unwrap();
    support::zip::entry(&archive, &format!("{name}.trace/{entry}"))
}

fn summary(directory: &Path, name: &str) -> Summary {
    serde_json::from_slice(&entry(directory, name, "summary.json")).unwrap()
}

#[track_caller]
fn expect_named(summary: &Summary) {
    let named = |name: &str| summary.methods.iter().any(|method| method.name == name);
    assert!(named("work50") && named("shares"), "{:#?}", summary.methods);
}

#[test]
#[ignore = "slow"]
fn recovers_captures_killed_at_any_moment() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let mut random = random();
    let mut all_missing = Vec::new();
    for number in 0..KILLS {
        let name = format!("k{number}");
        let spool = spool_path(&directory.join(&name));
        let capture = collect(directory, &name, busy.pid());
        let before = cpu_time(busy.pid());
        wait_for_samples(&spool);
        let alive = Duration::from_millis(700 + random.below(1800));
        sleep(alive / 2);
        let halfway = directory.join("halfway");
        fs::copy(&spool, &halfway).unwrap();
        sleep(alive / 2);
        let just_before = directory.join("just-before");
        fs::copy(&spool, &just_before).unwrap();
        kill(capture);
        // In this order, a delay between the two makes only `missing` longer.
        let (used, killed) = (cpu_time(busy.pid()) - before, perf::now());

        // Data that was on disk earlier is the start of the current file.
        let now = read(&spool);
        for earlier in [&halfway, &just_before] {
            let earlier = read(earlier);
            expect_prefix(&earlier, &now);
            assert_eq!(earlier.frames[..], now.frames[..earlier.frames.len()]);
        }
        let last = now.samples.iter().last().expect("samples").time;
        let missing = Duration::from_nanos(killed.0 - last.0);
        all_missing.push(missing);

        let output = run_perfcollect(["recover", &name], directory, LIMIT).expect_success();
        assert!(
            output.stdout.contains("recovered from the spool"),
            "{}",
            output.stdout
        );
        assert!(!spool.exists());
        let summary = summary(directory, &name);
        assert_eq!(summary.samples, now.samples.len() as u64);
        let quality = summary.quality.stacks;
        assert_eq!(quality.samples(), summary.samples);
        expect_named(&summary);
        println!(
            "killed after {alive:?}: {} samples, the last {missing:?} before",
            summary.samples
        );
        // All of the CPU time, except the lost end and the moment before the start of sampling.
        let sampled = Duration::from_secs_f64(summary.cpu_ms / 1e3);
        let least = used.saturating_sub(missing + Duration::from_millis(300));
        assert!(
            least <= sampled,
            "the samples contain {sampled:?}, the program ran {used:?}"
        );
    }
    // A busy system may delay any single write, but not most of them: perfcollect sleeps most of
    // the time, so the kernel runs it soon after it wakes up.
    all_missing.sort_unstable();
    let typical = all_missing[KILLS / 2];
    assert!(typical < MAX_TYPICAL_LAG, "{all_missing:?}");
}

#[test]
#[ignore = "slow"]
fn recovers_spools_truncated_at_any_length() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let capture = collect(directory, "whole", busy.pid());
    wait_for_cpu_time(busy.pid(), Duration::from_secs(4));
    kill(capture);
    let whole = fs::read(spool_path(&directory.join("whole"))).unwrap();
    let all = read(&spool_path(&directory.join("whole")));
    let mut random = random();
    let mut lengths: Vec<_> = (0..12).map(|_| random.below(whole.len() as u64)).collect();
    lengths.extend([0, 10]);
    lengths.sort_unstable();
    let mut samples = 0;
    for (number, len) in lengths.into_iter().enumerate() {
        let name = format!("truncated{number}");
        let spool = spool_path(&directory.join(&name));
        fs::write(&spool, &whole[..len as usize]).unwrap();
        let expected = RawTrace::read(&whole[..len as usize]).map_or(0, |truncated| {
            expect_prefix(&truncated, &all);
            truncated.samples.len() as u64
        });
        assert!(expected >= samples);
        samples = expected;
        let output = run_perfcollect(["recover", &name], directory, LIMIT);
        if expected > 0 {
            output.expect_success();
            let summary = summary(directory, &name);
            assert_eq!(summary.samples, expected);
            expect_named(&summary);
        } else {
            assert_eq!(output.status.code(), Some(1));
            assert!(output.stderr.contains(".trace.spool"), "{}", output.stderr);
        }
        assert_eq!(spool.exists(), expected == 0);
    }
    assert!(samples > 0, "no truncated spool contained the first sample");
}

/// Writes the spool of a killed capture of one thread, with these rows at its end.
fn forge(spool: &Path, rows: &[SpoolRow<'_>]) {
    let mut writer = SpoolWriter::new(File::create(spool).unwrap(), &Header::default());
    writer.put(&SpoolRow::Process {
        pid: Pid(1),
        name: b"forged",
        command_line: b"",
    });
    writer.put(&SpoolRow::Thread {
        process: ProcessId(0),
        tid: Tid(1),
        name: b"forged",
    });
    writer.put(&SpoolRow::Frame(CodeAddress::Blocked(Blocked::Ready)));
    writer.put(&SpoolRow::Node(StackId::EMPTY, FrameId(0)));
    rows.iter().for_each(|row| writer.put(row));
    let end = writer.finish(Nanos(1_000_000_000), &Losses::default());
    assert!(end.error.is_none());
}

/// Sums of these times and weights do not fit in 64 bits.
#[test]
fn recovers_forged_times() {
    let row = |time, weight| Sample {
        time: Nanos(time),
        weight: Nanos(weight),
        thread: ThreadId(0),
        stack: StackId(0),
        ..Sample::default()
    };
    let end = u64::MAX;
    let waits = [(end, end), (end, end), (end - 5, end / 2), (7, 3), (3, 3)];
    let mut rows: Vec<_> = waits
        .map(|(time, weight)| SpoolRow::Blocked(row(time, weight)))
        .into();
    let samples = [(end / 2, 100_000_000_000), (end, 100_000_000_000), (2, 5)];
    rows.extend(samples.map(|(time, weight)| SpoolRow::Sample(row(time, weight))));
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let spool = spool_path(&directory.join("forged"));
    forge(&spool, &rows);
    let arguments = ["recover", "forged", "-quiet"];
    run_perfcollect(arguments, directory, LIMIT).expect_success();
    let summary = summary(directory, "forged");
    assert_eq!(summary.samples, samples.len() as u64);
    let ms = end as f64 / 1e6;
    assert!((summary.thread_time.unwrap().ms - ms).abs() < ms / 1e6);
    // A weight that is impossible ends the spool.
    rows.insert(0, SpoolRow::Sample(row(1, 1)));
    rows.insert(1, SpoolRow::Blocked(row(1, end)));
    forge(&spool, &rows);
    let arguments = ["recover", "forged", "-force"];
    let output = run_perfcollect(arguments, directory, LIMIT).expect_success();
    let why = "the weight of a sample is out of range";
    assert!(output.stdout.contains(why), "{}", output.stdout);
}

#[test]
fn reports_running_and_leftover_spools() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let capture = collect(directory, "x", busy.pid());
    let process = format!("process {}", capture.pid());
    for arguments in [&["recover", "x"][..], &["collect", "x", "-force"]] {
        let output = run_perfcollect(arguments, directory, LIMIT);
        assert_eq!(output.status.code(), Some(1));
        assert!(output.stderr.contains("is running"), "{}", output.stderr);
        assert!(output.stderr.contains(&process), "{}", output.stderr);
    }
    // Some 500 samples, and the next write to the spool.
    wait_for_cpu_time(busy.pid(), Duration::from_millis(500));
    let spool = spool_path(&directory.join("x"));
    let len = || fs::metadata(&spool).unwrap().len();
    let before = len();
    wait_until("the spool grows", || len() > before);
    kill(capture);
    assert_eq!(file_names(directory), [".x.trace.spool"]);

    let output = run_perfcollect(["collect", "x", "-collectsec", "0.2"], directory, LIMIT);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        output.stderr.contains("`perfcollect recover x`"),
        "{}",
        output.stderr
    );
    fs::create_dir(directory.join("other")).unwrap();
    let arguments = ["stop", "x", "-o", "other/y", "-quiet"];
    run_perfcollect(arguments, directory, LIMIT).expect_success();
    assert_eq!(file_names(directory), ["other"]);
    expect_named(&summary(&directory.join("other"), "y"));
    let output = run_perfcollect(["recover", "x"], directory, LIMIT);
    assert!(
        output.stderr.contains("no capture of this name"),
        "{}",
        output.stderr
    );

    // -force discards the leftover spool of an earlier capture.
    let left = collect(directory, "x", busy.pid());
    kill(left);
    let pid = busy.pid().to_string();
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-force", "-pid", &pid])
        .current_dir(directory);
    let capture = start_capture(&mut command);
    wait_for_cpu_time(busy.pid(), Duration::from_millis(500));
    end_capture(capture);
    assert_eq!(
        file_names(directory),
        ["other", "x.flamegraph.svg", "x.nettrace", "x.trace.zip"]
    );
}

/// Anyone who may write into the directory can take a name of the trace meanwhile.
#[test]
fn recovers_the_results_of_a_capture_whose_files_could_not_be_written() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let pid = busy.pid().to_string();
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "x", "-system", "-pid", &pid])
        .current_dir(directory);
    let capture = start_capture(&mut command);
    wait_for_cpu_time(busy.pid(), Duration::from_millis(100));
    fs::write(directory.join("x.nettrace"), "other").unwrap();
    capture.signal(Signal::INT);
    let ended = finish(capture, LIMIT);
    assert_eq!(ended.status.code(), Some(1));
    assert!(
        ended.stderr.contains("perfcollect recover x"),
        "{}",
        ended.stderr
    );
    let arguments = ["recover", "x", "-o", "y", "-quiet"];
    run_perfcollect(arguments, directory, LIMIT).expect_success();
    let info = summary(directory, "y").info;
    assert_eq!(info.end, "signal");
    assert!(info.counters.is_some() && info.cpu_pressure.is_some());
    assert_eq!(info.memory[0].pid, busy.pid() as i32);
}

#[test]
#[ignore = "slow"]
fn full_disk_ends_the_capture_without_data_loss() {
    need_capture!();
    let busy = need!(Workload::busy());
    if run(Command::new("unshare").args(["-m", "true"]), LIMIT)
        .status
        .code()
        != Some(0)
    {
        skip!(Missing::Unshare("-m"));
    }
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    fs::create_dir(directory.join("small")).unwrap();
    // The mount disappears with the shell.
    let script = "mount -t tmpfs -o size=64k none small && cd small || exit 9; \
        \"$0\" collect full -freq 5000 -collectsec 500 -maxsize 0 -pid $1; echo status $?; ls -A; \
        \"$0\" recover full -o ../saved && ls -A";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(perfcollect())
        .arg(busy.pid().to_string())
        .current_dir(directory);
    let start = Instant::now();
    let output = run(&mut command, LIMIT).expect_success();
    assert!(
        start.elapsed() < Duration::from_secs(450),
        "{:?}",
        start.elapsed()
    );
    println!("{}", output.stderr);
    assert!(
        output.stdout.starts_with("status 1\n.full.trace.spool\n"),
        "{}",
        output.stdout
    );
    assert!(
        output.stderr.contains("the spool cannot grow"),
        "{}",
        output.stderr
    );
    let kept = "no space left for full.flamegraph.svg";
    assert!(output.stderr.contains(kept), "{}", output.stderr);
    assert!(
        output.stderr.contains("`perfcollect recover full -o "),
        "{}",
        output.stderr
    );
    let summary = summary(directory, "saved");
    assert!(summary.samples > 1000, "{}", summary.samples);
    expect_named(&summary);
}

#[test]
fn the_size_limit_includes_the_trace_and_ends_the_capture() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let pid = busy.pid().to_string();
    let options = ["-freq", "5000", "-collectsec", "500", "-maxsize", "3M"];
    let arguments = [&["collect", "small", "-pid", &pid], &options[..]].concat();
    let output = run_perfcollect(arguments, directory, LIMIT);
    let said = &output.stderr;
    // The trace lacks what was asked for.
    assert_eq!(output.status.code(), Some(POORER), "{said}");
    assert!(
        said.contains(" It also stops before its files need 3 MiB (-maxsize)."),
        "{said}"
    );
    let why = "-maxsize 3 MiB reached: ";
    assert!(
        said.contains(&format!("...STOPPED (space on the disk: {why}")),
        "{said}"
    );
    let notice = format!("the capture ended early: {why}");
    assert!(output.stdout.contains(&notice), "{}", output.stdout);
    let files = fs::read_dir(directory).unwrap();
    let bytes: u64 = files
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!((100_000..3 << 20).contains(&bytes), "{bytes}");
    let summary = summary(directory, "small");
    assert!(summary.samples > 1000, "{}", summary.samples);
    let notices = summary.quality.notices.iter();
    let kinds: Vec<NoticeKind> = notices.map(|notice| notice.kind).collect();
    assert!(kinds.contains(&NoticeKind::DiskSpace), "{kinds:?}");
}

/// Another program fills the disk while perfcollect captures.
#[test]
fn the_trace_fits_on_a_disk_that_another_program_fills() {
    need_capture!();
    let busy = need!(Workload::busy());
    let can_mount = run(Command::new("unshare").args(["-m", "true"]), LIMIT);
    if can_mount.status.code() != Some(0) {
        skip!(Missing::Unshare("-m"));
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=32m none . && cd \"$PWD\" || exit 9; \
        (until [ -s .x.trace.spool ]; do sleep 0.1; done; head -c 30M /dev/zero > other) & \
        \"$0\" collect x -collectsec 500 -pid $1 > report; echo status $?; rm report; ls -A";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(perfcollect())
        .arg(busy.pid().to_string())
        .current_dir(&directory);
    let output = run(&mut command, LIMIT).expect_success();
    assert_eq!(
        output.stdout,
        "status 3\nother\nx.flamegraph.svg\nx.nettrace\nx.trace.zip\n"
    );
    let why = "...STOPPED (space on the disk: only ";
    assert!(output.stderr.contains(why), "{}", output.stderr);
}

/// The command inherits the limit. Its signal kills processes that do not handle it.
#[test]
fn file_size_limit_acts_like_a_full_disk() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let script =
        "ulimit -f 64; exec \"$0\" collect limited -freq 5000 -collectsec 500 -pid $1 -quiet";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(perfcollect())
        .arg(busy.pid().to_string())
        .current_dir(directory);
    let output = run(&mut command, LIMIT);
    assert_eq!(output.status.code(), Some(1), "{}", output.stderr);
    assert!(
        output.stderr.contains("`perfcollect recover limited"),
        "{}",
        output.stderr
    );
    run_perfcollect(["recover", "limited", "-quiet"], directory, LIMIT).expect_success();
    assert!(summary(directory, "limited").samples > 100);
}

/// The command starts with the signal dispositions of a shell.
#[test]
fn command_inherits_default_disposition_of_sigxfsz() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let signals = "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; grep SigIgn /proc/self/status";
    let arguments = ["collect", "x", "-quiet", "--", "sh", "-c", signals];
    let output = run_perfcollect(arguments, directory.path(), LIMIT).expect_success();
    let ignored = output.stdout.trim().rsplit('\t').next().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored >> (25 - 1) & 1, 0, "SIGXFSZ");
}

/// Returns the size of the spool in bytes and the capture's CPU time in seconds, from the log.
fn rate(directory: &Path, name: &str) -> (f64, f64) {
    let log = String::from_utf8(entry(directory, name, "perfcollect.log")).unwrap();
    let line = log
        .lines()
        .find(|line| line.starts_with("spool: "))
        .unwrap();
    let bytes = line.split(' ').nth(1).unwrap().parse().unwrap();
    println!("{name}: {line}");
    (bytes, summary(directory, name).cpu_ms / 1e3)
}

#[test]
fn spool_stays_small_on_a_busy_cpu() {
    need_capture!();
    let directory = tempfile::tempdir().unwrap();
    let mut targets: Vec<(&str, Command)> = Vec::new();
    if let Ok(program) = workloads::native("native-nofp") {
        let mut command = Command::new(program);
        command.args(["--mode", "all", "--cpu-seconds", "4"]);
        targets.push(("native", command));
    }
    if let (Ok(runtime), Ok(program)) = (Runtime::newest(), workloads::mixed()) {
        let mut command = runtime.command(&program);
        command.args(["--cpu-seconds", "4"]);
        targets.push(("dotnet", command));
    }
    if targets.is_empty() {
        skip!(Missing::Cached("built".into()));
    }
    for (name, target) in targets {
        let words: Vec<PathBuf> = std::iter::once(target.get_program())
            .chain(target.get_args())
            .map(PathBuf::from)
            .collect();
        let mut command = Command::new(perfcollect());
        command
            .args(["collect", name, "-quiet", "--"])
            .args(words)
            .env("DOTNET_ROLL_FORWARD", "LatestMajor")
            .current_dir(&directory);
        run(&mut command, LIMIT).expect_success();
        let (bytes, seconds) = rate(directory.path(), name);
        assert!(seconds > 0.5, "{name} was not busy: {seconds} s");
        assert!(
            bytes < MAX_BYTES_PER_CPU_SECOND * seconds,
            "{name}: {bytes} bytes in {seconds} s"
        );
    }
}
