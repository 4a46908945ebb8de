//! Running the binary under test.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use super::{
    Finished, Missing, POORER, Running, Saved, finish, run, start, wait_for_cpu_time, wait_until,
};

/// Much longer than any capture of a test on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
/// Of CAP_SYS_ADMIN and CAP_PERFMON either allows to sample the machine; see capabilities(7).
const MAY_SAMPLE: u64 = 1 << 21 | 1 << 38;

/// The binary under test.
pub fn perfcollect() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_perfcollect"))
}

/// Whether this machine and user can capture; not asked of the product, which must not be able to skip its own tests.
pub fn can_capture() -> Result<(), Missing> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .map(|hex| u64::from_str_radix(hex.trim(), 16).unwrap());
    if !rustix::process::geteuid().is_root() {
        return Err(Missing::Root);
    }
    let has_perf_events = Path::new("/proc/sys/kernel/perf_event_paranoid").exists();
    match has_perf_events && capabilities.unwrap() & MAY_SAMPLE != 0 {
        true => Ok(()),
        false => Err(Missing::PerfEvents),
    }
}

/// Runs perfcollect in a directory.
#[track_caller]
pub fn run_perfcollect<A: AsRef<OsStr>>(
    arguments: impl IntoIterator<Item = A>,
    directory: &Path,
    limit: Duration,
) -> Finished {
    run(
        Command::new(perfcollect())
            .args(arguments)
            .current_dir(directory),
        limit,
    )
}

/// A capture that must succeed, by what stands after its name on the command line. Its home is empty: in this user's, perf may have
/// kept the whole file of a program that is stripped here.
#[track_caller]
pub fn captured<A: AsRef<OsStr>>(arguments: impl IntoIterator<Item = A>) -> Saved {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "trace", "-quiet"])
        .args(arguments)
        .env("HOME", directory.path())
        .current_dir(&directory);
    let finished = run(&mut command, LIMIT);
    let is_poorer = finished.status.code() == Some(POORER);
    if !is_poorer {
        finished.expect_success();
    }
    let saved = Saved::open(directory, "trace");
    assert!(!is_poorer || saved.summary.quality.is_poorer_than_asked());
    saved
}

/// Starts a capture, without `-quiet`, and waits until sampling has started.
#[track_caller]
pub fn start_capture(command: &mut Command) -> Running {
    let capture = start(command);
    wait_until("the capture starts", || {
        let (errors, is_closed) = capture.errors();
        let has_started = errors.contains("Collection started");
        assert!(has_started || !is_closed, "{errors}");
        has_started
    });
    capture
}

/// Ends a capture as Ctrl-C does: the signal is also for the program that started perfcollect.
#[track_caller]
pub fn end_capture(capture: Running) -> Finished {
    interrupt_capture(capture).expect_trace()
}

/// [`end_capture`], for a capture whose trace may be poorer than what it was asked for.
#[track_caller]
pub fn interrupt_capture(capture: Running) -> Finished {
    capture.signal_group(Signal::INT);
    finish(capture, LIMIT)
}

/// A capture of a process while it uses this much CPU time, however long that takes.
#[track_caller]
pub fn captured_for(cpu: Duration, pid: u32, options: &[&str]) -> Saved {
    let process = pid.to_string();
    let options = [&["-pid", &process], options].concat();
    captured_during(&options, || wait_for_cpu_time(pid, cpu))
}

/// A capture that runs while `wait` does.
#[track_caller]
pub fn captured_during(options: &[&str], wait: impl FnOnce()) -> Saved {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command
        .args(["collect", "trace"])
        .args(options)
        .env("HOME", directory.path())
        .current_dir(&directory);
    let capture = start_capture(&mut command);
    wait();
    end_capture(capture);
    Saved::open(directory, "trace")
}

/// The samples under each path of a workload's mode are as many as the CPU it measured, but for chance: five standard
/// deviations, which a good capture exceeds once in a million.
#[track_caller]
pub fn expect_shares(saved: &Saved, mode: &Value) {
    let paths = mode["paths"].as_array().unwrap();
    let samples: Vec<u64> = paths
        .iter()
        .map(|path| {
            let wanted: Vec<&str> = path["frames"]
                .as_array()
                .unwrap()
                .iter()
                .map(|frame| frame.as_str().unwrap())
                .collect();
            saved.samples_under(&wanted)
        })
        .collect();
    let all: u64 = samples.iter().sum();
    assert!(all > 100, "{all} samples are too few to tell: {mode}");
    for (path, count) in paths.iter().zip(samples) {
        let share = path["measuredShare"].as_f64().unwrap();
        let sigma = (share * (1.0 - share) * all as f64).sqrt();
        let difference = count as f64 - share * all as f64;
        assert!(
            difference.abs() <= 5.0 * sigma,
            "{count} of {all} samples, {difference:+.0} with a standard deviation of {sigma:.0}: {path}"
        );
    }
}
