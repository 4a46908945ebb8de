//! A thread that is looked at again and again: its counters, and where it waits.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

use super::throttling::CpuWait;
use crate::machine::{self, Blocked, NotBlocked, Switches, ThreadCounters};
use crate::perf;
use crate::trace::{Nanos, Pid, Tid, lacks_descriptors};

/// Maximum size of the files, in bytes.
const MAX_BYTES: usize = 512;
/// The part of the descriptors that threads may take is one of so many: others are for files with code.
const FILES_SHARE: u64 = 2;
/// Files that are open for a thread.
const FILES: u64 = 2;
/// Least time without a CPU for which it matters why, in nanoseconds.
const MIN_WAITED_NS: u64 = 100_000;

/// Largest error of the time when a thread started, which the kernel cuts to its clock tick of 10 ms.
const START_ERROR_NS: u64 = 5_000_000;

/// Why a thread is not watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotWatched {
    /// It has ended.
    Ended,
    /// Too many files are open.
    TooManyFiles,
    /// The kernel does not permit to read it.
    Unreadable,
}

/// A thread whose files in /proc stay open, and what was found at the last look.
#[derive(Debug)]
pub(super) struct WatchedThread {
    pub(super) pid: Pid,
    counters_file: File,
    /// `None` if it may not be read.
    system_call: Option<File>,
    /// Counters and time of the last look, or else of its start or that of the capture.
    pub(super) counters: ThreadCounters,
    pub(super) last: Nanos,
    /// CPU time at the last look, in nanoseconds, and since which look it is that.
    pub(super) ran: (u64, Nanos),
    /// Time of the last look at which a wait for a CPU had ended.
    pub(super) last_wait: Nanos,
    /// CPU that it had last, if it has a CPU limit.
    cpu: Option<u32>,
    /// How often it had left its CPU when that was last read.
    switches: Option<Switches>,
    /// How often it left it between the last two reads that differed.
    last_switches: Option<Switches>,
    /// Time of the last look that reported it.
    pub(super) reported: Nanos,
    /// Whether the next look reports it, even if it has not run.
    pub(super) is_due: bool,
    pub(super) has_reported: bool,
    /// Whether the memory map does not have its stack yet.
    pub(super) lacks_stack: bool,
    /// Address of the .NET monitor that it waited for when it last did.
    pub(super) monitor: Option<u64>,
}

impl WatchedThread {
    /// Opens the files of a thread. One that is new counts from its start.
    ///
    /// # Errors
    /// The thread has ended, or its counters cannot be read.
    pub(super) fn open(pid: Pid, tid: Tid, capture_start: Nanos) -> Result<Self, NotWatched> {
        let open = |name: &str| open(&format!("/proc/{pid}/task/{tid}/{name}"));
        let counters_file = open("schedstat")?;
        let counters = counters(&counters_file).ok_or(NotWatched::Ended)?;
        let system_call = match open("syscall") {
            Ok(file) => Some(file),
            Err(NotWatched::Unreadable) => None,
            Err(error) => return Err(error),
        };
        let now = perf::now();
        let start = started(pid, tid, now)
            .filter(|start| start.0.saturating_add(START_ERROR_NS) > capture_start.0);
        let (counters, last) = match start {
            Some(start) => (ThreadCounters::default(), start.max(capture_start)),
            None => (counters, now),
        };
        Ok(Self {
            pid,
            counters_file,
            system_call,
            counters,
            last,
            ran: (counters.ran_ns, now),
            last_wait: Nanos(0),
            cpu: None,
            switches: None,
            last_switches: None,
            reported: last,
            is_due: true,
            has_reported: false,
            lacks_stack: false,
            monitor: None,
        })
    }

    /// Counts from now on.
    pub(super) fn begin(&mut self) {
        if let Some(counters) = self.read_counters() {
            let now = perf::now();
            self.counters = counters;
            self.ran = (counters.ran_ns, now);
            (self.last, self.reported) = (now, now);
        }
    }

    /// Reads its counters. Returns `None` if it has ended.
    pub(super) fn read_counters(&self) -> Option<ThreadCounters> {
        counters(&self.counters_file)
    }

