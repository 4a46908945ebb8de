//! A session of events with a process, in a thread of its own: no runtime holds anybody up but itself.
//!
//! ```text
//! capture's thread                          this session's thread
//! start ───────────────────────────────────> find the port, begin the session
//!                                            read the stream
//! ask_to_stop ── stop ──> the runtime ─────> all that it has (the rundown), the end
//!   finish: in a limited time <──items──────  what was made of it
//! ```

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryIter, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use thiserror::Error;

use super::diagnostics::{
    DiagnosticPort, DiagnosticsError, EventPipeSession, Limits, PortError, SessionRequest,
    SessionStream, Stopping,
};
use crate::machine;
use crate::nettrace::NettraceError;
use crate::trace::Pid;

/// Items that wait for the capture.
const QUEUE: usize = 1024;
/// How long the runtime may take to begin; nobody waits for it meanwhile.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a process may take from closing its files to its end.
const ENDING: Duration = Duration::from_secs(1);
/// How long the reply to a stop may take when all is there.
const REPLY: Duration = Duration::from_secs(1);

/// Why a session gave nothing, or not all.
#[derive(Debug, Error)]
pub enum RuntimeSessionError {
    /// There is no port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The runtime does not answer as it should.
    #[error(transparent)]
    Diagnostics(#[from] DiagnosticsError),
    /// Its events cannot be read.
    #[error(transparent)]
    Events(#[from] NettraceError),
    /// Its stream breaks off.
    #[error("its events cannot be received: {0}")]
    Receive(io::Error),
    /// There is no room for its events, or no file.
    #[error("its events cannot be kept: {0}")]
    Keep(io::Error),
    /// It did not list what it has in time.
    #[error("it did not list its methods in time")]
    TimeOver,
    /// It had not begun when the capture ended.
    #[error("it did not answer before the capture ended")]
    TooLate,
    /// There is no thread for it.
    #[error("no thread can be started: {0}")]
    Thread(io::Error),
}

/// A session that runs, and the thread that reads it.
#[derive(Debug)]
pub(super) struct SessionThread<T> {
    shared: Arc<Mutex<Shared>>,
    items: Receiver<T>,
    stopping: Option<Stopping>,
}

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    running: Option<(DiagnosticPort, EventPipeSession)>,
    has_begun: bool,
    /// No session shall begin any more.
    is_over: bool,
    error: Option<RuntimeSessionError>,
}

impl Shared {
    /// The first error is the reason of those that follow.
    fn fail(&mut self, error: RuntimeSessionError) {
        self.error.get_or_insert(error);
    }
}

/// Whether a session shall not begin any more.
pub(super) struct IsOver<'a>(&'a Mutex<Shared>);

impl IsOver<'_> {
    pub(super) fn get(&self) -> bool {
        lock(self.0, |shared| shared.is_over)
    }
}

impl<T: Send + 'static> SessionThread<T> {
    /// Begins a session in a thread of its own. There `find` looks for the port, if one is needed, and `read` takes the
    /// stream to its end. Waits for nothing.
    pub(super) fn start(
        pid: Pid,
        wanted: SessionRequest,
        find: impl FnOnce(&IsOver<'_>) -> Result<Option<DiagnosticPort>, PortError> + Send + 'static,
        read: impl FnOnce(SessionStream, &SyncSender<T>) -> Result<(), RuntimeSessionError>
        + Send
        + 'static,
    ) -> Result<Self, RuntimeSessionError> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (sender, items) = sync_channel(QUEUE);
        let theirs = Arc::clone(&shared);
        let follow = move |sender: &SyncSender<T>| {
            let Some(port) = find(&IsOver(&theirs))? else {
                return Ok(());
            };
            match begin(port, &wanted, &theirs)? {
                Some(stream) => read(stream, sender),
                None => Ok(()),
            }
        };
        let theirs = Arc::clone(&shared);
        thread::Builder::new()
            .name("runtime events".into())
            .spawn(move || {
                // While there is a sender, the end is waited for.
                if let Err(error) = follow(&sender)
                    && (matches!(error, RuntimeSessionError::Keep(_)) || goes_on(pid))
                {
                    lock(&theirs, |shared| shared.fail(error));
                }
            })
            .map_err(RuntimeSessionError::Thread)?;
        Ok(Self {
            shared,
            items,
            stopping: None,
        })
    }

    /// What the thread has made since the last call.
    pub(super) fn take(&self) -> TryIter<'_, T> {
        self.items.try_iter()
    }

    /// Whether its thread has ended: the process has, or needed no session. What it has made waits to be taken.
    pub(super) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Whether it has ended, or the runtime has said that it begins.
    pub(super) fn has_begun(&self) -> bool {
        self.has_ended() || lock(&self.shared, |shared| shared.has_begun)
    }

    /// Asks the runtime to tell what it has and to end the session. What comes is taken by [`Self::finish`].
    pub(super) fn ask_to_stop(&mut self, limits: &Limits) {
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

    /// The rest of the items, up to a time or until it is `enough`; then the session is cut off. What is missing then is
    /// an error.
    pub(super) fn finish(
        self,
        until: Instant,
        mut enough: impl FnMut() -> bool,
        mut take: impl FnMut(T),
    ) -> Option<RuntimeSessionError> {
        /// How often it is asked whether it is enough.
        const INTERVAL: Duration = Duration::from_millis(50);
        if self.stopping.is_none() {
            // The runtime lists nothing: what it has told is all there is.
            lock(&self.shared, |shared| shared.running = None);
        }
        let in_time = loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.items.recv_timeout(left.min(INTERVAL)) {
                Ok(item) => take(item),
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) if left.is_zero() || enough() => break false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        if let (true, Some(stopping)) = (in_time, self.stopping) {
            // All is there already; the reply is only taken so that the runtime need not write it to nobody.
            let _ = stopping.wait(&Limits::new(REPLY, REPLY));
        }
        // Without its session and without anybody who takes items the thread ends.
        drop(self.items);
        lock(&self.shared, |shared| {
            shared.running = None;
            if !in_time {
                shared.fail(match shared.has_begun {
                    true => RuntimeSessionError::TimeOver,
                    false => RuntimeSessionError::TooLate,
                });
            }
            shared.error.take()
        })
    }
}

/// Whether what failed did not fail because the process ends.
fn goes_on(pid: Pid) -> bool {
    const INTERVAL: Duration = Duration::from_millis(10);
    let until = Instant::now() + ENDING;
    while machine::is_running(pid) {
        if Instant::now() >= until {
            return true;
        }
        thread::sleep(INTERVAL);
    }
    false
}

/// A thread that panicked has left nothing half done here.
fn lock<R>(shared: &Mutex<Shared>, with: impl FnOnce(&mut Shared) -> R) -> R {
    with(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// `None`: it is too late for that.
fn begin(
    port: DiagnosticPort,
    wanted: &SessionRequest,
    shared: &Mutex<Shared>,
) -> Result<Option<SessionStream>, RuntimeSessionError> {
    let session =
        EventPipeSession::start(&port, wanted, &Limits::new(STEP_TIMEOUT, START_TIMEOUT))?;
    let stream = session.stream();
    Ok(lock(shared, |shared| {
        shared.has_begun = true;
        shared.running = (!shared.is_over).then_some((port, session));
        shared.running.is_some().then_some(stream)
    }))
}
