//! Names of the methods of .NET processes whose memory does not tell them: those before .NET 8, those whose memory may
//! not be read, and those that keep them in a way that is not known here. They are asked, by a session of events each.

use std::time::{Duration, Instant};

use crate::dotnet::diagnostics::Limits;
use crate::dotnet::{
    Deployment, Detector, MethodRange, ProcessMemory, RundownSession, RuntimeIdentity,
    RuntimeSessionError, SessionOutcome,
};
use crate::trace::{Notice, Pid, ProcessId};

/// Most sessions at a time.
const MAX_SESSIONS: usize = 32;
/// The oldest version whose memory tells names.
const TOLD_BY_MEMORY: u32 = 8;
/// How long all runtimes together may take to be asked for the end, and then to tell their methods.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Default)]
pub(super) struct RundownSessions {
    running: Vec<(ProcessId, Pid, RundownSession)>,
    /// Those that must be asked, unless they are being asked already.
    silent: Vec<(ProcessId, Pid)>,
    left_out: Vec<Pid>,
    failed: Vec<(Pid, RuntimeSessionError)>,
    lost: Vec<(Pid, u64)>,
}

impl RundownSessions {
    /// A process that runs code made at run time.
    pub(super) fn on_jit_process(&mut self, process: ProcessId, pid: Pid) {
        self.start(process, pid, is_needed);
    }

    /// Processes that run code made at run time which memory does not tell the methods of.
    pub(super) fn request_rundown(&mut self, silent: Vec<(ProcessId, Pid)>) {
        self.silent.extend(silent);
        let is_running = |process| self.running.iter().any(|(other, ..)| *other == process);
        let (wait, ask): (Vec<_>, Vec<_>) = std::mem::take(&mut self.silent)
            .into_iter()
            .partition(|(process, _)| is_running(*process));
        self.silent = wait;
        for (process, pid) in ask {
            self.start(process, pid, |pid| runtime(pid).is_some());
        }
    }

    fn start(&mut self, process: ProcessId, pid: Pid, is_needed: fn(Pid) -> bool) {
        if self.running.len() >= MAX_SESSIONS {
            self.left_out.push(pid);
            return;
        }
        match RundownSession::start(pid, is_needed) {
            Ok(session) => self.running.push((process, pid, session)),
            Err(error) => self.failed.push((pid, error)),
        }
    }

    /// Names that have come: of processes that have ended.
    pub(super) fn take(&mut self, mut take: impl FnMut(ProcessId, MethodRange)) {
        let mut next = 0;
        while let Some((process, _, session)) = self.running.get(next) {
            // Asked before its names are taken, so that none comes between.
            let has_ended = session.has_ended();
            session.take().for_each(|code| take(*process, code));
            if has_ended {
                let (_, pid, session) = self.running.swap_remove(next);
                self.close_session(pid, session.finish(Instant::now(), |_| ()));
            } else {
                next += 1;
            }
        }
    }

    /// Ends all sessions and takes their names.
    pub(super) fn finish(&mut self, mut take: impl FnMut(ProcessId, MethodRange)) {
        let asking = Limits::new(STEP_TIMEOUT, STOP_TIMEOUT);
        for (_, _, session) in &mut self.running {
            session.ask_to_stop(&asking);
        }
        let until = Instant::now() + RUNDOWN_TIMEOUT;
        for (process, pid, session) in std::mem::take(&mut self.running) {
            let outcome = session.finish(until, |code| take(process, code));
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

    /// What the user should know.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let remedy =
            "start it with COMPlus_PerfMapEnabled=1 (.NET 6 and later: DOTNET_PerfMapEnabled=1)";
        let failed = self.failed.iter().map(move |(pid, error)| {
            let what = format!("methods of .NET process {pid} could not be asked for: {error}");
            Notice::new(what, remedy)
        });
        let left_out = self.left_out.iter().map(move |pid| {
            let what = format!(
                "methods of process {pid} were not asked for: {MAX_SESSIONS} processes were asked already"
            );
            Notice::new(what, remedy)
        });
        let lost = self.lost.iter().map(move |(pid, count)| {
            let what = format!("{count} events about methods of .NET process {pid} were lost");
            Notice::new(what, remedy)
        });
        failed.chain(left_out).chain(lost)
    }
}

/// The runtime of a process, if it compiles methods. Runs in the session's thread: files are read.
fn runtime(pid: Pid) -> Option<RuntimeIdentity> {
    let runtime = Detector::default().identify(pid)?;
    (runtime.flavour != Deployment::NativeAot).then_some(runtime)
}

/// Whether it is known beforehand that a process must be asked.
fn is_needed(pid: Pid) -> bool {
    runtime(pid).is_some_and(|runtime| {
        let version = runtime.version.as_deref();
        let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
        major.is_some_and(|major| major < TOLD_BY_MEMORY) || ProcessMemory::open(pid).is_err()
    })
}