    /// Returns its wait for a CPU that ended since the last look, with these counters now. `None` if it is too short
    /// to matter.
    pub(super) fn cpu_wait(&self, now: ThreadCounters) -> Option<CpuWait> {
        let ns = now.waited_ns.saturating_sub(self.counters.waited_ns);
        (ns >= MIN_WAITED_NS).then_some(CpuWait {
            ns,
            last: self.last,
            before: self.last_wait,
            cpu: self.cpu,
        })
    }

    /// Reads the CPU that it has, or had last.
    pub(super) fn read_cpu(&mut self, tid: Tid) {
        self.cpu = machine::last_cpu(self.pid, tid);
    }

    /// Returns how often it has left its CPU since the last call at which it had.
    pub(super) fn switches(&mut self, tid: Tid) -> Option<Switches> {
        let now = Switches::of(tid)?;
        // At first, those of all its life.
        let last = self.switches.replace(now).unwrap_or_default();
        let since = Switches {
            waits: now.waits.saturating_sub(last.waits),
            preemptions: now.preemptions.saturating_sub(last.preemptions),
        };
        // A wait for a CPU may end long after the switch that it follows was counted.
        if since != Switches::default() {
            self.last_switches = Some(since);
        }
        self.last_switches
    }

    /// Reads where it waits.
    ///
    /// # Errors
    /// It does not wait, or cannot be read.
    pub(super) fn blocked(&self) -> Result<Blocked, NotBlocked> {
        let mut buffer = [0; MAX_BYTES];
        let Some(file) = &self.system_call else {
            return Err(NotBlocked::Unreadable(
                std::io::ErrorKind::PermissionDenied.into(),
            ));
        };
        let length = file
            .read_at(&mut buffer, 0)
            .map_err(NotBlocked::Unreadable)?;
        Blocked::of_line(buffer.get(..length).unwrap_or_default())
    }
}

/// Returns the number of descriptors that threads may take.
fn max_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.unwrap_or(u64::MAX) / FILES_SHARE
}

/// Returns the number of threads whose files can be open at the same time.
pub(super) fn max_open() -> usize {
    usize::try_from(max_descriptors() / FILES).unwrap_or(usize::MAX)
}

/// Opens a file of a thread.
fn open(path: &str) -> Result<File, NotWatched> {
    let file = File::open(path).map_err(|error| NotWatched::of(&error))?;
    // The kernel assigns the lowest free number.
    match file.as_raw_fd() as u64 >= max_descriptors() {
        true => Err(NotWatched::TooManyFiles),
        false => Ok(file),
    }
}

impl NotWatched {
    /// Returns why, by the error of one of its files.
    pub(super) fn of(error: &io::Error) -> Self {
        match () {
            () if machine::has_ended(error) => Self::Ended,
            () if lacks_descriptors(error) => Self::TooManyFiles,
            () => Self::Unreadable,
        }
    }
}

fn counters(file: &File) -> Option<ThreadCounters> {
    let mut buffer = [0; MAX_BYTES];
    let length = file.read_at(&mut buffer, 0).ok()?;
    ThreadCounters::parse(std::str::from_utf8(buffer.get(..length)?).ok()?)
}

/// Returns when a thread started, to [`START_ERROR_NS`].
fn started(pid: Pid, tid: Tid, now: Nanos) -> Option<Nanos> {
    let ticks = machine::thread_start_ticks(pid, tid)?;
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    let boot = clock_gettime(ClockId::Boottime);
    let since_boot = boot.tv_sec as u128 * 1_000_000_000 + boot.tv_nsec as u128;
    let started =
        u128::from(ticks) * 1_000_000_000 / u128::from(per_second) + u128::from(START_ERROR_NS);
    let age = u64::try_from(since_boot.saturating_sub(started)).ok()?;
    Some(Nanos(now.0.saturating_sub(age)))
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn only_threads_that_have_ended_are_not_missed() {
        for (errno, expected) in [
            (Errno::NOENT, NotWatched::Ended),
            (Errno::SRCH, NotWatched::Ended),
            (Errno::MFILE, NotWatched::TooManyFiles),
            (Errno::NFILE, NotWatched::TooManyFiles),
            (Errno::ACCESS, NotWatched::Unreadable),
            (Errno::PERM, NotWatched::Unreadable),
        ] {
            assert_eq!(NotWatched::of(&errno.into()), expected, "{errno}");
        }
        let ended = WatchedThread::open(Pid(i32::MAX), Tid(i32::MAX), Nanos(0));
        assert_eq!(ended.err(), Some(NotWatched::Ended));
    }
}
