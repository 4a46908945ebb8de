//! Times of threads, as the kernel's scheduler counts them (Documentation/scheduler/sched-stats.rst).

use std::io;

use super::proc_fs::{ProcError, read};
use crate::trace::{Pid, Tid};

/// Maximum size of the file, in bytes.
const MAX_BYTES: u64 = 256;

/// Times of a thread since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadTimes {
    /// Time on a CPU, in nanoseconds.
    pub ran_ns: u64,
    /// Time in which it was ready and had no CPU, in nanoseconds.
    pub waited_ns: u64,
}

impl ThreadTimes {
    /// Reads the times of a running thread.
    ///
    /// # Errors
    /// The thread has ended, or its file cannot be opened or is malformed.
    pub fn of(pid: Pid, tid: Tid) -> Result<Self, ProcError> {
        let path = format!("/proc/{pid}/task/{tid}/schedstat");
        let line = read(path.clone(), MAX_BYTES)?;
        let line = std::str::from_utf8(&line).ok();
        line.and_then(Self::parse).ok_or_else(|| ProcError::Read {
            path,
            source: io::ErrorKind::InvalidData.into(),
        })
    }

    /// Parses `time on a CPU, time on a run queue, number of time slices`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut number = || words.next()?.parse().ok();
        Some(Self {
            ran_ns: number()?,
            waited_ns: number()?,
        })
    }
}

/// Counters of a thread since its start: its times, and how often it got a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounters {
    /// Time on a CPU, in nanoseconds.
    pub ran_ns: u64,
    /// Time in which it was ready and had no CPU, in nanoseconds.
    pub waited_ns: u64,
    /// Number of time slices. It has not run while that is the same.
    pub slices: u64,
}

impl ThreadCounters {
    /// Parses the line of /proc/PID/schedstat.
    #[must_use]
    pub fn parse(line: &str) -> Option<Self> {
        let ThreadTimes { ran_ns, waited_ns } = ThreadTimes::parse(line)?;
        let slices = line.split_ascii_whitespace().nth(2)?.parse().ok()?;
        Some(Self {
            ran_ns,
            waited_ns,
            slices,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_line_of_the_kernel() {
        let times = ThreadTimes {
            ran_ns: 51_327,
            waited_ns: 211_851,
        };
        assert_eq!(ThreadTimes::parse("51327 211851 2\n"), Some(times));
        assert_eq!(ThreadTimes::parse("51327\n"), None);
        assert_eq!(ThreadTimes::parse("-1 2 3"), None);
    }
}
