//! Reads /proc. Processes choose parts of the content: names, paths, arguments.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use perfcollect_symbols::memory::Memory;
use perfcollect_symbols::process;
use rustc_hash::{FxHashMap, FxHashSet};
use rustix::io::Errno;
use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::Pid as OsPid;
use rustix::time::{ClockId, clock_gettime};
use thiserror::Error;

use crate::trace::{Pid, Tid, lacks_descriptors};

/// Maximum bytes read from an environment.
const MAX_ENVIRONMENT_BYTES: u64 = 4 << 20;
/// Maximum bytes read from a command line.
const MAX_COMMAND_LINE_BYTES: u64 = 4096;
/// Maximum bytes read from the sizes of a process.
const MAX_STATM_BYTES: u64 = 256;

/// Error from reading /proc.
#[derive(Debug, Error)]
pub enum ProcError {
    /// A file or directory cannot be read.
    #[error("cannot read {path}: {source}")]
    Read {
        /// Path of the file or directory.
        path: String,
        /// Cause.
        source: io::Error,
    },
}

impl ProcError {
    /// Returns whether the process or thread has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let Self::Read { source, .. } = self;
        has_ended(source)
    }
}

/// Returns whether a process or thread has ended, by the error of one of its files.
#[must_use]
pub fn has_ended(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    matches!(errno, Some(Errno::NOENT | Errno::SRCH))
}

pub(super) fn read(path: String, limit: u64) -> Result<Vec<u8>, ProcError> {
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(|source| ProcError::Read { path, source })?;
    Ok(bytes)
}

/// Returns all process ids.
///
/// # Errors
/// /proc cannot be read.
pub fn pids() -> Result<Vec<Pid>, ProcError> {
    numeric_names("/proc".into()).map(|pids| pids.into_iter().map(Pid).collect())
}

/// Returns all threads of a process.
///
/// # Errors
/// The process has ended, or may not be read.
pub fn tids(pid: Pid) -> Result<Vec<Tid>, ProcError> {
    numeric_names(format!("/proc/{pid}/task")).map(|tids| tids.into_iter().map(Tid).collect())
}

/// Returns the running threads of processes.
pub fn threads(pids: impl IntoIterator<Item = Pid>) -> Vec<Tid> {
    pids.into_iter()
        .flat_map(|pid| tids(pid).unwrap_or_default())
        .collect()
}

fn numeric_names(path: String) -> Result<Vec<i32>, ProcError> {
    let entries = std::fs::read_dir(&path).map_err(|source| ProcError::Read { path, source })?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}

/// Returns whether a process exists.
#[must_use]
pub fn exists(pid: Pid) -> bool {
    std::fs::exists(format!("/proc/{pid}/task")).unwrap_or(false)
}

/// Returns whether a process is still running.
///
/// A main thread that has ended looks like a zombie while other threads still run. The id of an
/// ended process may be reused for a thread of another process.
#[must_use]
pub fn is_running(pid: Pid) -> bool {
    let status = match read_status(pid) {
        Ok(status) => status,
        // A signal needs no descriptor. It cannot tell a zombie.
        Err(ProcError::Read { source, .. }) if lacks_descriptors(&source) => {
            return takes_signals(pid);
        }
        Err(_) => return false,
    };
    let is_dead = field(&status, "State").is_none_or(|state| state.starts_with(['Z', 'X']));
    let threads = field(&status, "Threads").and_then(|count| count.parse().ok());
    let has_others = threads.is_some_and(|count: u32| count > 1);
    field(&status, "Tgid") == Some(&pid.to_string()) && (!is_dead || has_others)
}

fn takes_signals(pid: Pid) -> bool {
    let process = OsPid::from_raw(pid.0);
    process.is_some_and(|process| rustix::process::test_kill_process(process) != Err(Errno::SRCH))
}

/// Returns whether a process is not in /proc although it runs: that is mounted with `hidepid`.
#[must_use]
pub fn is_hidden(pid: Pid) -> bool {
    !exists(pid) && takes_signals(pid)
}

/// Returns whether /proc is that of another pid namespace: ids in it mean other processes than they do in system
/// calls and in records of the kernel.
#[must_use]
pub fn has_foreign_proc() -> bool {
    let shown = std::fs::read_link("/proc/self").ok();
    let shown = shown.and_then(|shown| shown.to_str()?.parse::<u32>().ok());
    shown.is_some_and(|shown| shown != std::process::id())
}

/// Returns the name of a thread, without the newline that /proc adds.
pub(super) fn comm(pid: Pid, tid: Tid) -> Result<Vec<u8>, ProcError> {
    let mut name = read(format!("/proc/{pid}/task/{tid}/comm"), 64)?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Ok(name)
}

