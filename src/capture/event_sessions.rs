//! The events of the target's .NET runtimes: one session a process, its stream in a file of its own.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::finished::MORE_ROOM;
use crate::dotnet::diagnostics::{Limits, PortError, SessionRequest};
use crate::dotnet::{Detector, EventSession, RuntimeSessionError, SharedSink};
use crate::machine;
use crate::trace::{Notice, Pid};

/// Most sessions at a time; each is a thread.
const MAX_SESSIONS: usize = 256;
/// How long the start of sampling waits for the runtimes that are there.
const START_TIMEOUT: Duration = Duration::from_secs(1);
const START_INTERVAL: Duration = Duration::from_millis(2);
/// How long a runtime may take to be asked for the end, all of them, and then to list what they have.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// The part of the memory a process may still take that events may, and what they need in any case.
const SPARED: u64 = 8;
const MIN_MIB: u32 = 8;
/// Processes that are named in notices.
const LISTED: usize = 5;

/// What is wanted of each runtime, and where its stream goes.
pub struct EventRequest {
    /// What.
    pub session: SessionRequest,
    /// MiB that a runtime may hold back, if not those of the session as far as there is memory.
    pub buffer_mib: Option<u32>,
    /// Where.
    pub keep: SharedSink,
}

#[derive(Default)]
pub(super) struct EventSessions {
    request: Option<EventRequest>,
    running: Vec<(Pid, EventSession)>,
    ended_bytes: u64,
    left_out: u64,
    failed: Vec<(Pid, RuntimeSessionError)>,
}

impl EventSessions {
    pub(super) fn new(request: Option<EventRequest>) -> Self {
        Self {
            request,
            ..Self::default()
        }
    }

    pub(super) fn are_wanted(&self) -> bool {
        self.request.is_some()
    }

    /// The processes that have a session.
    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.running.iter().map(|(pid, _)| *pid)
    }

    /// Begins with those of these processes that have a runtime, and waits a moment until they have begun too.
    pub(super) fn begin(&mut self, pids: impl IntoIterator<Item = Pid>) {
        if !self.are_wanted() {
            return;
        }
        let mut detector = Detector::default();
        for pid in pids {
            if detector.identify(pid).is_some() {
                self.start(pid, false);
            }
        }
        let begin = Instant::now();
        while begin.elapsed() < START_TIMEOUT
            && !self.running.iter().all(|(_, session)| session.has_begun())
        {
            sleep(START_INTERVAL);
        }
    }

    /// A process that has just loaded a runtime, or is seen to run one.
    pub(super) fn on_runtime_loaded(&mut self, pid: Pid) {
        if !self.are_wanted() {
            return;
        }
        self.reap();
        let is_known = self.running.iter().any(|(known, _)| *known == pid)
            || self.failed.iter().any(|(known, _)| *known == pid);
        if !is_known {
            self.start(pid, true);
        }
    }

    fn start(&mut self, pid: Pid, is_new: bool) {
        let Some(request) = &self.request else {
            return;
        };
        if self.running.len() >= MAX_SESSIONS {
            self.left_out += 1;
            return;
        }
        let (mut wanted, keep) = (request.session.clone(), request.keep.clone());
        wanted.buffer_mib = request
            .buffer_mib
            .unwrap_or_else(|| wanted.buffer_mib.min(affordable_mib(pid)));
        match EventSession::start(pid, is_new, wanted, keep) {
            Ok(session) => self.running.push((pid, session)),
            Err(error) => self.failed.push((pid, error)),
        }
    }

    /// Takes sessions away whose process has ended.
    fn reap(&mut self) {
        let mut next = 0;
        while let Some((_, session)) = self.running.get(next) {
            if session.has_ended() {
                let (pid, session) = self.running.swap_remove(next);
                self.close_session(pid, session, Instant::now(), &mut || true);
            } else {
                next += 1;
            }
        }
    }

    fn close_session(
        &mut self,
        pid: Pid,
        session: EventSession,
        until: Instant,
        enough: &mut dyn FnMut() -> bool,
    ) {
        self.ended_bytes += session.bytes();
        let error = session.finish(until, enough);
        self.failed.extend(error.map(|error| (pid, error)));
    }

    /// Why a stream cannot be kept any more, if that is so.
    pub(super) fn stuck(&mut self) -> Option<String> {
        self.reap();
        self.failed.iter().find_map(|(_, error)| match error {
            RuntimeSessionError::Keep(error) => Some(error.to_string()),
            _ => None,
        })
    }

    /// Bytes of all streams.
    pub(super) fn bytes(&self) -> u64 {
        let running = self.running.iter().map(|(_, session)| session.bytes());
        self.ended_bytes + running.sum::<u64>()
    }

    /// Ends all sessions. What they still list is waited for, until it is `enough`.
    pub(super) fn finish(&mut self, mut enough: impl FnMut() -> bool) {
        let asking = Limits::new(STEP_TIMEOUT, STOP_TIMEOUT);
        for (_, session) in &mut self.running {
            session.ask_to_stop(&asking);
        }
        let until = Instant::now() + RUNDOWN_TIMEOUT;
        for (pid, session) in std::mem::take(&mut self.running) {
            self.close_session(pid, session, until, &mut enough);
        }
    }

    /// What the user should know.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        // A process that ended before it could be asked is none that was missed.
        let failed = || {
            let gone = |error: &RuntimeSessionError| {
                matches!(error, RuntimeSessionError::Port(PortError::Gone))
            };
            self.failed.iter().filter(move |(_, error)| !gone(error))
        };
        let listed = failed().take(LISTED).map(|(pid, error)| {
            let what = format!("events of .NET process {pid} are missing or end early: {error}");
            let remedy = match error {
                RuntimeSessionError::Keep(_) => MORE_ROOM,
                _ => "`perfcollect ps` tells which processes can be asked",
            };
            Notice::new(what, remedy)
        });
        let more = failed().count().saturating_sub(LISTED);
        let more =
            (more > 0).then(|| Notice::new(format!("so are those of {more} other processes"), ""));
        let left_out = (self.left_out > 0).then(|| {
            let what = format!(
                "events of {} .NET processes are missing: {MAX_SESSIONS} were asked already",
                self.left_out
            );
            Notice::new(what, "choose some with -pid")
        });
        listed.chain(more).chain(left_out)
    }
}

/// MiB that a process can spare for events.
fn affordable_mib(pid: Pid) -> u32 {
    let bytes = machine::free_memory(pid).map_or(u64::MAX, |free| free / SPARED);
    u32::try_from(bytes >> 20).unwrap_or(u32::MAX).max(MIN_MIB)
}
