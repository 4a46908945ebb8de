//! Counts of events of the CPU and the kernel during a capture.
//!
//! A process that the user named has counters on each of its threads, which new threads and children
//! inherit; a command on everything that it starts. The whole system has counters on its CPUs.

use std::path::Path;

use rustc_hash::FxHashSet;
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::Target;
use crate::machine;
use crate::perf::{Counter, CounterScope, CounterValue};
use crate::trace::{
    CounterEvent, Counters, EventCount, MAX_COUNTED, Notice, NoticeKind, Pid, ProcessCounters, Tid,
};

/// Descriptors reserved for other files, mainly those with the code of the target.
const RESERVED_FILES: u64 = 256;

/// Open counters of a target.
#[derive(Default)]
pub(super) struct Counting {
    events: Vec<CounterEvent>,
    processes: Vec<Process>,
    /// Events that the kernel refused to count, with its last error.
    refused: Vec<(CounterEvent, Errno)>,
    open: u64,
    threads_without_files: u64,
    /// Threads that started while counters were opened: they may have inherited some, or not.
    threads_between: usize,
    processes_omitted: usize,
}

/// Counters of a process, or of the whole system.
struct Process {
    pid: Option<Pid>,
    name: String,
    counters: Vec<(CounterEvent, Counter)>,
}

impl Counting {
    /// Opens counters for `events`, and starts them. Those of a command start with its exec.
    pub(super) fn start(target: &Target, events: &[CounterEvent], cpus: &[u32]) -> Self {
        let mut counting = Self {
            events: events.to_vec(),
            ..Self::default()
        };
        if events.is_empty() {
            return counting;
        }
        match target {
            Target::SystemWide => {
                let cpus = cpus.iter().map(|&cpu| CounterScope::Cpu(cpu));
                counting.add(None, "whole system".into(), cpus);
            }
            Target::Pids(pids) => counting.add_running(pids),
            Target::Command(words) => {
                let program = words.first().map(Path::new).and_then(Path::file_name);
                let name = program.unwrap_or_default().to_string_lossy().into_owned();
                counting.add(None, name, [CounterScope::Children]);
            }
        }
        if !matches!(target, Target::Command(_)) {
            let processes = counting.processes.iter();
            for (_, counter) in processes.flat_map(|process| &process.counters) {
                // One that does not start has no time, and is not counted.
                let _ = counter.start();
            }
        }
        counting
    }

    /// Adds running processes and their descendants.
    fn add_running(&mut self, pids: &[Pid]) {
        let family = || machine::with_descendants(pids).unwrap_or_else(|_| pids.to_vec());
        let mut all = family();
        self.processes_omitted = all.len().saturating_sub(MAX_COUNTED);
        all.truncate(MAX_COUNTED);
        let mut listed = FxHashSet::default();
        for &pid in &all {
            let threads = machine::threads([pid]);
            listed.extend(threads.iter().copied());
            let name = machine::process_name(pid).unwrap_or_default();
            self.add(
                Some(pid),
                name,
                threads.into_iter().map(CounterScope::Thread),
            );
        }
        let is_new = |tid: &Tid| !listed.contains(tid);
        self.threads_between = machine::threads(all)
            .iter()
            .filter(|&tid| is_new(tid))
            .count();
    }

    fn add(
        &mut self,
        pid: Option<Pid>,
        name: String,
        scopes: impl IntoIterator<Item = CounterScope>,
    ) {
        let mut counters = Vec::new();
        for scope in scopes {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            let needed = self.open + self.events.len() as u64 + RESERVED_FILES;
            if needed > limit {
                self.threads_without_files += 1;
                continue;
            }
            let first = counters.len();
            for at in 0..self.events.len() {
                let event = self.events[at];
                let of_scope: &[(CounterEvent, Counter)] = &counters[first..];
                let base = of_scope.iter().find(|(of, _)| event.base() == Some(*of));
                match Counter::open(event, scope, base.map(|(_, counter)| counter)) {
                    Ok(counter) => counters.push((event, counter)),
                    // The thread has ended, or the CPU went offline.
                    Err(Errno::SRCH) => {}
                    Err(Errno::NODEV) if matches!(scope, CounterScope::Cpu(_)) => {}
                    Err(errno) => self.refuse(event, errno),
                }
            }
            self.open += (counters.len() - first) as u64;
        }
        self.processes.push(Process {
            pid,
            name,
            counters,
        });
    }

    fn refuse(&mut self, event: CounterEvent, errno: Errno) {
        match self.refused.iter_mut().find(|(of, _)| *of == event) {
            Some((_, last)) => *last = errno,
            None => self.refused.push((event, errno)),
        }
    }

    /// Sets the process id of the command.
    pub(super) fn set_command(&mut self, pid: Pid) {
        for process in &mut self.processes {
            process.pid = Some(pid);
        }
    }

    /// Returns whether hardware events were requested, and the machine has none.
    pub(super) fn lacks_hardware(&self) -> bool {
        let is_refused = |event: &CounterEvent| self.refused.iter().any(|(of, _)| of == event);
        let mut hardware = CounterEvent::HARDWARE.iter();
        self.events.contains(&CounterEvent::Cycles) && hardware.all(is_refused)
    }

