//! An event session with a dedicated thread, so that a slow runtime delays only its own session.
//!
//! ```text
//! capture thread                            session thread
//! start ───────────────────────────────────> find the port, start the session
//!                                            read the stream
//! ask_to_stop ── stop ──> the runtime ─────> the rundown, the end of the stream
//!   finish: in a limited time <──items──────  the results
//! ```

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryIter, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use thiserror::Error;

use super::diagnostics::{
    DiagnosticPort, DiagnosticsError, EventPipeSession, Limits, PortError, SessionRequest,
    SessionStream, StoppingSession,
};
use crate::machine;
use crate::nettrace::NettraceError;
use crate::trace::Pid;

/// Capacity of the channel to the capture thread.
const QUEUE: usize = 1024;
/// Time limits for the start of a session. Only the session thread waits.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Time limit from the closing of a process's files to its end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for the reply to a stop command after the end of the stream.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why the result of a session is missing or incomplete.
#[derive(Debug, Error)]
pub enum RuntimeSessionError {
    /// The process has no accessible port.
    #[error(transparent)]
    Port(#[from] PortError),
    /// A command to the runtime failed.
    #[error(transparent)]
    Diagnostics(#[from] DiagnosticsError),
    /// The event stream is not readable.
    #[error(transparent)]
    Events(#[from] NettraceError),
    /// The connection failed while events were received.
    #[error("cannot receive its events: {0}")]
    Receive(io::Error),
    /// The file for the events cannot be created or written.
    #[error("cannot write its events: {0}")]
    Keep(io::Error),
    /// The rundown did not end in time.
    #[error("its last events or its method rundown did not arrive in time")]
    TimeOver,
    /// The session had not started when the capture ended.
    #[error("it did not start a session before the capture ended")]
    TooLate,
    /// The session thread cannot be created.
    #[error("cannot create a thread: {0}")]
    Thread(io::Error),
}

impl RuntimeSessionError {
    /// Returns whether the session was closed before it was done.
    pub(super) fn is_late(&self) -> bool {
        matches!(self, Self::TimeOver | Self::TooLate)
    }
}

/// A running session and the thread that reads its stream.
#[derive(Debug)]
pub(super) struct SessionThread<T> {
    shared: Arc<Mutex<Shared>>,
    items: Receiver<T>,
    stopping: Option<StoppingSession>,
}

/// A session to start.
pub(super) struct Wanted<C> {
    pub(super) port: DiagnosticPort,
    pub(super) request: SessionRequest,
    /// What the reader of the stream needs.
    pub(super) context: C,
}

/// State that both threads access.
#[derive(Debug, Default)]
struct Shared {
    running: Option<(DiagnosticPort, EventPipeSession)>,
    has_started: bool,
    /// Set when the capture ends. Prevents the start of a session.
    is_over: bool,
    error: Option<RuntimeSessionError>,
}

impl Shared {
    /// Keeps the first error, because it causes the later ones.
    fn fail(&mut self, error: RuntimeSessionError) {
        self.error.get_or_insert(error);
    }
}

/// Handle to check whether the capture has ended.
pub(super) struct IsOver<'a>(&'a Mutex<Shared>);

impl IsOver<'_> {
    pub(super) fn get(&self) -> bool {
        lock(self.0, |shared| shared.is_over)
    }
}

impl<T: Send + 'static> SessionThread<T> {
    /// Starts a session in a new thread, without waiting for it.
    ///
    /// In that thread, `find` returns the port and the request if a session is needed, and `read`
    /// reads the stream to its end.
    pub(super) fn start<C>(
        pid: Pid,
        find: impl FnOnce(&IsOver<'_>) -> Result<Option<Wanted<C>>, PortError> + Send + 'static,
        read: impl FnOnce(SessionStream, C, &SyncSender<T>) -> Result<(), RuntimeSessionError>
        + Send
        + 'static,
    ) -> Result<Self, RuntimeSessionError> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let (sender, items) = sync_channel(QUEUE);
        let thread_shared = Arc::clone(&shared);
        let run = move |sender: &SyncSender<T>| {
            let Some(wanted) = find(&IsOver(&thread_shared))? else {
                return Ok(());
            };
            match start_session(wanted.port, &wanted.request, &thread_shared)? {
                Some(stream) => read(stream, wanted.context, sender),
                None => Ok(()),
            }
        };
        let thread_shared = Arc::clone(&shared);
        thread::Builder::new()
            .name("runtime events".into())
            .spawn(move || {
                machine::reset_thread_priority();
                // The sender lives until the error is stored: `finish` waits for its end.
                if let Err(error) = run(&sender)
                    && (matches!(error, RuntimeSessionError::Keep(_)) || keeps_running(pid))
                {
                    lock(&thread_shared, |shared| shared.fail(error));
                }
            })
            .map_err(RuntimeSessionError::Thread)?;
        Ok(Self {
            shared,
            items,
            stopping: None,
        })
    }

