//! Event sessions of the target's .NET runtimes: one or two per process, each with a stream file.

use std::io;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use rustix::io::Errno;

use super::finished::MORE_ROOM;
use super::session_starts::{DueSession, SessionChoice, SessionStarts};
use crate::dotnet::diagnostics::{
    DiagnosticsError, GC_SETTINGS, Limits, PortError, SessionRequest,
};
use crate::dotnet::{
    EventSession, ProcessMemory, RuntimeSessionError, SharedSink, StreamItem, StreamRoom,
    StreamSize,
};
use crate::machine;
use crate::trace::{MORE_DESCRIPTORS, Nanos, Notice, NoticeKind, Pid, lacks_descriptors};

/// Maximum number of concurrent sessions; each has two threads.
const MAX_SESSIONS: usize = 256;
/// Timeouts for the stop request to one runtime, for all stop requests, and for the rundowns.
const STEP_TIMEOUT: Duration = Duration::from_millis(500);
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
const RUNDOWN_TIMEOUT: Duration = Duration::from_secs(10);
/// Share of a process's free memory that its events may use (1/8), and the minimum in any case.
const MEMORY_SHARE: u64 = 8;
const MIN_MIB: u32 = 8;
/// Maximum number of processes listed in notices.
const MAX_LISTED: usize = 5;
/// Maximum number of failures that are kept.
const MAX_FAILED: usize = 1000;

/// Events to request from each runtime, and the destination of its stream.
pub struct EventRequest {
    /// Events to request.
    pub session: SessionRequest,
    /// Buffer limit of a runtime in MiB.
    ///
    /// If this is `None`, the limit is that of the session, reduced when memory is short.
    pub buffer_mib: Option<u32>,
    /// Whether to request rundowns also from runtimes whose methods are read from memory.
    pub rundown: bool,
    /// Whether the user chose events. Otherwise idle processes of a whole machine get no session.
    pub is_chosen: bool,
    /// Destination of the streams.
    pub keep: SharedSink,
}

#[derive(Default)]
pub(super) struct EventSessions {
    request: Option<EventRequest>,
    starts: Option<SessionStarts>,
    running: Vec<(Pid, EventSession)>,
    ended: StreamSize,
    /// Whether the capture has ended, so that no session may start.
    is_over: bool,
    failed: Vec<(Pid, RuntimeSessionError)>,
    /// Number of failures that `failed` does not contain.
    more_failed: usize,
    /// The first process with a rundown that the user did not request.
    first_denied: Option<Pid>,
    /// Room for the streams of each user.
    rooms: FxHashMap<u32, StreamRoom>,
    room: StreamRoom,
    /// Maximum size of the streams of a user as received, in bytes.
    user_limit: Option<u64>,
    /// What the streams of ended sessions refer to; `None` is the end of a session.
    items: Vec<(Pid, Option<StreamItem>)>,
}

impl EventSessions {
    /// `user_limit` is the maximum size of the streams of a user, in bytes.
    pub(super) fn new(
        request: Option<EventRequest>,
        choice: SessionChoice,
        cpus: u64,
        user_limit: Option<u64>,
    ) -> Self {
        Self {
            user_limit,
            starts: request.is_some().then(|| SessionStarts::new(choice, cpus)),
            request,
            ..Self::default()
        }
    }

    /// Returns the choice of processes, if events are requested.
    pub(super) fn starts(&mut self) -> Option<&mut SessionStarts> {
        self.starts.as_mut()
    }

    /// Starts the sessions that are due. Returns their processes.
    pub(super) fn start_due(&mut self, now: Nanos) -> Vec<Pid> {
        if self.is_over {
            return Vec::new();
        }
        self.reap();
        let Some(starts) = &mut self.starts else {
            return Vec::new();
        };
        let free = MAX_SESSIONS.saturating_sub(self.running.len());
        let due = starts.due(now, free, |pid| {
            self.running.iter().any(|(other, _)| *other == pid)
        });
        for &DueSession { pid, is_new } in &due {
            self.start(pid, is_new);
        }
        due.into_iter().map(|due| due.pid).collect()
    }

    /// Starts no more sessions.
    pub(super) fn end_starts(&mut self) {
        self.is_over = true;
    }

    fn start(&mut self, pid: Pid, is_new: bool) {
        let Some(request) = &self.request else {
            return;
        };
        let (mut session, keep) = (request.session.clone(), request.keep.clone());
        session.buffer_mib = request
            .buffer_mib
            .unwrap_or_else(|| session.buffer_mib.min(affordable_mib(pid)));
        let lists_methods = session.rundown_keywords & !GC_SETTINGS != 0;
        if self.first_denied.is_none()
            && lists_methods
            && !request.rundown
            && ProcessMemory::is_denied(pid)
        {
            self.first_denied = Some(pid);
        }
        let rundown = request.rundown;
        let room = self.room_of(pid);
        match EventSession::start(pid, is_new, session, rundown, room, keep) {
            Ok(session) => self.running.push((pid, session)),
            Err(error) => self.fail(pid, error),
        }
    }

    /// Returns the room for the streams of the user of a process.
    fn room_of(&mut self, pid: Pid) -> StreamRoom {
        let uid = machine::file_owner(pid).unwrap_or(u32::MAX);
        let room = self.rooms.entry(uid);
        room.or_insert_with(|| self.room.of_user(self.user_limit))
            .clone()
    }

