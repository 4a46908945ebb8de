//! Waits for what a test needs. A busy system makes a wait longer, not the test fail.

use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Much longer than any wait on a busy system.
const LIMIT: Duration = Duration::from_secs(600);
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition holds.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        sleep(INTERVAL);
    }
}

/// Returns the CPU time of a process, including its ended children. Fails if the process has ended.
#[track_caller]
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read(format!("/proc/{pid}/stat")).expect("the process is there");
    // The name of a process need not be UTF-8.
    let stat = String::from_utf8_lossy(&stat);
    let fields: Vec<_> = stat
        .rsplit_once(')')
        .expect("a name in parentheses")
        .1
        .split_whitespace()
        .collect();
    assert!(fields[0] != "Z", "process {pid} has ended");
    // utime, stime, cutime and cstime are the fields 14 to 17; a tick is 10 ms.
    let ticks = fields[11..15].iter().map(|ticks| ticks.parse::<u64>());
    Duration::from_millis(10 * ticks.map(|ticks| ticks.expect("a number")).sum::<u64>())
}

/// Waits until a process has used more CPU time, from now on.
#[track_caller]
pub fn wait_for_cpu_time(pid: u32, more: Duration) {
    let before = cpu_time(pid);
    wait_until("CPU time of the target", || cpu_time(pid) - before >= more);
}

/// Returns the children of a process's first thread.
pub fn children(pid: u32) -> Vec<u32> {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    let children = children.expect("the process is there");
    let pids = children.split_whitespace().map(|pid| pid.parse());
    pids.collect::<Result<_, _>>().expect("process ids")
}
