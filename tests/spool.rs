//! The spool from outside: captures that are killed, cut off, or run out of disk.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::output::spool_file::spool_path;
use perfcollect::output::summary::Summary;
use perfcollect::perf;
use perfcollect::trace::RawTrace;
use rustix::process::Signal;
use support::{
    Missing, Running, Runtime, Workload, finish, perfcollect, run, run_perfcollect, start,
    workloads,
};
use zip::ZipArchive;

const LIMIT: Duration = Duration::from_secs(60);
const KILLS: usize = 20;
/// The most a spool may take of the disk for each second of CPU time; measured 5 to 20 KB.
const MAX_BYTES_PER_CPU_SECOND: f64 = 100e3;

/// A program that keeps a CPU busy in functions with names.
fn busy() -> Result<Workload, Missing> {
    let program = workloads::native("native-fp")?;
    let mut command = Command::new(program);
    command.args(["--mode", "shares", "--seconds", "600"]);
    Ok(Workload::start(&mut command))
}

/// All samples of one are the first samples of the other.
#[track_caller]
fn expect_prefix(earlier: &RawTrace, now: &RawTrace) {
    let first = now.samples.iter().take(earlier.samples.len());
    assert!(earlier.samples.iter().eq(first));
}

/// Numbers without a pattern (xorshift), other ones in every run.
struct Random(u64);

