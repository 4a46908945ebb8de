//! The names of a process's methods from a session of events, for runtimes whose memory does not tell them.
//!
//! ```text
//! capture's thread                          this session's thread
//! start ───────────────────────────────────> find the port, begin the session
//!                                            read events: methods that are made and freed
//! ask_to_stop ── stop ──> the runtime ─────> all methods that there are (the rundown), the end
//!   finish: names, in a limited time <─queue─  names
//! ```
//! Where the process ends by itself its names come then; `take` looks for them.

use std::io::Read;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryIter, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use thiserror::Error;

use super::code_event::{CodeEvent, RUNTIME};
use super::code_table::{CodeTable, NamedCode};
use super::diagnostics::{
    DiagnosticsError, Limits, Port, PortError, Provider, Session, SessionRequest, Stopping,
};
use super::nettrace::{Losses, NettraceError, Problem, Reader};
use crate::machine;
use crate::trace::Pid;

/// Names that wait for the capture.
const QUEUE: usize = 1024;
/// How long the runtime may take to begin.
const STEP: Duration = Duration::from_secs(1);
const BEGINNING: Duration = Duration::from_secs(3);
/// What the runtime may hold back: a second of start-up makes less than 2 MB.
const BUFFER_MIB: u32 = 16;
/// Groups of events: modules; methods the JIT compiler makes.
const LOADER: u64 = 8;
const JIT: u64 = 0x10;
/// Of the rundown: its end.
const END: u64 = 0x100;
const INFORMATIONAL: u32 = 4;

/// Why a session gave no names, or not all.
#[derive(Debug, Error)]
pub enum MethodSessionError {
    /// There is no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The runtime does not answer as it should.
    #[error(transparent)]
    Diagnostics(#[from] DiagnosticsError),
    /// Its events cannot be read.
    #[error(transparent)]
    Events(#[from] NettraceError),
    /// It did not tell all its methods in time.
    #[error("it did not list its methods in time")]
    TimeOver,
    /// There is no thread for it.
    #[error("no thread can be started: {0}")]
    Thread(std::io::Error),
}

/// How a session went.
#[derive(Debug, Default)]
pub struct SessionOutcome {
    /// Why there may be names missing.
    pub error: Option<MethodSessionError>,
    /// What did not come through.
    pub losses: Losses,
    /// Events that do not hold what their kind has.
    pub malformed: u64,
    /// Methods beyond the limit of what is kept.
    pub forgotten: u64,
}

/// A session that runs, and the thread that reads it.
#[derive(Debug)]
pub struct MethodSession {
    shared: Arc<Mutex<Shared>>,
    named: Receiver<NamedCode>,
    stopping: Option<Stopping>,
}

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    running: Option<(Port, Session)>,
    /// No session shall begin any more.
    is_over: bool,
    outcome: SessionOutcome,
}

impl Shared {
    /// The first error is the reason of those that follow.
    fn fail(&mut self, error: MethodSessionError) {
        self.outcome.error.get_or_insert(error);
    }
}

impl MethodSession {
    /// Begins a session in a thread of its own, where it also finds out whether one is needed. Waits for nothing.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        pid: Pid,
        is_needed: impl FnOnce(Pid) -> bool + Send + 'static,
    ) -> Result<Self, MethodSessionError> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (sender, named) = sync_channel(QUEUE);
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("runtime events".into())
            .spawn(move || {
                if is_needed(pid)
                    && let Err(error) = follow(pid, &theirs, &sender)
                    && machine::is_running(pid)
                {
                    lock(&theirs, |shared| shared.fail(error));
                }
            })
            .map_err(MethodSessionError::Thread)?;
        Ok(Self {
            shared,
            named,
            stopping: None,
        })
    }

    /// What has got a name since the last call.
    pub fn take(&self) -> TryIter<'_, NamedCode> {
        self.named.try_iter()
    }

    /// Whether its thread has ended: the process has, or needed no session. What it has told waits to be taken.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Asks the runtime to list its methods and to end the session. What comes is taken by [`MethodSession::finish`].
    pub fn ask_to_stop(&mut self, limits: &Limits) {
        self.stopping = lock(&self.shared, |shared| {
            shared.is_over = true;
            let (port, session) = shared.running.as_ref()?;
            match session.ask_to_stop(port, limits) {
                Ok(stopping) => Some(stopping),
                Err(error) => {
                    if machine::is_running(port.pid()) {
                        shared.fail(error.into());
                    }
                    None
                }
            }
        });
    }

    /// The rest of the names, up to a time; then the session is cut off.
    pub fn finish(self, until: Instant, mut take: impl FnMut(NamedCode)) -> SessionOutcome {
        if self.stopping.is_none() {
            // The runtime lists nothing: what it has told is all there is.
            lock(&self.shared, |shared| shared.running = None);
        }
        let in_time = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.named.recv_timeout(left) {
                Ok(named) => take(named),
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => break false,
            }
        };
        if let (true, Some(stopping)) = (in_time, self.stopping) {
            // All is there already; the reply is only taken so that the runtime need not write it to nobody.
            let _ = stopping.wait(&Limits::new(STEP, STEP));
        }
        // Without its session and without anybody who takes names the thread ends.
        drop(self.named);
        lock(&self.shared, |shared| {
            shared.running = None;
            if !in_time {
                shared.fail(MethodSessionError::TimeOver);
            }
            std::mem::take(&mut shared.outcome)
        })
    }
}

/// A thread that panicked has left nothing half done here.
fn lock<T>(shared: &Mutex<Shared>, with: impl FnOnce(&mut Shared) -> T) -> T {
    with(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Begins a session and reads it to its end.
fn follow(
    pid: Pid,
    shared: &Mutex<Shared>,
    named: &SyncSender<NamedCode>,
) -> Result<(), MethodSessionError> {
    let port = Port::find(pid)?;
    let wanted = SessionRequest {
        buffer_mib: BUFFER_MIB,
        rundown_keywords: LOADER | JIT | END,
        stacks: false,
        providers: vec![Provider {
            name: RUNTIME.into(),
            keywords: LOADER | JIT,
            level: INFORMATIONAL,
        }],
    };
    let session = Session::start(&port, &wanted, &Limits::new(STEP, BEGINNING))?;
    let stream = session.stream();
    let is_over = lock(shared, |shared| {
        shared.running = (!shared.is_over).then_some((port, session));
        shared.is_over
    });
    if is_over {
        return Err(MethodSessionError::TimeOver);
    }
    read(stream, shared, named)
}

fn read(
    stream: impl Read,
    shared: &Mutex<Shared>,
    named: &SyncSender<NamedCode>,
) -> Result<(), MethodSessionError> {
    let mut reader = Reader::open(stream)?;
    let mut table = CodeTable::default();
    let mut malformed = 0;
    let ended = loop {
        match reader.next_event() {
            Ok(Some(event)) => match CodeEvent::parse(event.kind, event.payload) {
                Ok(Some(event)) => table.take(event),
                Ok(None) => {}
                Err(_) => malformed += 1,
            },
            Ok(None) => break Ok(()),
            // The process has ended, or was cut off.
            Err(error) => break Err(error),
        }
    };
    for code in table.methods() {
        if named.send(code).is_err() {
            break;
        }
    }
    lock(shared, |shared| {
        shared.outcome.losses = reader.losses();
        shared.outcome.malformed = malformed;
        shared.outcome.forgotten = table.forgotten();
    });
    match ended {
        // What the runtime had told until its process ended is all there is.
        Err(NettraceError {
            problem: Problem::Truncated,
            ..
        }) => Ok(()),
        ended => Ok(ended?),
    }
}
