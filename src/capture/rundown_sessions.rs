//! Rundown sessions: method names of .NET processes whose memory does not yield them.
//!
//! These are processes before .NET 8, with unreadable memory, or with an unknown memory layout.
//! perfcollect requests a rundown from each of them in a separate session.

use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

use super::code_names::method_row;
use crate::dotnet::diagnostics::Limits;
use crate::dotnet::{
    Deployment, Detector, MethodRange, ProcessMemory, RundownSession, RuntimeIdentity,
    RuntimeSessionError, SessionOutcome,
};
use crate::trace::spool::SpoolRow;
use crate::trace::{Notice, NoticeKind, Pid, ProcessId, Recorder, process_notices};

/// Maximum number of concurrent sessions.
const MAX_SESSIONS: usize = 32;
/// Timeouts for the stop request to one runtime, for all stop requests, and for all rundowns.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(3);

/// Returns whether a process needs a rundown. It reads files.
type NeedCheck = fn(Pid) -> bool;

#[derive(Default)]
pub(super) struct RundownSessions {
    running: Vec<(ProcessId, Pid, RundownSession)>,
    /// Sessions to start when there is room, each with the check whether it is needed.
    waiting: VecDeque<(ProcessId, Pid, NeedCheck)>,
    /// Whether the capture has ended, so that no session may start.
    is_over: bool,
    /// Processes that need another rundown after the running one.
    unreadable: Vec<(ProcessId, Pid)>,
    /// The first process whose memory is not readable.
    first_denied: Option<Pid>,
    failed: Vec<(Pid, RuntimeSessionError)>,
    lost: Vec<(Pid, u64)>,
}

impl RundownSessions {
    /// Starts a session for a process with JIT code, if the process is known to need one.
    pub(super) fn on_jit_process(&mut self, process: ProcessId, pid: Pid) {
        self.start(process, pid, is_needed);
    }

    /// Notes that a .NET process has a session if its memory may not be read.
    pub(super) fn note_denied(&mut self, pid: Pid) {
        if self.first_denied.is_none() && ProcessMemory::is_denied(pid) {
            self.first_denied = Some(pid);
        }
    }

    /// Requests rundowns from processes with JIT code whose method names cannot be read from
    /// memory.
    pub(super) fn request_rundown(&mut self, unreadable: Vec<(ProcessId, Pid)>) {
        self.unreadable.extend(unreadable);
        let is_running = |process| self.running.iter().any(|(other, ..)| *other == process);
        let (waiting, ready): (Vec<_>, Vec<_>) = std::mem::take(&mut self.unreadable)
            .into_iter()
            .partition(|(process, _)| is_running(*process));
        self.unreadable = waiting;
        for (process, pid) in ready {
            self.start(process, pid, |pid| runtime(pid).is_some());
        }
    }

    fn start(&mut self, process: ProcessId, pid: Pid, is_needed: NeedCheck) {
        let mut waiting = self.waiting.iter_mut();
        match waiting.find(|(other, ..)| *other == process) {
            Some(known) => known.2 = is_needed,
            None => self.waiting.push_back((process, pid, is_needed)),
        }
        self.start_waiting();
    }

    fn start_waiting(&mut self) {
        while !self.is_over
            && self.running.len() < MAX_SESSIONS
            && let Some((process, pid, is_needed)) = self.waiting.pop_front()
        {
            match RundownSession::start(pid, is_needed) {
                Ok(session) => self.running.push((process, pid, session)),
                Err(error) => {
                    self.failed.push((pid, error));
                    break;
                }
            }
        }
    }

    /// Starts no session of a process that has ended: its id may be reused.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.waiting.retain(|(other, ..)| *other != process);
        self.unreadable.retain(|(other, _)| *other != process);
    }

    /// Returns the first process whose runtime lists its methods because its memory is not readable.
    pub(super) fn first_denied(&self) -> Option<Pid> {
        self.first_denied
    }

    /// Writes the received names, and closes the sessions of processes that have ended.
    pub(super) fn write_rows<W: Write>(&mut self, recorder: &mut Recorder<W>) {
        let mut next = 0;
        while let Some((process, _, session)) = self.running.get(next) {
            // This check precedes `take`, so that no name arrives between the two.
            let has_ended = session.has_ended();
            let names = session.take();
            names.for_each(|code| put_name(recorder, *process, code));
            if has_ended {
                let (_, pid, session) = self.running.swap_remove(next);
                self.close_session(pid, session.finish(Instant::now(), |_| ()));
            } else {
                next += 1;
            }
        }
        self.start_waiting();
    }

    /// Ends all sessions and writes their names.
    pub(super) fn finish<W: Write>(&mut self, recorder: &mut Recorder<W>) {
        self.is_over = true;
        let limits = Limits::new(STEP_TIMEOUT, STOP_TIMEOUT);
        for (_, _, session) in &mut self.running {
            session.ask_to_stop(&limits);
        }
        let until = Instant::now() + RUNDOWN_TIMEOUT;
        for (process, pid, session) in std::mem::take(&mut self.running) {
            let outcome = session.finish(until, |code| put_name(recorder, process, code));
            self.close_session(pid, outcome);
        }
    }

    fn close_session(&mut self, pid: Pid, outcome: SessionOutcome) {
        let SessionOutcome { error, missed } = outcome;
        self.failed.extend(error.map(|error| (pid, error)));
        let lost = missed.losses.dropped_events
            + missed.losses.unknown_events
            + missed.malformed
            + missed.forgotten;
        if lost > 0 {
            self.lost.push((pid, lost));
        }
    }

    /// Returns the notices about failed and incomplete rundowns.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let remedy =
            "start it with COMPlus_PerfMapEnabled=1 (.NET 6 and later: DOTNET_PerfMapEnabled=1)";
        let kind = NoticeKind::MethodNamesUnreadable;
        let failed = process_notices(
            kind,
            self.failed.iter().map(|(pid, error)| (*pid, error)),
            |processes, error| {
                format!("cannot request a method rundown from .NET process {processes}: {error}")
            },
            |_| remedy,
        );
        let waiting = process_notices(
            kind,
            self.waiting.iter().map(|(_, pid, _)| (*pid, &())),
            |processes, ()| {
                format!(
                    "no method rundown was requested from process {processes}: {MAX_SESSIONS} sessions ran already"
                )
            },
            |()| remedy,
        );
        let lost = self.lost.iter().map(move |(pid, count)| {
            let what = format!("{count} method events of .NET process {pid} were lost");
            Notice::new(NoticeKind::MethodNamesLost, what, remedy)
                .about(pid)
                .counting(*count)
        });
        failed.into_iter().chain(waiting).chain(lost)
    }
}

fn put_name<W: Write>(recorder: &mut Recorder<W>, process: ProcessId, code: MethodRange) {
    let row = method_row(process, code.start, code.size, Some(code.name));
    recorder.put(&SpoolRow::Method(row));
}

/// Returns the runtime of a process, if it compiles methods.
///
/// This reads files, so it runs in the session's thread.
fn runtime(pid: Pid) -> Option<RuntimeIdentity> {
    let runtime = Detector::default().identify(pid).ok()??;
    (runtime.flavour != Deployment::NativeAot).then_some(runtime)
}

/// Returns whether a process is known to need a rundown.
fn is_needed(pid: Pid) -> bool {
    runtime(pid).is_some_and(|runtime| runtime.needs_rundown(pid))
}