impl Random {
    fn new() -> Self {
        let seed = perf::now().0 | 1;
        println!("seed {seed}");
        Self(seed)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Starts a capture of a process and waits until it has begun.
fn collect(folder: &Path, name: &str, pid: u32) -> Running {
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", name, "-pid", &pid.to_string()])
        .current_dir(folder);
    let capture = start(&mut command);
    let spool = spool_path(&folder.join(name));
    let begin = Instant::now();
    while fs::metadata(&spool).map_or(0, |file| file.len()) == 0 {
        assert!(begin.elapsed() < LIMIT, "the capture does not begin");
        sleep(Duration::from_millis(5));
    }
    capture
}

fn kill(capture: Running) {
    capture.signal(Signal::KILL);
    assert!(!finish(capture, LIMIT).status.success());
}

fn read(spool: &Path) -> RawTrace {
    RawTrace::read(File::open(spool).unwrap()).unwrap()
}

fn entry(folder: &Path, name: &str, entry: &str) -> Vec<u8> {
    let archive = File::open(folder.join(format!("{name}.trace.zip"))).unwrap();
    let mut archive = ZipArchive::new(archive).unwrap();
    let mut bytes = Vec::new();
    let mut found = archive.by_name(&format!("{name}.trace/{entry}")).unwrap();
    found.read_to_end(&mut bytes).unwrap();
    bytes
}

fn summary(folder: &Path, name: &str) -> Summary {
    serde_json::from_slice(&entry(folder, name, "summary.json")).unwrap()
}

#[track_caller]
fn expect_named(summary: &Summary) {
    let named = |name: &str| summary.methods.iter().any(|method| method.name == name);
    assert!(named("work50") && named("shares"), "{:#?}", summary.methods);
}

/// CPU time of a program's first thread.
fn cpu_time(pid: u32) -> Duration {
    let schedstat = fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
    let ns = schedstat.split(' ').next().unwrap();
    Duration::from_nanos(ns.parse().unwrap())
}

/// Names of what is in a folder.
fn listing(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
#[ignore = "slow"]
fn killed_at_any_moment() {
    need_capture!();
    let busy = need!(busy());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut random = Random::new();
    for number in 0..KILLS {
        let name = format!("k{number}");
        let spool = spool_path(&folder.join(&name));
        let capture = collect(folder, &name, busy.pid());
        let before = cpu_time(busy.pid());
        let alive = Duration::from_millis(700 + random.below(1800));
        sleep(alive / 2);
        let halfway = folder.join("halfway");
        fs::copy(&spool, &halfway).unwrap();
        sleep(alive / 2);
        kill(capture);
        let (killed, used) = (perf::now(), cpu_time(busy.pid()) - before);

        // What was on the disk earlier is the beginning of what is there now.
        let (earlier, now) = (read(&halfway), read(&spool));
        expect_prefix(&earlier, &now);
        assert_eq!(earlier.frames[..], now.frames[..earlier.frames.len()]);
        let last = now.samples.iter().last().expect("samples").time;
        let missing = Duration::from_nanos(killed.0 - last.0);
        assert!(
            missing < Duration::from_millis(1500),
            "the last {missing:?} are missing"
        );

        let said = run_perfcollect(["recover", &name], folder, LIMIT).expect_success();
        assert!(
            said.stdout.contains("recovered from the spool"),
            "{}",
            said.stdout
        );
        assert!(!spool.exists());
        let summary = summary(folder, &name);
        assert_eq!(summary.samples, now.samples.len() as u64);
        let quality = summary.quality.stacks;
        assert_eq!(quality.samples(), summary.samples);
        expect_named(&summary);
        println!(
            "killed after {alive:?}: {} samples, the last {missing:?} before",
            summary.samples
        );
        // All of its CPU time but for what is missing at the end, and the moment until sampling had begun.
        let told = Duration::from_secs_f64(summary.cpu_ms / 1e3);
        let least = used.saturating_sub(missing + Duration::from_millis(300));
        assert!(
            least <= told,
            "samples tell of {told:?}, the program ran {used:?}"
        );
    }
}

#[test]
fn cut_off_at_any_length() {
    need_capture!();
    let busy = need!(busy());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let capture = collect(folder, "whole", busy.pid());
    sleep(Duration::from_secs(4));
    kill(capture);
    let whole = fs::read(spool_path(&folder.join("whole"))).unwrap();
    let all = read(&spool_path(&folder.join("whole")));
    let mut random = Random::new();
    let mut lengths: Vec<_> = (0..12).map(|_| random.below(whole.len() as u64)).collect();
    lengths.extend([0, 10]);
    lengths.sort_unstable();
    let mut samples = 0;
    for (number, len) in lengths.into_iter().enumerate() {
        let name = format!("cut{number}");
        let spool = spool_path(&folder.join(&name));
        fs::write(&spool, &whole[..len as usize]).unwrap();
        let expected = RawTrace::read(&whole[..len as usize]).map_or(0, |cut| {
            expect_prefix(&cut, &all);
            cut.samples.len() as u64
        });
        assert!(expected >= samples);
        samples = expected;
        let said = run_perfcollect(["recover", &name], folder, LIMIT);
        if expected > 0 {
            said.expect_success();
            let summary = summary(folder, &name);
            assert_eq!(summary.samples, expected);
            expect_named(&summary);
        } else {
            assert_eq!(said.status.code(), Some(1));
            assert!(said.stderr.contains(".trace.spool"), "{}", said.stderr);
        }
        assert_eq!(spool.exists(), expected == 0);
    }
    assert!(samples > 0, "no cut was behind the first sample");
}

#[test]
fn a_running_or_left_spool_is_told_of() {
    need_capture!();
    let busy = need!(busy());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let capture = collect(folder, "x", busy.pid());
    let collector = format!("process {}", capture.pid());
    for arguments in [&["recover", "x"][..], &["collect", "x", "-force"]] {
        let said = run_perfcollect(arguments, folder, LIMIT);
        assert_eq!(said.status.code(), Some(1));
        assert!(said.stderr.contains("is running"), "{}", said.stderr);
        assert!(said.stderr.contains(&collector), "{}", said.stderr);
    }
    sleep(Duration::from_secs(1));
    kill(capture);
    assert_eq!(listing(folder), [".x.trace.spool"]);

    let said = run_perfcollect(["collect", "x", "-collectsec", "0.2"], folder, LIMIT);
    assert_eq!(said.status.code(), Some(1));
    assert!(
        said.stderr.contains("`perfcollect recover x`"),
        "{}",
        said.stderr
    );
    fs::create_dir(folder.join("other")).unwrap();
    let arguments = ["stop", "x", "-o", "other/y", "-quiet"];
    run_perfcollect(arguments, folder, LIMIT).expect_success();
    assert_eq!(listing(folder), ["other"]);
    expect_named(&summary(&folder.join("other"), "y"));
    let said = run_perfcollect(["recover", "x"], folder, LIMIT);
    assert!(
        said.stderr.contains("no capture of this name"),
        "{}",
        said.stderr
    );

    // -force discards what an earlier capture has left.
    let left = collect(folder, "x", busy.pid());
    kill(left);
    let pid = busy.pid().to_string();
    let arguments = [
        "collect",
        "x",
        "-force",
        "-quiet",
        "-collectsec",
        "0.5",
        "-pid",
        &pid,
    ];
    run_perfcollect(arguments, folder, LIMIT).expect_success();
    assert_eq!(
        listing(folder),
        ["other", "x.flamegraph.svg", "x.nettrace", "x.trace.zip"]
    );
}

#[test]
#[ignore = "slow"]
fn full_disk_ends_the_capture_and_costs_nothing() {
    need_capture!();
    let busy = need!(busy());
    if run(Command::new("unshare").args(["-m", "true"]), LIMIT)
        .status
        .code()
        != Some(0)
    {
        skip!(Missing::Unshare("-m"));
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    fs::create_dir(folder.join("small")).unwrap();
    // The mount is gone with the shell.
    let script = "mount -t tmpfs -o size=64k none small && cd small || exit 9; \
        \"$0\" collect full -freq 5000 -collectsec 50 -pid $1; echo status $?; ls -A; \
        \"$0\" recover full -o ../saved && ls -A";
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", script])
        .arg(perfcollect())
        .arg(busy.pid().to_string())
        .current_dir(folder);
    let begin = Instant::now();
    let said = run(&mut command, LIMIT).expect_success();
    assert!(
        begin.elapsed() < Duration::from_secs(45),
        "{:?}",
        begin.elapsed()
    );
    println!("{}", said.stderr);
    assert!(
        said.stdout.starts_with("status 1\n.full.trace.spool\n"),
        "{}",
        said.stdout
    );
    assert!(
        said.stderr.contains("the spool cannot grow"),
        "{}",
        said.stderr
    );
    let kept = "no space left for full.flamegraph.svg";
    assert!(said.stderr.contains(kept), "{}", said.stderr);
    assert!(
        said.stderr.contains("`perfcollect recover full -o "),
        "{}",
        said.stderr
    );
    let summary = summary(folder, "saved");
    assert!(summary.samples > 1000, "{}", summary.samples);
    expect_named(&summary);
}

/// What the log says: bytes of the spool, and the capture's CPU time in seconds.
/// The limit is inherited, and the signal that comes with it kills who does not take it.
#[test]
fn a_limit_of_file_sizes_is_as_a_full_disk() {
    need_capture!();
    let busy = need!(busy());
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script =
        "ulimit -f 64; exec \"$0\" collect limited -freq 5000 -collectsec 50 -pid $1 -quiet";
    let mut command = Command::new("sh");
    command
        .args(["-c", script])
        .arg(perfcollect())
        .arg(busy.pid().to_string())
        .current_dir(folder);
    let said = run(&mut command, LIMIT);
    assert_eq!(said.status.code(), Some(1), "{}", said.stderr);
    assert!(
        said.stderr.contains("`perfcollect recover limited"),
        "{}",
        said.stderr
    );
    run_perfcollect(["recover", "limited", "-quiet"], folder, LIMIT).expect_success();
    assert!(summary(folder, "limited").samples > 100);
}

/// As the command is started with the signals of a shell.
#[test]
fn a_command_takes_the_limit_of_file_sizes_as_ever() {
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let signals = "i=0; while [ $i -lt 99999 ]; do i=$((i+1)); done; grep SigIgn /proc/self/status";
    let arguments = ["collect", "x", "-quiet", "--", "sh", "-c", signals];
    let said = run_perfcollect(arguments, folder.path(), LIMIT).expect_success();
    let ignored = said.stdout.trim().rsplit('\t').next().unwrap();
    let ignored = u64::from_str_radix(ignored, 16).unwrap();
    assert_eq!(ignored >> (25 - 1) & 1, 0, "SIGXFSZ");
}

fn rate(folder: &Path, name: &str) -> (f64, f64) {
    let log = String::from_utf8(entry(folder, name, "perfcollect.log")).unwrap();
    let line = log
        .lines()
        .find(|line| line.starts_with("spool: "))
        .unwrap();
    let bytes = line.split(' ').nth(1).unwrap().parse().unwrap();
    println!("{name}: {line}");
    (bytes, summary(folder, name).cpu_ms / 1e3)
}

#[test]
fn a_busy_cpu_costs_little_of_the_disk() {
    need_capture!();
    let folder = tempfile::tempdir().unwrap();
    let mut targets: Vec<(&str, Command)> = Vec::new();
    if let Ok(program) = workloads::native("native-nofp") {
        let mut command = Command::new(program);
        command.args(["--mode", "all", "--seconds", "4"]);
        targets.push(("native", command));
    }
    if let (Ok(runtime), Ok(program)) = (Runtime::newest(), workloads::mixed()) {
        targets.push(("dotnet", runtime.command(&program)));
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
            .args(["collect", name, "-quiet", "-collectsec", "8", "--"])
            .args(words)
            .env("DOTNET_ROLL_FORWARD", "LatestMajor")
            .current_dir(&folder);
        run(&mut command, LIMIT).expect_success();
        let (bytes, seconds) = rate(folder.path(), name);
        assert!(seconds > 0.5, "{name} was not busy: {seconds} s");
        assert!(
            bytes < MAX_BYTES_PER_CPU_SECOND * seconds,
            "{name}: {bytes} bytes in {seconds} s"
        );
    }
}
