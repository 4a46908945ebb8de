//! Whom to capture, and whether a process belongs to it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;

use rustc_hash::FxHashSet;
use thiserror::Error;

use crate::machine::{self, ProcError};
use crate::perf::{Record, Scope};
use crate::trace::{Nanos, Pid, Tid};

/// Whom to capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// Every process.
    SystemWide,
    /// These processes, the children they have and those they will have.
    Pids(Vec<Pid>),
    /// A command from its first instruction, and its children.
    Command(Vec<OsString>),
}

/// Why the target cannot be captured.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum TargetError {
    /// No such process.
    #[error("process {0} does not exist; `ps -e` lists the running ones")]
    NoProcess(Pid),
    /// A thread id.
    #[error("{thread} is a thread of process {process}; use -pid {process}")]
    Thread {
        /// What was given.
        thread: Pid,
        /// What was meant.
        process: Pid,
    },
}

impl Target {
    /// Whether it exists.
    pub fn check(&self) -> Result<(), TargetError> {
        let Self::Pids(pids) = self else {
            return Ok(());
        };
        for &pid in pids {
            match machine::thread_group(pid) {
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
    /// What must be sampled to see it.
    pub(super) fn scope(&self) -> Scope {
        match self {
            Self::SystemWide => Scope::SystemWide,
            Self::Pids(_) => Scope::Processes,
            Self::Command(_) => Scope::Command,
        }
    }

    /// The threads that run already, those of all descendants included.
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
            Self::SystemWide => f.write_str("whole machine"),
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

/// Follows forks and execs to tell who belongs to the target.
#[derive(Debug)]
pub(super) struct Filter {
    /// `None`: everybody.
    wanted: Option<FxHashSet<Pid>>,
    /// The command's process while it still is a copy of us.
    before_exec: Option<Pid>,
    /// Processes of the target whose main thread has ended, and when. Their last samples may still come.
    ended: VecDeque<(Nanos, Pid)>,
    /// One of the target that ran when last looked at.
    running: Option<Pid>,
}

/// How long a process that ended stays in the target.
const LINGER_NS: u64 = 1_000_000_000;

impl Filter {
    pub(super) fn new(target: &Target) -> Self {
        Self {
            wanted: (*target != Target::SystemWide).then(FxHashSet::default),
            before_exec: None,
            ended: VecDeque::new(),
            running: None,
        }
    }

    /// Whether nobody of the target is left.
    pub(super) fn is_gone(&mut self) -> bool {
        let Some(wanted) = &self.wanted else {
            return false;
        };
        // Most of the time one look is enough.
        if !self.running.is_some_and(machine::is_running) {
            self.running = wanted.iter().copied().find(|&pid| machine::is_running(pid));
        }
        self.running.is_none()
    }

    /// Forgets processes that ended a while ago, unless their id is in use: another thread may go on.
    fn forget_ended(&mut self, now: Nanos) {
        while let Some(&(time, pid)) = self.ended.front() {
            if now.0.saturating_sub(time.0) < LINGER_NS {
                break;
            }
            self.ended.pop_front();
            if let Some(wanted) = self.wanted.as_mut().filter(|_| !machine::exists(pid)) {
                wanted.remove(&pid);
            }
        }
    }

    /// Takes in what runs at the start: the given processes with all their descendants, or the command.
    pub(super) fn begin(&mut self, target: &Target, command: Option<Pid>) -> Result<(), ProcError> {
        self.before_exec = command;
        if let (Some(wanted), Target::Pids(pids)) = (&mut self.wanted, target) {
            wanted.extend(machine::with_descendants(pids)?);
        }
        Ok(())
    }

    /// The wanted processes; `None`: all.
    pub(super) fn pids(&self) -> Option<impl Iterator<Item = Pid> + '_> {
        self.wanted.as_ref().map(|pids| pids.iter().copied())
    }

    pub(super) fn wants(&self, pid: Pid) -> bool {
        self.wanted.as_ref().is_none_or(|pids| pids.contains(&pid))
    }

    /// Follows a record and tells whether it concerns the target. A pid leaves it when somebody else gets it, or a while
    /// after its process has ended.
    pub(super) fn follow(&mut self, time: Nanos, record: &Record<'_>) -> bool {
        if matches!(record, Record::Exit { .. }) {
            self.forget_ended(time);
        }
        let Self {
            wanted: Some(wanted),
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
                let ours = wanted.contains(&parent_pid);
                if ours {
                    wanted.insert(pid);
                } else {
                    wanted.remove(&pid);
                }
                ours
            }
            Record::Comm { pid, exec, .. } => {
                if exec && *before_exec == Some(pid) {
                    *before_exec = None;
                    wanted.insert(pid);
                }
                wanted.contains(&pid)
            }
            Record::Mapping(ref mapping) => wanted.contains(&mapping.pid),
            Record::Exit { pid, tid } => {
                let ours = wanted.contains(&pid);
                if ours && pid.0 == tid.0 {
                    ended.push_back((time, pid));
                }
                ours
            }
            _ => true,
        }
    }
}