    /// Returns the results since the last call.
    pub(super) fn take(&self) -> TryIter<'_, T> {
        self.items.try_iter()
    }

    /// Returns whether the thread has ended: the process has ended, or needed no session.
    ///
    /// Results may still be available.
    pub(super) fn has_ended(&self) -> bool {
        Arc::strong_count(&self.shared) == 1
    }

    /// Returns whether the thread has ended with an error.
    pub(super) fn has_failed(&self) -> bool {
        self.has_ended() && lock(&self.shared, |shared| shared.error.is_some())
    }

    /// Returns whether the session has ended, or the runtime has started it.
    pub(super) fn has_started(&self) -> bool {
        self.has_ended() || lock(&self.shared, |shared| shared.has_started)
    }

    /// Requests the rundown and the end of the session. [`Self::finish`] receives the results.
    pub(super) fn ask_to_stop(&mut self, limits: &Limits) {
        self.stopping = lock(&self.shared, |shared| {
            shared.is_over = true;
            let (port, session) = shared.running.as_ref()?;
            match session.request_stop(port, limits) {
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

    /// Receives the remaining results until `deadline` or until `is_cancelled`, then closes the
    /// session. Returns an error if results are missing.
    pub(super) fn finish(
        self,
        deadline: Instant,
        mut is_cancelled: impl FnMut() -> bool,
        mut take: impl FnMut(T),
    ) -> Option<RuntimeSessionError> {
        /// Interval of the checks for cancellation.
        const INTERVAL: Duration = Duration::from_millis(50);
        if self.stopping.is_none() {
            // Without a stop command there is no rundown to wait for.
            lock(&self.shared, |shared| shared.running = None);
        }
        let mut late = 0;
        let in_time = loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = match is_cancelled() {
                true => Duration::ZERO,
                false => left.min(INTERVAL),
            };
            match self.items.recv_timeout(wait) {
                // A stream without end must not delay the end.
                Ok(_) if late > QUEUE => break false,
                Ok(item) => {
                    late += usize::from(wait.is_zero());
                    take(item);
                }
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) if wait.is_zero() => break false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        if let (true, Some(stopping)) = (in_time, self.stopping) {
            // All results have arrived. Reading the reply avoids a write error in the runtime.
            let _ = stopping.wait(&Limits::new(REPLY_TIMEOUT, REPLY_TIMEOUT));
        }
        // The thread ends when it has no session and no receiver.
        drop(self.items);
        lock(&self.shared, |shared| {
            shared.running = None;
            if !in_time {
                shared.fail(match shared.has_started {
                    true => RuntimeSessionError::TimeOver,
                    false => RuntimeSessionError::TooLate,
                });
            }
            shared.error.take()
        })
    }
}

/// Returns whether the process is still running after [`EXIT_TIMEOUT`].
///
/// An error of a process that exits is expected.
fn keeps_running(pid: Pid) -> bool {
    const INTERVAL: Duration = Duration::from_millis(10);
    let deadline = Instant::now() + EXIT_TIMEOUT;
    while machine::is_running(pid) {
        if Instant::now() >= deadline {
            return true;
        }
        thread::sleep(INTERVAL);
    }
    false
}

/// Locks the state. A panic of the other thread cannot leave it inconsistent.
fn lock<R>(shared: &Mutex<Shared>, with: impl FnOnce(&mut Shared) -> R) -> R {
    with(&mut shared.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Starts a session. Returns `None` if the capture has ended meanwhile.
fn start_session(
    port: DiagnosticPort,
    request: &SessionRequest,
    shared: &Mutex<Shared>,
) -> Result<Option<SessionStream>, RuntimeSessionError> {
    let session =
        EventPipeSession::start(&port, request, &Limits::new(STEP_TIMEOUT, START_TIMEOUT))?;
    let stream = session.stream();
    let late = lock(shared, |shared| {
        shared.has_started = true;
        if shared.is_over {
            return Some((port, session));
        }
        shared.running = Some((port, session));
        None
    });
    let Some((port, session)) = late else {
        return Ok(Some(stream));
    };
    // The runtime would notice a closed stream only at its next event.
    let limits = Limits::new(STEP_TIMEOUT, STEP_TIMEOUT);
    if let Ok(stopping) = session.request_stop(&port, &limits) {
        let _ = stopping.wait(&limits);
    }
    Ok(None)
}
