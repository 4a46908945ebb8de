//! For how long threads have not run, on the clocks of the scheduler.
//!
//! `/proc/PID/sched` has the time at which a thread last ran (`se.exec_start`), on a clock of the CPU that
//! it ran on: each CPU leaves out the time that interrupts and other guests of the host took from it
//! (`rq_clock_task` in the kernel). So the times of two CPUs cannot be compared, and the time now is read on
//! the same CPU.

use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::proc_fs::{age_of, read};
use super::thread_state::stat_fields;
use crate::trace::{Pid, Tid};

/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 4096;
/// Index of `starttime` and `processor` among the fields of /proc/PID/stat that follow the name.
const START_TIME: usize = 19;
const PROCESSOR: usize = 36;

/// The clocks of the CPUs that were needed so far.
#[derive(Default)]
pub struct SchedulerClock {
    /// Time on the clock of a CPU, and when that was. `None` if this thread may not run there.
    now: FxHashMap<usize, Option<(Duration, Instant)>>,
}

impl SchedulerClock {
    /// Returns for how long a thread has not run, without what was taken from its CPU meanwhile.
    ///
    /// Returns `None` without `CONFIG_SCHED_DEBUG`, if this thread may not run on that CPU, and if the other
    /// one has just moved to another CPU and has not run there: its time is 0 then.
    pub fn since_last_run(&mut self, pid: Pid, tid: Tid) -> Option<Duration> {
        let task = format!("/proc/{pid}/task/{tid}");
        let stat = read(format!("{task}/stat"), MAX_BYTES).ok()?;
        let mut fields = stat_fields(&stat)?;
        let started: u64 = fields.nth(START_TIME)?.parse().ok()?;
        let cpu = fields.nth(PROCESSOR - START_TIME - 1)?.parse().ok()?;
        let last = last_run(format!("{task}/sched"))?;
        let (then, at) = (*self.now.entry(cpu).or_insert_with(|| time_on(cpu)))?;
        let now = then.checked_add(at.elapsed())?;
        Some(now.saturating_sub(last).min(age_of(started)))
    }
}

/// Returns the time on the clock of a CPU: when this thread starts to run there.
fn time_on(cpu: usize) -> Option<(Duration, Instant)> {
    let allowed = sched_getaffinity(None).ok()?;
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        return None;
    }
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only).ok()?;
    let time = last_run("/proc/thread-self/sched".into());
    let at = Instant::now();
    let restored = sched_setaffinity(None, &allowed);
    restored.ok().and_then(|()| Some((time?, at)))
}

fn last_run(path: String) -> Option<Duration> {
    parse_last_run(&read(path, MAX_BYTES).ok()?)
}

/// Parses the line `se.exec_start : MILLISECONDS` of /proc/PID/sched. The first line has the name of
/// the thread.
fn parse_last_run(text: &[u8]) -> Option<Duration> {
    let lines = text.split(|byte| *byte == b'\n').skip(1);
    let mut values = lines.filter_map(|line| line.strip_prefix(b"se.exec_start"));
    let value = std::str::from_utf8(values.next()?).ok()?;
    let ms: f64 = value.split_once(':')?.1.trim().parse().ok()?;
    let time = Duration::try_from_secs_f64(ms / 1e3).ok()?;
    (!time.is_zero()).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_time() {
        let text = b"se.exec_start : 5 (7, #threads: 1)\n---\nse.exec_start   :   1500.5\n";
        assert_eq!(parse_last_run(text), Some(Duration::from_micros(1_500_500)));
        assert_eq!(parse_last_run(b"x\nse.exec_start : inf\n"), None);
        assert_eq!(parse_last_run(b"x\nse.exec_start : -1\n"), None);
        assert_eq!(parse_last_run(b"x\nse.exec_start : 0.000000\n"), None);
    }

    #[test]
    fn a_thread_that_sleeps_has_not_run_since() {
        let (sender, tids) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            sender.send(Tid(tid)).unwrap();
            ended.recv().unwrap_err();
        });
        let (pid, tid) = (Pid(std::process::id() as i32), tids.recv().unwrap());
        let (started, allowed) = (Instant::now(), sched_getaffinity(None).unwrap());
        std::thread::sleep(Duration::from_millis(400));
        let since = SchedulerClock::default().since_last_run(pid, tid);
        if std::path::Path::new("/proc/self/sched").exists() {
            let since = since.unwrap();
            // It cannot be longer. Other guests may have taken a part of it.
            assert!(
                since < started.elapsed() + Duration::from_millis(50),
                "{since:?}"
            );
            assert!(since > Duration::from_millis(20), "{since:?}");
        }
        assert_eq!(sched_getaffinity(None).unwrap(), allowed);
        drop(end);
        thread.join().unwrap();
        assert_eq!(
            SchedulerClock::default().since_last_run(Pid(i32::MAX), Tid(1)),
            None
        );
    }
}
