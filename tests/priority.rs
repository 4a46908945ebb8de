//! The priority of the thread that reads the ring buffers.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::fs;
use std::process::{Command, Stdio};

use support::{Missing, end_capture, perfcollect, start_capture, wait_until};

/// Whether each session has its own share of the CPUs, as is usual.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";
/// Scheduling policy of `sched.h`.
const SCHED_RR: &str = "2";

/// Returns the scheduling policies of the threads of a process, see proc_pid_stat(5).
fn policies(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten();
    let stat = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("stat")).ok());
    // The name is in parentheses and may contain spaces; the policy is the 39th field after it.
    let policy = |stat: String| {
        stat.rsplit_once(')')?
            .1
            .split_whitespace()
            .nth(38)
            .map(str::to_owned)
    };
    stat.filter_map(policy).collect()
}

/// Busy loops, each in a session, which share the CPUs evenly with all of perfcollect.
struct Loops(Vec<std::process::Child>);

impl Loops {
    fn start(count: usize) -> Self {
        let start = |_| {
            let mut command = Command::new("setsid");
            command
                .args(["sh", "-c", "while :; do :; done"])
                .stdout(Stdio::null());
            command.spawn().unwrap()
        };
        Self((0..count).map(start).collect())
    }
}

impl Drop for Loops {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn ring_buffers_are_read_with_real_time_priority_on_a_crowded_machine() {
    need_capture!();
    let may = Command::new("chrt").args(["--rr", "1", "true"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        skip!(Missing::RealTime);
    }
    // Else the niceness is enough.
    if fs::write(AUTOGROUP, "1").is_err() {
        skip!(Missing::Writable(AUTOGROUP));
    }
    let cpus = std::thread::available_parallelism().unwrap().get();
    let loops = Loops::start(60 * cpus);
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(perfcollect());
    command.args(["collect", "x"]).current_dir(&directory);
    let capture = start_capture(&mut command);
    let is_real_time = || {
        let policies = policies(capture.pid());
        assert!(!policies.is_empty());
        policies.iter().any(|policy| policy == SCHED_RR)
    };
    wait_until("the real-time priority", is_real_time);
    drop(loops);
    wait_until("the usual scheduling", || !is_real_time());
    end_capture(capture);
}
