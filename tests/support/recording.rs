//! Recordings of the installed perf.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use super::{Missing, workloads};

/// Whether recordings can be made here.
pub fn can_record() -> Result<(), Missing> {
    super::perf_script::can_run_perf().and_then(|()| super::can_capture())
}

/// `perf record OPTIONS -o FILE -- COMMAND`.
#[track_caller]
pub fn record<A: AsRef<OsStr>>(
    file: &Path,
    options: &[&str],
    command: impl IntoIterator<Item = A>,
) {
    let mut perf = perf_record(options);
    perf.arg("-o").arg(file).arg("--").args(command);
    run(perf.stdout(Stdio::null()));
}

/// The same through a pipe.
#[track_caller]
pub fn record_pipe<A: AsRef<OsStr>>(
    file: &Path,
    options: &[&str],
    command: impl IntoIterator<Item = A>,
) {
    let mut perf = perf_record(options);
    perf.args(["-o", "-", "--"]).args(command);
    run(perf.stdout(File::create(file).unwrap()));
}

/// Runs a shell script where tracefs is mounted, for the script alone. `false`: tracepoints cannot be recorded here.
pub fn run_with_tracefs(script: &str) -> bool {
    let mount = "mountpoint -q /sys/kernel/tracing || mount -t tracefs nodev /sys/kernel/tracing";
    let status = Command::new("unshare")
        .args(["-m", "sh", "-c", &format!("{{ {mount}; }} && {script}")])
        .output();
    status.is_ok_and(|output| output.status.success())
}

fn perf_record(options: &[&str]) -> Command {
    let mut perf = Command::new("perf");
    // A recording must not fill the cache of build ids in the home directory.
    perf.args(["record", "-q", "--no-buildid-cache", "--sample-cpu"])
        .args(options)
        .stderr(Stdio::piped());
    perf
}

#[track_caller]
fn run(perf: &mut Command) {
    let output = perf.spawn().unwrap().wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{perf:?}: {said}");
}

/// The C program of this name with a second of its shares, as words of a command.
pub fn native_words(name: &str) -> Result<Vec<String>, Missing> {
    let program = workloads::native(name)?.display().to_string();
    let words = [&*program, "--mode", "shares", "--seconds", "1"];
    Ok(words.map(str::to_owned).to_vec())
}
