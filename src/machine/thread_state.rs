//! What a thread does at this moment, as /proc shows it without stopping the thread (proc(5)).

use std::io;

use super::proc_fs::{ProcError, read};
use super::system_call::SystemCall;
use crate::trace::{Pid, Tid};

/// Maximum size of a file that is read, in bytes.
const MAX_BYTES: u64 = 4096;
const MAX_STATUS_BYTES: u64 = 1 << 16;

/// Index of the CPU in /proc/PID/stat, after the name: `processor`.
const CPU_FIELD: usize = 36;

/// State of a thread in the scheduler: the third field of /proc/PID/stat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerState {
    /// On a CPU, or ready for one.
    Running,
    /// Waits, and a signal would wake it.
    Sleeping,
    /// Waits, and no signal wakes it: for a disk, mostly.
    Uninterruptible,
    /// A signal or a debugger has stopped it.
    Stopped,
    /// It has ended.
    Ended,
}

/// Where a thread that does not run has left user space: a line of /proc/PID/syscall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The system call that it has made. `None` if it is in a page fault or was stopped.
    pub call: Option<SystemCall>,
    /// Stack pointer of the user code.
    pub sp: u64,
    /// Instruction pointer of the user code.
    pub ip: u64,
}

/// How often a thread has left its CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// To wait for something.
    pub waits: u64,
    /// Because the scheduler took it.
    pub preemptions: u64,
}

/// Why it is unknown where a thread waits.
#[derive(Debug)]
pub enum NotBlocked {
    /// It runs, or is ready for a CPU.
    Runs,
    /// It is a thread of the kernel, or has ended.
    NoUserCode,
    /// The kernel does not permit to read it, or it has ended.
    Unreadable(io::Error),
}

impl Blocked {
    /// Reads where a thread waits.
    ///
    /// # Errors
    /// The thread does not wait, or cannot be read.
    pub fn of(pid: Pid, tid: Tid) -> Result<Self, NotBlocked> {
        let line = read(format!("/proc/{pid}/task/{tid}/syscall"), MAX_BYTES)
            .map_err(|ProcError::Read { source, .. }| NotBlocked::Unreadable(source))?;
        Self::of_line(&line)
    }

    /// Parses the line of the file.
    ///
    /// # Errors
    /// The thread does not wait, or is one of the kernel.
    pub fn of_line(line: &[u8]) -> Result<Self, NotBlocked> {
        match line.trim_ascii() {
            b"running" => Err(NotBlocked::Runs),
            line => Self::parse(line).ok_or(NotBlocked::NoUserCode),
        }
    }

    /// Parses `NUMBER ARGUMENT*6 SP IP`, or `-1 SP IP` outside of system calls.
    fn parse(line: &[u8]) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut words = line.split_ascii_whitespace();
        let number: i64 = words.next()?.parse().ok()?;
        let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        let call = match u64::try_from(number) {
            Err(_) => None,
            Ok(number) => {
                let mut arguments = [0; 6];
                for argument in &mut arguments {
                    *argument = word()?;
                }
                Some(SystemCall { number, arguments })
            }
        };
        let (sp, ip) = (word()?, word()?);
        // Threads of the kernel have neither.
        (sp != 0 || ip != 0).then_some(Self { call, sp, ip })
    }
}

impl SchedulerState {
    /// Reads the state of a thread. Returns `None` if it has ended.
    #[must_use]
    pub fn of(pid: Pid, tid: Tid) -> Option<Self> {
        let line = read(format!("/proc/{pid}/task/{tid}/stat"), MAX_BYTES).ok()?;
        Self::parse(&line)
    }

    /// Parses `TID (NAME) STATE ...`.
    fn parse(line: &[u8]) -> Option<Self> {
        Some(match stat_fields(line)?.next()? {
            "R" => Self::Running,
            "D" => Self::Uninterruptible,
            "T" | "t" => Self::Stopped,
            "Z" | "X" | "x" => Self::Ended,
            _ => Self::Sleeping,
        })
    }
}

/// Returns the CPU that a thread had last, or `None` if it has ended.
#[must_use]
pub fn last_cpu(pid: Pid, tid: Tid) -> Option<u32> {
    let line = read(format!("/proc/{pid}/task/{tid}/stat"), MAX_BYTES).ok()?;
    stat_fields(&line)?.nth(CPU_FIELD)?.parse().ok()
}

/// Returns the fields of /proc/PID/stat that follow the name, which may contain any character.
pub(super) fn stat_fields(line: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(line.get(name_end + 1..)?).ok()?;
    Some(fields.split_ascii_whitespace())
}

/// Returns whether a thread is one of the kernel, which has no code of a program.
#[must_use]
pub fn is_of_kernel(pid: Pid, tid: Tid) -> bool {
    // PF_KTHREAD of the kernel's include/linux/sched.h, in field 9 of proc_pid_stat(5).
    const OF_KERNEL: u64 = 0x20_0000;
    let line = read(format!("/proc/{pid}/task/{tid}/stat"), MAX_BYTES);
    let flags = line.ok().and_then(|line| {
        let flags = stat_fields(&line)?.nth(6)?;
        flags.parse::<u64>().ok()
    });
    flags.is_some_and(|flags| flags & OF_KERNEL != 0)
}