    /// Reads the counters. Returns `None` if none were requested.
    pub(super) fn end(self) -> (Option<Counters>, Vec<Notice>) {
        if self.events.is_empty() {
            return (None, Vec::new());
        }
        let mut notices = self.notices();
        let mut counters = Counters::default();
        let mut uncounted = FxHashSet::default();
        for process in &self.processes {
            let mut counts = Vec::new();
            for &event in &self.events {
                let of_event = process.counters.iter().filter(|(of, _)| *of == event);
                let mut value = None;
                for (_, counter) in of_event {
                    counters.user_code_only |= counter.user_code_only;
                    let sum: &mut CounterValue = value.get_or_insert_default();
                    sum.add(counter.read().unwrap_or_default());
                }
                match value.map(CounterValue::extrapolated) {
                    Some(Some(count)) => counts.push(EventCount {
                        event,
                        count,
                        counted_percent: value.unwrap_or_default().counted_percent(),
                    }),
                    Some(None) => {
                        uncounted.insert(event);
                    }
                    None => {}
                }
            }
            counters.processes.push(ProcessCounters {
                pid: process.pid.map(|pid| pid.0),
                name: process.name.clone(),
                counts,
            });
        }
        if !uncounted.is_empty() {
            let events = names(self.events.iter().filter(|event| uncounted.contains(event)));
            let what = format!(
                "{events} were not counted in some processes: no counter was free in all the capture"
            );
            let remedy = "end other programs that use performance counters, such as a watchdog";
            notices.push(Notice::new(NoticeKind::CountersMissing, what, remedy).about(events));
        }
        (Some(counters), notices)
    }

    /// Returns a notice for each reason why something is not counted.
    fn notices(&self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut refused = self.refused.clone();
        if self.lacks_hardware() {
            refused.retain(|(event, _)| !CounterEvent::HARDWARE.contains(event));
            let errno = self
                .refused
                .first()
                .map_or(Errno::NOENT, |(_, errno)| *errno);
            let (cause, remedy) = match errno {
                Errno::ACCESS | Errno::PERM => ("not permitted", WITH_PRIVILEGE),
                _ => (
                    "this machine has no performance counters, as most virtual machines",
                    "enable a virtual PMU, or capture on the host; -system counts page faults and context switches here",
                ),
            };
            let what =
                format!("no hardware events were counted: {cause} (perf_event_open: {errno})");
            notices.push(Notice::new(NoticeKind::CountersMissing, what, remedy));
        }
        let is_denied = |errno: Errno| matches!(errno, Errno::ACCESS | Errno::PERM);
        let groups = [
            (true, "not permitted", WITH_PRIVILEGE),
            (false, "the CPU or the kernel does not count them", ""),
        ];
        for (denied, cause, remedy) in groups {
            let of_group = refused
                .iter()
                .filter(|(_, errno)| is_denied(*errno) == denied);
            let Some((_, errno)) = of_group.clone().next() else {
                continue;
            };
            let events = names(of_group.map(|(event, _)| event));
            let what = format!("{events} were not counted: {cause} (perf_event_open: {errno})");
            notices.push(Notice::new(NoticeKind::CountersMissing, what, remedy).about(events));
        }
        let mut add = |count: u64, what: String, remedy: &str| {
            if count > 0 {
                let notice = Notice::new(NoticeKind::CountersMissing, what, remedy);
                notices.push(notice.counting(count));
            }
        };
        let threads = self.threads_without_files;
        add(
            threads,
            format!(
                "events of {threads} threads were not counted: each needs an open file per event"
            ),
            "raise `ulimit -n`, or capture the whole system",
        );
        let processes = self.processes_omitted;
        add(
            processes as u64,
            format!("events of {processes} processes were not counted: the limit is {MAX_COUNTED}"),
            "",
        );
        let between = self.threads_between;
        add(
            between as u64,
            format!(
                "events of {between} threads may not be counted: they started while the counters were opened"
            ),
            "",
        );
        notices
    }
}

const WITH_PRIVILEGE: &str = "run as root (sudo), or with the capability CAP_PERFMON";

fn names<'a>(events: impl Iterator<Item = &'a CounterEvent>) -> String {
    let names: Vec<&str> = events.map(|event| event.name()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_counters_has_one_notice() {
        let mut counting = Counting {
            events: [&CounterEvent::HARDWARE[..], &CounterEvent::SYSTEM].concat(),
            ..Counting::default()
        };
        for event in CounterEvent::HARDWARE {
            counting.refuse(event, Errno::NOENT);
            counting.refuse(event, Errno::NOENT);
        }
        assert!(counting.lacks_hardware());
        let (counters, notices) = counting.end();
        assert_eq!(counters, Some(Counters::default()));
        let [notice] = &notices[..] else {
            panic!("{notices:#?}");
        };
        assert!(
            notice.what.contains("no performance counters"),
            "{notice:?}"
        );
    }

    #[test]
    fn missing_events_are_named_by_cause() {
        let mut counting = Counting {
            events: CounterEvent::HARDWARE.to_vec(),
            ..Counting::default()
        };
        counting.refuse(CounterEvent::CacheReferences, Errno::NOENT);
        counting.refuse(CounterEvent::CacheMisses, Errno::NOENT);
        counting.refuse(CounterEvent::BranchMisses, Errno::ACCESS);
        assert!(!counting.lacks_hardware());
        let subjects: Vec<String> = counting.notices().into_iter().map(|n| n.subject).collect();
        assert_eq!(
            subjects,
            ["branch-misses", "cache-references, cache-misses"]
        );
    }
}