    /// Removes the sessions of processes that have ended.
    fn reap(&mut self) {
        let mut next = 0;
        while let Some((_, session)) = self.running.get(next) {
            if session.has_ended() {
                let (pid, session) = self.running.swap_remove(next);
                if let (0, Some(starts)) = (session.size().stored, &mut self.starts) {
                    starts.refund();
                }
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
        self.ended = [self.ended, session.size()].into_iter().sum();
        let error = session.finish(until, enough, |item| self.items.push((pid, Some(item))));
        self.items.push((pid, None));
        if let Some(error) = error {
            self.fail(pid, error);
        }
    }

    /// Adds the reason why the events of a process are missing or incomplete.
    pub(super) fn fail(&mut self, pid: Pid, error: RuntimeSessionError) {
        let is_kept = match &error {
            // A process that ended before the request has no events to miss.
            RuntimeSessionError::Port(PortError::Gone) => return,
            // It ends the capture.
            RuntimeSessionError::Keep(error) if concerns_all(error) => true,
            _ => self.failed.len() < MAX_FAILED,
        };
        match is_kept {
            true => self.failed.push((pid, error)),
            false => self.more_failed += 1,
        }
    }

    /// Returns what the streams refer to since the last call; `None` at the end of a session.
    pub(super) fn take(&mut self) -> Vec<(Pid, Option<StreamItem>)> {
        let mut items = std::mem::take(&mut self.items);
        for (pid, session) in &self.running {
            items.extend(session.take().map(|item| (*pid, Some(item))));
        }
        items
    }

    /// Returns the error that stopped the writing of a stream, if any.
    pub(super) fn stream_error(&mut self) -> Option<String> {
        self.reap();
        self.failed.iter().find_map(|(_, error)| match error {
            RuntimeSessionError::Keep(error) if concerns_all(error) => Some(error.to_string()),
            _ => None,
        })
    }

    /// Returns the first process whose runtime lists its methods because its memory is not readable.
    pub(super) fn first_denied(&self) -> Option<Pid> {
        self.first_denied
    }

    /// Returns the number of processes that wait for their sessions.
    pub(super) fn held_back(&self) -> usize {
        self.starts.as_ref().map_or(0, SessionStarts::held_back)
    }

    /// Returns the size of all streams.
    pub(super) fn size(&self) -> StreamSize {
        let running = self.running.iter().map(|(_, session)| session.size());
        running.chain([self.ended]).sum()
    }

    /// Ends all sessions. Waits for their rundowns until `enough` returns true.
    pub(super) fn finish(&mut self, mut enough: impl FnMut() -> bool) {
        let limits = Limits::new(STEP_TIMEOUT, STOP_TIMEOUT);
        for (_, session) in &mut self.running {
            session.ask_to_stop(&limits);
        }
        let until = Instant::now() + RUNDOWN_TIMEOUT;
        for (pid, session) in std::mem::take(&mut self.running) {
            self.close_session(pid, session, until, &mut enough);
        }
    }

    /// Returns the notices about failed sessions.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let listed = self.failed.iter().take(MAX_LISTED).map(|(pid, error)| {
            let what = format!("events of .NET process {pid} are missing or end early: {error}");
            let remedy = match error {
                error if cause(error).is_some_and(lacks_descriptors) => MORE_DESCRIPTORS,
                RuntimeSessionError::Keep(_) => MORE_ROOM,
                _ => "`perfcollect ps` lists the state of each process's diagnostic port",
            };
            Notice::new(NoticeKind::EventsMissing, what, remedy)
                .about(pid)
                .counting(1_u64)
        });
        let more = self.failed.len().saturating_sub(MAX_LISTED) + self.more_failed;
        let more = (more > 0).then(|| {
            Notice::new(
                NoticeKind::EventsMissing,
                format!("events of {more} other .NET processes are missing or end early"),
                "",
            )
            .counting(more)
        });
        let starts = self
            .starts
            .iter()
            .flat_map(|starts| starts.notices(machine::is_running));
        listed.chain(more).chain(starts)
    }
}

/// Returns whether the events of other processes cannot be written, either.
fn concerns_all(error: &io::Error) -> bool {
    Errno::from_io_error(error).is_some() && !lacks_descriptors(error)
}

/// Returns the error of the system because of which a session failed.
fn cause(error: &RuntimeSessionError) -> Option<&io::Error> {
    match error {
        RuntimeSessionError::Keep(error)
        | RuntimeSessionError::Port(
            PortError::Proc(error)
            | PortError::Environment(error)
            | PortError::Root(error)
            | PortError::NoSocket { cause: error, .. },
        )
        | RuntimeSessionError::Diagnostics(
            DiagnosticsError::Connect(error) | DiagnosticsError::Io(error),
        ) => Some(error),
        _ => None,
    }
}

/// Returns the memory that a process can spare for events, in MiB.
fn affordable_mib(pid: Pid) -> u32 {
    let bytes = machine::free_memory(pid).map_or(u64::MAX, |free| free / MEMORY_SHARE);
    u32::try_from(bytes >> 20).unwrap_or(u32::MAX).max(MIN_MIB)
}
