//! Identity of a process: start time, id in its namespace, mount namespace.

use std::fmt::Display;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;

/// Returns when a process started, in clock ticks since boot.
///
/// Together with the id, this identifies a process instance. Returns `None` if there is no such
/// process.
#[must_use]
pub fn start_ticks(pid: i32) -> Option<u64> {
    let [ticks] = stat_fields(pid, [22])?;
    Some(ticks)
}

/// Returns the start time of a thread of a process, in clock ticks since boot, or `None` if it has ended.
///
/// The file is that of the thread alone: /proc/TID/stat has sums over all threads of the process.
#[must_use]
pub fn thread_start_ticks(pid: i32, tid: i32) -> Option<u64> {
    let [ticks] = stat_fields(format_args!("{pid}/task/{tid}"), [22])?;
    Some(ticks)
}

/// Returns the CPU time of a process and its ended threads, in clock ticks, or `None` if it has ended.
#[must_use]
pub fn cpu_ticks(pid: i32) -> Option<u64> {
    let [user, system] = stat_fields(pid, [14, 15])?;
    user.checked_add(system)
}

/// Returns the addresses of the initial environment in the memory of a process: `NAME=value`
/// strings, each with a trailing NUL.
///
/// Returns `None` if there is no such process. The range is empty if the process may not be
/// inspected.
#[must_use]
pub fn environment_addresses(pid: i32) -> Option<Range<u64>> {
    let [start, end] = stat_fields(pid, [50, 51])?;
    Some(start..end)
}

/// Returns numeric fields of /proc/PID/stat by their number, see proc_pid_stat(5).
fn stat_fields<const N: usize>(process: impl Display, numbers: [usize; N]) -> Option<[u64; N]> {
    let stat = fs::read(format!("/proc/{process}/stat")).ok()?;
    // The name, field 2, is in parentheses and may contain any character.
    let after_name = stat.iter().rposition(|&byte| byte == b')')? + 1;
    let words = str::from_utf8(stat.get(after_name..)?).ok()?;
    let words: Vec<&str> = words.split_ascii_whitespace().collect();
    let mut fields = [0; N];
    for (field, number) in fields.iter_mut().zip(numbers) {
        *field = words.get(number - 3)?.parse().ok()?;
    }
    Some(fields)
}

/// Returns the id of a process in its own pid namespace, or `None` if it has ended.
#[must_use]
pub fn namespace_pid(pid: i32) -> Option<i32> {
    field(pid, "NSpid:")?
        .split_ascii_whitespace()
        .last()?
        .parse()
        .ok()
}

/// Returns the user who owns the files that a process creates, or `None` if it has ended.
///
/// The files of a process in /proc may belong to root instead: those of one that cannot be dumped.
#[must_use]
pub fn file_owner(pid: i32) -> Option<u32> {
    user(pid, 3)
}

/// Returns the user who started a process (the real user id), or `None` if it has ended.
///
/// A program with the set-user-ID bit, such as `su`, has the rights of another user.
#[must_use]
pub fn real_user(pid: i32) -> Option<u32> {
    user(pid, 0)
}

/// Returns the real, effective, saved or file system user id of a process.
fn user(pid: i32, kind: usize) -> Option<u32> {
    field(pid, "Uid:")?
        .split_ascii_whitespace()
        .nth(kind)?
        .parse()
        .ok()
}

/// Returns a field of /proc/PID/status, see proc_pid_status(5).
pub(super) fn field(process: impl Display, name: &str) -> Option<String> {
    let status = fs::read(format!("/proc/{process}/status")).ok()?;
    let mut lines = status.split(|byte| *byte == b'\n');
    let value = lines.find_map(|line| line.strip_prefix(name.as_bytes()))?;
    Some(std::str::from_utf8(value).ok()?.to_owned())
}

/// Returns the inode of the mount namespace of a process.
///
/// # Errors
/// The process has ended, or may not be inspected.
pub fn mount_namespace(pid: i32) -> io::Result<u64> {
    namespace(pid, "mnt")
}

/// Returns whether the clock of start times and uptime is another for a process, because it is in
/// another time namespace.
#[must_use]
pub fn has_other_clock(pid: i32) -> bool {
    namespace(pid, "time").ok() != namespace("self", "time").ok()
}

/// Returns the inode of a namespace of a process.
fn namespace(process: impl Display, kind: &str) -> io::Result<u64> {
    Ok(fs::metadata(format!("/proc/{process}/ns/{kind}"))?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifies_the_current_process() {
        let me = std::process::id() as i32;
        assert!(start_ticks(me).is_some_and(|ticks| Some(ticks) >= start_ticks(1)));
        assert!(namespace_pid(me).is_some() && mount_namespace(me).is_ok());
        assert!(!has_other_clock(me));
        assert!(environment_addresses(me).is_some_and(|range| !range.is_empty()));
        assert!(start_ticks(i32::MAX).is_none() && namespace_pid(i32::MAX).is_none());
    }
}