/// Returns the function of the kernel that a thread waits in, if the kernel permits to read it.
#[must_use]
pub fn kernel_function(pid: Pid, tid: Tid) -> Option<String> {
    let name = read(format!("/proc/{pid}/task/{tid}/wchan"), MAX_BYTES).ok()?;
    let name = String::from_utf8(name).ok()?;
    (!matches!(&*name, "" | "0")).then_some(name)
}

/// Returns the number of times that a thread got a CPU, or left it. It has not run while that is the same.
#[must_use]
pub fn time_slices(pid: Pid, tid: Tid) -> Option<u64> {
    let task = format!("/proc/{pid}/task/{tid}");
    let slices = read(format!("{task}/schedstat"), MAX_BYTES)
        .ok()
        .and_then(|line| {
            let line = std::str::from_utf8(&line).ok()?;
            line.split_ascii_whitespace().nth(2)?.parse().ok()
        });
    // Not every kernel counts them.
    slices.or_else(|| {
        let Switches { waits, preemptions } = Switches::of(tid)?;
        waits.checked_add(preemptions)
    })
}

impl Switches {
    /// Reads the counters of a thread.
    #[must_use]
    pub fn of(tid: Tid) -> Option<Self> {
        Self::parse(&read(format!("/proc/{tid}/status"), MAX_STATUS_BYTES).ok()?)
    }

    /// Parses the lines `voluntary_ctxt_switches: N` and `nonvoluntary_ctxt_switches: N`, the last ones of
    /// /proc/PID/status.
    fn parse(status: &[u8]) -> Option<Self> {
        let status = String::from_utf8_lossy(status);
        let value = |line: &str| {
            let (_, value) = line.split_once("voluntary_ctxt_switches:")?;
            value.trim().parse().ok()
        };
        let mut values = status.lines().rev().map_while(value);
        Some(Self {
            preemptions: values.next()?,
            waits: values.next()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_where_threads_wait() {
        let futex = b"202 0x7f00 0x189 0x0 0x0 0x0 0xffffffff 0x7ffe10 0x7f1234";
        let blocked = Blocked::parse(futex).unwrap();
        assert_eq!((blocked.sp, blocked.ip), (0x7ffe10, 0x7f1234));
        let call = blocked.call.unwrap();
        assert_eq!((call.number, call.arguments[1]), (202, 0x189));
        let stopped = Blocked::parse(b"-1 0x10 0x20").unwrap();
        assert_eq!((stopped.call, stopped.sp), (None, 0x10));
        for other in [
            &b""[..],
            b"running",
            b"202 0x1",
            b"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0",
            b"-1 10 20",
            b"\xff 0x1 0x2",
        ] {
            assert_eq!(Blocked::parse(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_name_does_not_change_the_state() {
        let state = |line: &str| SchedulerState::parse(line.as_bytes());
        assert_eq!(
            state("7 (a) R) S) D 1"),
            Some(SchedulerState::Uninterruptible)
        );
        assert_eq!(state("7 (x) R 1"), Some(SchedulerState::Running));
        assert_eq!(state("7 (x) t 1"), Some(SchedulerState::Stopped));
        assert_eq!(state("7 (x"), None);
        assert_eq!(state("7 (x)"), None);
    }

    #[test]
    fn switches_are_the_last_lines() {
        let status = b"Name:\tvoluntary_ctxt_switches: 9\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        let expected = Switches {
            waits: 3,
            preemptions: 4,
        };
        assert_eq!(Switches::parse(status), Some(expected));
        assert_eq!(Switches::parse(b"nonvoluntary_ctxt_switches:\t4\n"), None);
        assert_eq!(Switches::parse(b""), None);
        assert!(Switches::of(Tid(std::process::id() as i32)).is_some());
    }

    #[test]
    fn a_thread_has_one_of_the_cpus() {
        let tid = Tid(rustix::thread::gettid().as_raw_nonzero().get());
        let cpu = last_cpu(Pid(std::process::id() as i32), tid).unwrap();
        let all = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
        let last: u32 = all
            .trim()
            .rsplit(['-', ','])
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(cpu <= last, "{cpu} {all}");
    }

    #[test]
    fn reads_a_thread_that_sleeps() {
        let (sender, tids) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            sender
                .send(Tid(rustix::thread::gettid().as_raw_nonzero().get()))
                .unwrap();
            ended.recv().unwrap_err();
        });
        let (pid, tid) = (Pid(std::process::id() as i32), tids.recv().unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        let blocked = Blocked::of(pid, tid).unwrap();
        assert!(blocked.call.is_some() && blocked.sp > 0x1000);
        assert_eq!(SchedulerState::of(pid, tid), Some(SchedulerState::Sleeping));
        let slices = time_slices(pid, tid);
        assert!(slices.is_none() || slices == time_slices(pid, tid));
        drop(end);
        thread.join().unwrap();
    }
}
