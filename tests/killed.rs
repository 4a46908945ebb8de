//! Commands that are killed, or have no memory, while they write a trace: each of its files is whole or absent, and
//! what was captured stays.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[macro_use]
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use perfcollect::output::spool_file::spool_path;
use perfcollect::trace::RawTrace;
use rustix::process::Signal;
use support::recording::{can_record, native_words, record};
use support::{
    Missing, Workload, finish, perfcollect, run, run_perfcollect, start_capture, unnamed_files,
    wait_for_cpu_time,
};
use tempfile::TempDir;

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
/// Kills of each command; PERFCOLLECT_KILLS is another number.
const KILLS: u32 = 20;
const OUTPUTS: [&str; 3] = ["out.flamegraph.svg", "out.nettrace", "out.trace.zip"];

/// A killed capture `out` of two seconds of a busy CPU.
struct KilledCapture {
    directory: TempDir,
    spool: PathBuf,
    /// The content of the spool.
    bytes: Vec<u8>,
}

impl KilledCapture {
    fn new() -> Result<Self, Missing> {
        let busy = Workload::busy()?;
        let directory = tempfile::tempdir().unwrap();
        let pid = busy.pid().to_string();
        let collect = ["collect", "out", "-freq", "5000", "-pid", &pid];
        let capture = start_capture(&mut command(directory.path(), &collect));
        wait_for_cpu_time(busy.pid(), Duration::from_secs(2));
        capture.signal(Signal::KILL);
        finish(capture, LIMIT);
        let spool = spool_path(&directory.path().join("out"));
        let bytes = fs::read(&spool).unwrap();
        Ok(Self {
            directory,
            spool,
            bytes,
        })
    }
}

/// Fails unless the files of the trace `out` that exist are whole. Returns whether all exist.
#[track_caller]
fn expect_whole(directory: &Path) -> bool {
    let there = OUTPUTS.map(|name| {
        let Ok(bytes) = fs::read(directory.join(name)) else {
            return false;
        };
        match name {
            "out.trace.zip" => assert!(!support::zip::unzip(&bytes).is_empty()),
            "out.nettrace" => assert_eq!(support::events::for_each_event(&bytes, |_| {}), None),
            _ => assert!(bytes.ends_with(b"</svg>"), "{name}"),
        }
        true
    });
    there == [true; 3]
}

/// Removes the files of the trace `out`.
fn remove_outputs(directory: &Path) {
    for name in OUTPUTS {
        let _ = fs::remove_file(directory.join(name));
    }
}

/// Runs a command in a directory, then kills it at moments that are spread over its time, and over that
/// in which it writes its files. `check` gets whether it was killed.
fn kill_often(directory: &Path, mut command: impl FnMut() -> Command, mut check: impl FnMut(bool)) {
    let directory = directory.canonicalize().unwrap();
    let start = Instant::now();
    run(&mut command(), LIMIT).expect_success();
    let usual = start.elapsed();
    check(false);
    let mut killed_while_writing = 0;
    let kills = std::env::var("PERFCOLLECT_KILLS").ok();
    let kills = kills.map_or(KILLS, |kills| kills.parse().unwrap());
    for turn in 0..kills {
        // Multiples of the golden ratio fill an interval evenly.
        let fraction = (f64::from(turn) * 0.618_034).fract();
        let mut command = command();
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let is_writing = || unnamed_files(child.id(), &directory) >= OUTPUTS.len();
        if turn % 2 == 0 {
            sleep(usual.mul_f64(fraction));
        } else {
            while !is_writing() && is_running(child.id()) {
                sleep(Duration::from_micros(100));
            }
            sleep(usual.mul_f64(fraction / 20.0));
        }
        killed_while_writing += u32::from(is_writing());
        child.kill().unwrap();
        child.wait().unwrap();
        check(true);
    }
    assert!(
        killed_while_writing > 0,
        "no kill came while the files were written"
    );
    println!("killed while writing: {killed_while_writing} of {kills}");
}

/// Returns whether a child has not ended.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Returns a command of perfcollect for a directory.
fn command(directory: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(perfcollect());
    command.args(words).current_dir(directory);
    command
}