/// Returns the name of a process, that of its first thread, or `None` if it has ended.
#[must_use]
pub fn process_name(pid: Pid) -> Option<String> {
    thread_name(pid, Tid(pid.0))
}

/// Returns the name of a thread, or `None` if it has ended.
#[must_use]
pub fn thread_name(pid: Pid, tid: Tid) -> Option<String> {
    let name = comm(pid, tid).ok()?;
    Some(String::from_utf8_lossy(&name).into_owned())
}

/// Returns the CPU time of a process, in clock ticks, or `None` if it has ended.
#[must_use]
pub fn cpu_ticks(pid: Pid) -> Option<u64> {
    process::cpu_ticks(pid.0)
}

/// Returns the arguments of a process, joined by spaces. Empty if they cannot be read.
#[must_use]
pub fn command_line(pid: Pid) -> Vec<u8> {
    arguments(pid).join(&b' ')
}

/// Returns the arguments of a process. Empty if they cannot be read.
#[must_use]
pub fn arguments(pid: Pid) -> Vec<Vec<u8>> {
    let line = read(format!("/proc/{pid}/cmdline"), MAX_COMMAND_LINE_BYTES).unwrap_or_default();
    let end = line.iter().rposition(|&byte| byte != 0);
    let line = line.get(..=end.unwrap_or(0)).filter(|_| end.is_some());
    let arguments = line
        .into_iter()
        .flat_map(|line| line.split(|&byte| byte == 0));
    arguments.map(<[u8]>::to_vec).collect()
}

fn read_status(pid: Pid) -> Result<Vec<u8>, ProcError> {
    read(format!("/proc/{pid}/status"), 1 << 16)
}

/// Returns the value of a line of /proc/PID/status.
fn field<'a>(status: &'a [u8], name: &str) -> Option<&'a str> {
    let value = status
        .split(|&b| b == b'\n')
        .find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b":"))?;
    Some(std::str::from_utf8(value).ok()?.trim())
}

fn status(pid: Pid, name: &str) -> Option<String> {
    let status = read_status(pid).ok()?;
    field(&status, name).map(str::to_owned)
}

/// Returns the id of a process in its own pid namespace.
#[must_use]
pub fn namespace_pid(pid: Pid) -> Option<Pid> {
    process::namespace_pid(pid.0).map(Pid)
}

/// Returns whether the clock of start times and uptime is another for a process, because it is in
/// another time namespace.
#[must_use]
pub fn has_other_clock(pid: Pid) -> bool {
    process::has_other_clock(pid.0)
}

/// Maximum number of threads per process whose ids are mapped from its pid namespace.
const MAX_NAMESPACE_THREADS: usize = 1 << 16;

/// Returns the threads of a process that `mapped` lacks, as pairs of ids.
///
/// The first is the id in the pid namespace of the process, the second that in perfcollect's.
#[must_use]
pub fn new_namespace_threads(pid: Pid, mapped: &FxHashMap<Tid, Tid>) -> Vec<(Tid, Tid)> {
    let seen: FxHashSet<Tid> = mapped.values().copied().collect();
    let new = threads([pid]).into_iter().filter(|tid| !seen.contains(tid));
    let id_pair = |tid: Tid| Some((Tid(namespace_pid(Pid(tid.0))?.0), tid));
    let room = MAX_NAMESPACE_THREADS.saturating_sub(mapped.len());
    new.filter_map(id_pair).take(room).collect()
}

/// Returns when a process started, in clock ticks since boot.
///
/// Together with the pid, this identifies a process instance.
#[must_use]
pub fn start_ticks(pid: Pid) -> Option<u64> {
    process::start_ticks(pid.0)
}

/// Returns when a thread of a process started, in clock ticks since boot. Returns `None` if it has ended.
#[must_use]
pub fn thread_start_ticks(pid: Pid, tid: Tid) -> Option<u64> {
    process::thread_start_ticks(pid.0, tid.0)
}

/// Returns the resident memory of a process, in KiB; `None` if it has ended.
#[must_use]
pub fn resident_kib(pid: Pid) -> Option<u64> {
    let statm = read(format!("/proc/{pid}/statm"), MAX_STATM_BYTES).ok()?;
    let pages = std::str::from_utf8(&statm).ok()?.split(' ').nth(1)?;
    let bytes = pages.parse::<u64>().ok()?.checked_mul(page_size() as u64)?;
    Some(bytes / 1024)
}

/// Returns for how long a process exists; `None` if it does not.
#[must_use]
pub fn age(pid: Pid) -> Option<Duration> {
    start_ticks(pid).map(age_of)
}

