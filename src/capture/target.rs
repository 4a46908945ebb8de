//! The target of a capture, and the filter for its processes.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;

use rustc_hash::FxHashSet;
use thiserror::Error;

use crate::machine::{self, ProcError};
use crate::perf::{Record, Scope};
use crate::trace::{Nanos, Pid, Tid};

/// Processes to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All processes.
    SystemWide,
    /// These processes with their current and future children.
    Pids(Vec<Pid>),
    /// A command from its first instruction, with its children.
    Command(Vec<OsString>),
}

/// Reason why the target cannot be captured.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// No such process.
    #[error("process {0} does not exist; `ps -e` lists the running ones")]
    NoProcess(Pid),
    /// The process is not in /proc, which is mounted with `hidepid`.
    #[error(
        "process {0} runs, but /proc does not show it (hidepid); run perfcollect as its user, as root, or with \
         CAP_SYS_PTRACE"
    )]
    Hidden(Pid),
    /// Ids in /proc are not those that the kernel reports to perfcollect.
    #[error(
        "/proc is that of another pid namespace than perfcollect runs in; run perfcollect in that one \
         (docker: --pid=host), or mount its own: `mount -t proc proc /proc`"
    )]
    ForeignProc,
    /// The id is that of a thread.
    #[error("{thread} is a thread of process {process}; use -pid {process}")]
    Thread {
        /// Given id.
        thread: Pid,
        /// Id of the thread's process.
        process: Pid,
    },
}

impl Target {
    /// Checks that the target exists, and that /proc has its ids.
    ///
    /// # Errors
    /// Returns an error if an id is not that of a running process, or means another one in /proc.
    pub fn check(&self) -> Result<(), TargetError> {
        if machine::has_foreign_proc() {
            return Err(TargetError::ForeignProc);
        }
        let Self::Pids(pids) = self else {
            return Ok(());
        };
        for &pid in pids {
            match machine::thread_group(pid) {
                None if machine::is_hidden(pid) => return Err(TargetError::Hidden(pid)),
                None => return Err(TargetError::NoProcess(pid)),
                Some(process) if process != pid => {
                    return Err(TargetError::Thread {
                        thread: pid,
                        process,
                    });
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

impl Target {
    /// Returns the scope of events that covers the target.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::SystemWide => Scope::SystemWide,
            Self::Pids(_) => Scope::Processes,
            Self::Command(_) => Scope::Command,
        }
    }

    /// Returns the threads that run already, including those of all descendants.
    pub(super) fn threads(&self) -> Vec<Tid> {
        match self {
            Self::Pids(pids) => {
                let family = machine::with_descendants(pids);
                machine::threads(family.unwrap_or_else(|_| pids.clone()))
            }
            Self::SystemWide | Self::Command(_) => Vec::new(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SystemWide => f.write_str("system-wide"),
            Self::Pids(pids) => {
                let pids: Vec<_> = pids.iter().map(Pid::to_string).collect();
                write!(f, "pid {}", pids.join(", "))
            }
            Self::Command(words) => {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                f.write_str(&words.join(" "))
            }
        }
    }
}

/// Follows forks and execs to determine the processes of the target.
#[derive(Debug)]
pub(super) struct Filter {
    /// Processes of the target; `None` means all processes.
    pids: Option<FxHashSet<Pid>>,
    /// Process of the command before its exec, while it is a copy of perfcollect.
    before_exec: Option<Pid>,
    /// Processes of the target whose main thread has ended, with the time.
    ///
    /// Their last samples may still arrive.
    ended: VecDeque<(Nanos, Pid)>,
    /// Process of the target that ran at the last check.
    running: Option<Pid>,
}

/// Time for which a process that ended stays in the target.
const LINGER_NS: u64 = 1_000_000_000;

impl Filter {
    pub(super) fn new(target: &Target) -> Self {
        Self {
            pids: (*target != Target::SystemWide).then(FxHashSet::default),
            before_exec: None,
            ended: VecDeque::new(),
            running: None,
        }
    }

    /// Returns whether no process of the target is left.
    pub(super) fn is_gone(&mut self) -> bool {
        let Some(pids) = &self.pids else {
            return false;
        };
        // Checking one process is usually enough.
        if !self.running.is_some_and(machine::is_running) {
            self.running = pids.iter().copied().find(|&pid| machine::is_running(pid));
        }
        self.running.is_none()
    }

    /// Removes processes that ended a while ago.
    ///
    /// A process whose id is still in use stays: another of its threads may still run.
    fn remove_ended(&mut self, now: Nanos) {
        while let Some(&(time, pid)) = self.ended.front() {
            if now.0.saturating_sub(time.0) < LINGER_NS {
                break;
            }
            self.ended.pop_front();
            if let Some(pids) = self.pids.as_mut().filter(|_| !machine::exists(pid)) {
                pids.remove(&pid);
            }
        }
    }

    /// Adds the running processes: the given ones with all their descendants, or the command.
    pub(super) fn start(&mut self, target: &Target, command: Option<Pid>) -> Result<(), ProcError> {
        self.before_exec = command;
        if let (Some(pids), Target::Pids(roots)) = (&mut self.pids, target) {
            pids.extend(machine::with_descendants(roots)?);
        }
        Ok(())
    }

    /// Returns the processes of the target, or `None` for all processes.
    pub(super) fn pids(&self) -> Option<impl Iterator<Item = Pid> + '_> {
        self.pids.as_ref().map(|pids| pids.iter().copied())
    }

    pub(super) fn includes(&self, pid: Pid) -> bool {
        self.pids.as_ref().is_none_or(|pids| pids.contains(&pid))
    }

    /// Follows a record. Returns whether it concerns the target.
    ///
    /// A pid leaves the target when another process gets it, or a while after its process ended.
    pub(super) fn follow(&mut self, time: Nanos, record: &Record<'_>) -> bool {
        if matches!(record, Record::Exit { .. }) {
            self.remove_ended(time);
        }
        let Self {
            pids: Some(pids),
            before_exec,
            ended,
            ..
        } = self
        else {
            return true;
        };
        match *record {
            Record::Fork {
                pid, parent_pid, ..
            } => {
                let included = pids.contains(&parent_pid);
                if included {
                    pids.insert(pid);
                } else {
                    pids.remove(&pid);
                }
                included
            }
            Record::Comm { pid, exec, .. } => {
                if exec && *before_exec == Some(pid) {
                    *before_exec = None;
                    pids.insert(pid);
                }
                pids.contains(&pid)
            }
            Record::Mapping(ref mapping) => pids.contains(&mapping.pid),
            Record::Exit { pid, tid } => {
                let included = pids.contains(&pid);
                if included && pid.0 == tid.0 {
                    ended.push_back((time, pid));
                }
                included
            }
            _ => true,
        }
    }
}