#[test]
fn killed_recover_leaves_no_torn_file_and_keeps_the_spool() {
    need_capture!();
    let killed = need!(KilledCapture::new());
    let directory = killed.directory.path();
    let KilledCapture { spool, bytes, .. } = &killed;
    let samples = RawTrace::read(&bytes[..]).unwrap().samples.len();
    assert!(samples > 1000, "{samples}");
    let recover = || {
        remove_outputs(directory);
        fs::write(spool, bytes).unwrap();
        command(directory, &["recover", "out", "-quiet"])
    };
    kill_often(directory, recover, |_| {
        let is_complete = expect_whole(directory);
        assert!(is_complete || fs::read(spool).unwrap() == *bytes);
    });
    remove_outputs(directory);
    fs::write(spool, bytes).unwrap();
    run_perfcollect(["recover", "out", "-quiet"], directory, LIMIT).expect_success();
    assert!(expect_whole(directory));
}

#[test]
fn killed_convert_leaves_no_torn_file() {
    need!(can_record());
    let native = need!(native_words("native-fp"));
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let recording = directory.join("perf.data");
    record(&recording, &["-g", "-F", "5000"], &native);
    let convert = || {
        remove_outputs(directory);
        command(directory, &["convert", "perf.data", "-o", "out", "-quiet"])
    };
    kill_often(directory, convert, |was_killed| {
        assert!(expect_whole(directory) || was_killed);
    });
    assert!(recording.exists());
}

/// A capture that is killed has a spool with all that was captured, or its trace.
#[test]
fn killed_collect_leaves_no_torn_file_and_keeps_the_spool() {
    need_capture!();
    let busy = need!(Workload::busy());
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let pid = busy.pid().to_string();
    let spool = spool_path(&directory.join("out"));
    let collect = || {
        remove_outputs(directory);
        let options = ["-collectsec", "0.3", "-quiet", "-force", "-pid", &pid];
        command(directory, &[&["collect", "out"], &options[..]].concat())
    };
    let mut recovered = 0;
    kill_often(directory, collect, |was_killed| {
        let is_complete = expect_whole(directory);
        assert!(was_killed || is_complete && !spool.exists());
        let samples = fs::File::open(&spool)
            .ok()
            .and_then(|spool| RawTrace::read(spool).ok());
        if samples.is_some_and(|trace| !trace.samples.is_empty()) {
            let recover = ["recover", "out", "-quiet", "-force"];
            run_perfcollect(recover, directory, LIMIT).expect_success();
            assert!(expect_whole(directory) && !spool.exists());
            recovered += 1;
        }
    });
    assert!(recovered > 0, "no killed capture had samples");
}

/// With little memory, a command succeeds or says why it cannot, and what it has captured is kept.
#[test]
fn too_little_memory_leaves_no_torn_file_and_keeps_the_spool() {
    need_capture!();
    need_command!("setpriv");
    let killed = need!(KilledCapture::new());
    let directory = killed.directory.path();
    let KilledCapture { spool, bytes, .. } = &killed;
    let mut failed = 0;
    for mib in (16..40).chain([48, 64, 128, 512]) {
        remove_outputs(directory);
        fs::write(spool, bytes).unwrap();
        let limited = |words: &[&str]| {
            let limit = format!("ulimit -c 0; ulimit -v {}; exec \"$@\"", mib << 10);
            let mut shell = Command::new("setpriv");
            // Else perfcollect raises the limit.
            shell
                .args(["--bounding-set=-sys_resource", "sh", "-c", &limit, "sh"])
                .arg(perfcollect())
                .args(words)
                // Printing a backtrace takes memory, too.
                .env("RUST_BACKTRACE", "1")
                .current_dir(directory);
            run(&mut shell, LIMIT)
        };
        if !limited(&["--version"]).status.success() {
            println!("{mib} MiB: not enough to start");
            continue;
        }
        let finished = limited(&["recover", "out", "-quiet"]);
        let is_complete = expect_whole(directory);
        println!("{mib} MiB: {:?} {}", finished.status, finished.stderr);
        if finished.status.success() {
            assert!(is_complete && !spool.exists());
            continue;
        }
        failed += 1;
        assert!(fs::read(spool).unwrap() == *bytes);
        assert!(finished.stderr.ends_with('\n'));
        let last = finished.stderr.lines().last().unwrap_or_default();
        let remedy = "`perfcollect recover out`";
        assert!(
            last.starts_with("perfcollect: ") && last.contains(remedy),
            "{finished:?}"
        );
        assert!(
            finished.status.code().is_some(),
            "it was killed by a signal: {finished:?}"
        );
    }
    assert!(failed > 0, "the smallest limit was enough");
    assert!(!spool.exists(), "the largest limit was too little");
}