/// Returns for how long a thread exists, at most, that started this many ticks after the machine.
pub(super) fn age_of(started: u64) -> Duration {
    let tick_us = 1_000_000 / clock_ticks_per_second().max(1);
    let started = Duration::from_micros(started.saturating_mul(tick_us));
    let now = clock_gettime(ClockId::Boottime);
    let now = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
    now.saturating_sub(started)
}

/// Returns why a file of a process in /proc could not be read; `None` if the process has ended.
///
/// A lack of descriptors looks like an ended process. It may be over by now.
#[must_use]
pub fn why_unreadable(pid: Pid) -> Option<io::Error> {
    is_running(pid).then(|| {
        let status = File::open(format!("/proc/{pid}/status"));
        status.map_or_else(|error| error, |_| Errno::MFILE.into())
    })
}

/// Returns the boot id of the kernel, or an empty string if it cannot be read.
#[must_use]
pub fn boot_id() -> String {
    let id = read("/proc/sys/kernel/random/boot_id".into(), 64).unwrap_or_default();
    String::from_utf8_lossy(id.trim_ascii()).into_owned()
}

/// Returns the user who owns the files and sockets that a process creates.
#[must_use]
pub fn file_owner(pid: Pid) -> Option<u32> {
    process::file_owner(pid.0)
}

/// Returns the user who started a process, whatever its rights.
#[must_use]
pub fn real_user(pid: Pid) -> Option<u32> {
    process::real_user(pid.0)
}

/// Returns whether a signal or a debugger has stopped a process.
#[must_use]
pub fn is_stopped(pid: Pid) -> bool {
    status(pid, "State").is_some_and(|state| state.starts_with(['T', 't']))
}

/// Returns the names of a process's threads. Skips those that cannot be read.
#[must_use]
pub fn thread_names(pid: Pid) -> Vec<Vec<u8>> {
    let tids = tids(pid).unwrap_or_default();
    tids.into_iter()
        .filter_map(|tid| comm(pid, tid).ok())
        .collect()
}

/// Returns the initial environment of a process: `NAME=value` strings, each with a trailing NUL.
///
/// # Errors
/// The environment cannot be read.
pub fn environment(pid: Pid) -> Result<Vec<u8>, ProcError> {
    let environ = read(format!("/proc/{pid}/environ"), MAX_ENVIRONMENT_BYTES);
    environ.or_else(|error| {
        let ProcError::Read { source, .. } = &error;
        match source.kind() {
            // Only the user of the process may open the file.
            io::ErrorKind::PermissionDenied => environment_in_memory(pid).ok_or(error),
            _ => Err(error),
        }
    })
}

fn environment_in_memory(pid: Pid) -> Option<Vec<u8>> {
    let addresses = process::environment_addresses(pid.0)?;
    let memory = process::ProcessMemory::open(pid.0).ok()?;
    let bytes = addresses.end.checked_sub(addresses.start)?;
    let limit = MAX_ENVIRONMENT_BYTES as usize;
    memory.vec(addresses.start, bytes, limit).ok()
}

/// Returns the container id of a process: its first twelve digits, as container engines print it.
///
/// Returns `None` if the control groups contain no id.
#[must_use]
pub fn container(pid: Pid) -> Option<String> {
    let groups = read(format!("/proc/{pid}/cgroup"), 1 << 16).ok()?;
    container_in(&groups).map(str::to_owned)
}

/// Returns the path of a process's control group, which engines and service managers name.
///
/// Returns `None` if it is the root. Untrusted: a container may choose the end of the path.
#[must_use]
pub fn control_group(pid: Pid) -> Option<String> {
    let groups = read(format!("/proc/{pid}/cgroup"), 1 << 16).ok()?;
    control_group_in(&groups)
}

/// Returns the longest path in the content of /proc/PID/cgroup: version 1 has one per controller.
fn control_group_in(groups: &[u8]) -> Option<String> {
    let path = |line: &[u8]| {
        let mut fields = String::from_utf8_lossy(line).into_owned();
        let start = fields.match_indices(':').nth(1)?.0;
        Some(fields.split_off(start + 1))
    };
    let paths = groups.split(|byte| *byte == b'\n').filter_map(path);
    let longest = paths.max_by_key(String::len)?;
    (longest.len() > 1).then_some(longest)
}

/// Returns the short container id from the content of /proc/PID/cgroup.
///
/// Engines put the id (64 hexadecimal digits) last in the path of the control group, between
/// separators.
fn container_in(groups: &[u8]) -> Option<&str> {
    groups
        .split(|byte| !byte.is_ascii_hexdigit())
        .rfind(|run| run.len() == 64)
        .and_then(|id| std::str::from_utf8(&id[..12]).ok())
}

/// Returns whether the ids of this process are those of the kernel, as they are outside of containers.
#[must_use]
pub fn is_initial_pid_namespace() -> bool {
    // PROC_PID_INIT_INO of the kernel.
    let link = std::fs::read_link("/proc/self/ns/pid");
    link.is_ok_and(|link| link.as_os_str() == "pid:[4026531836]")
}

/// Returns the id of the thread that started last.
#[must_use]
pub fn last_pid() -> Option<Pid> {
    let loads = std::fs::read_to_string("/proc/loadavg").ok()?;
    loads.split_ascii_whitespace().last()?.parse().ok().map(Pid)
}

/// Returns the process of a thread, or `None` if there is no such thread.
///
/// A process is its own first thread.
#[must_use]
pub fn thread_group(tid: Pid) -> Option<Pid> {
    status(tid, "Tgid")?.parse().ok().map(Pid)
}

/// Returns processes and all their descendants that are running, without this process: a capture of the
/// shell that started it is not about itself.
///
/// # Errors
/// /proc cannot be read.
pub fn with_descendants(pids: &[Pid]) -> Result<Vec<Pid>, ProcError> {
    let mut children: FxHashMap<Pid, Vec<Pid>> = FxHashMap::default();
    let own = Pid(std::process::id() as i32);
    for pid in self::pids()?.into_iter().filter(|pid| *pid != own) {
        if let Some(parent) = status(pid, "PPid").and_then(|parent| parent.parse().ok()) {
            children.entry(Pid(parent)).or_default().push(pid);
        }
    }
    let mut tree = pids.to_vec();
    let mut next = 0;
    while let Some(pid) = tree.get(next) {
        // Removing the children ends cycles, which a pid reused between two reads can form.
        tree.extend(children.remove(pid).unwrap_or_default());
        next += 1;
    }
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_current_process() {
        let me = Pid(std::process::id() as i32);
        assert!(exists(me) && pids().unwrap().contains(&me));
        assert!(namespace_pid(me).is_some());
        assert!(!command_line(me).is_empty());
        assert!(!environment(me).unwrap().is_empty() && !thread_names(me).is_empty());
        assert_eq!(file_owner(me), Some(rustix::process::geteuid().as_raw()));
        assert_eq!(real_user(me), Some(rustix::process::getuid().as_raw()));
        assert!(!is_stopped(me) && !has_other_clock(me));
        assert!(start_ticks(me).is_some_and(|ticks| ticks >= start_ticks(Pid(1)).unwrap()));
        assert_eq!(boot_id().len(), 36);
        assert!(!exists(Pid(i32::MAX)));
        assert!(is_running(me) && !is_running(Pid(i32::MAX)));
    }

    #[test]
    fn finds_container_ids_of_engines() {
        let id = "3f2a1b4c5d6e".to_owned() + "0123456789abcdef0123456789abcdef0123456789abcdef0123";
        for path in [
            format!("0::/docker/{id}"),
            format!("0::/system.slice/docker-{id}.scope/init"),
            format!("0::/kubepods.slice/kubepods-podabc.slice/cri-containerd-{id}.scope"),
            format!("12:pids:/kubepods/burstable/pod1/crio-{id}\n0::/"),
            format!("0::/system.slice/containerd.service/kubepods-x.slice:cri-containerd:{id}"),
            format!("0::/machine.slice/libpod-{id}.scope/container\n"),
        ] {
            assert_eq!(
                container_in(path.as_bytes()),
                Some("3f2a1b4c5d6e"),
                "{path}"
            );
        }
        assert_eq!(container_in(b"0::/user.slice/user-0.slice\n"), None);
        assert_eq!(container_in(b""), None);
    }

    #[test]
    fn control_group_is_the_longest_path() {
        let groups = b"12:cpu,cpuacct:/docker/x\n1:name=systemd:/a:b\n0::/\n";
        assert_eq!(control_group_in(groups).as_deref(), Some("/docker/x"));
        assert_eq!(
            control_group_in(b"0::/a:b\xff\n").as_deref(),
            Some("/a:b\u{fffd}")
        );
        assert_eq!(control_group_in(b"0::/\n"), None);
        assert_eq!(control_group_in(b"\n:\n"), None);
    }

    #[test]
    fn zombie_is_not_running() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid(child.id() as i32);
        while status(pid, "State").is_some_and(|state| !state.starts_with('Z')) {
            std::thread::yield_now();
        }
        assert!(exists(pid) && !is_running(pid));
        child.wait().unwrap();
    }
}
