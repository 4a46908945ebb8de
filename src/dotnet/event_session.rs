//! The session whose event stream a capture keeps.
//!
//! If the capture is killed, the file has all events received up to then.

use std::fs::File;
use std::io;
use std::iter::repeat;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::diagnostics::{DiagnosticPort, Limits, PortError, SessionRequest, SessionStream};
use super::processes::{Deployment, Detector};
use super::runtime_settings::RuntimeSettings;
use super::session_thread::{IsOver, RuntimeSessionError, SessionThread, Wanted};
use super::stream_copy::{StreamCopy, StreamItem};
use super::stream_drain::drain;
use super::stream_queue::{QueueReader, StreamQueue, StreamRoom};
use super::stream_size::{GrowingSize, StreamSize};
use crate::machine;
use crate::trace::{Pid, StreamContent};

/// Age up to which a process may still start its runtime.
const START_TIME: Duration = Duration::from_secs(2);
/// Intervals of attempts to find the port.
///
/// A runtime opens its port some hundredths of a second after its library is mapped, on a busy
/// machine later. The interval therefore grows.
const PORT_INTERVAL: Duration = Duration::from_millis(2);
const MAX_PORT_INTERVAL: Duration = Duration::from_millis(50);
const PORT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same of NativeAOT programs, most of which never open a port.
const AOT_PORT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a search for a port to end after the capture.
const SEARCH_TIMEOUT: Duration = Duration::from_millis(200);

/// Destination of event streams.
pub trait StreamSink: Send + Sync {
    /// Creates the file for a stream of a process.
    ///
    /// # Errors
    /// The file cannot be created, for example because the disk is full.
    fn create(&self, process: Pid, content: StreamContent) -> io::Result<File>;

    /// Called after data of a process has arrived. The process is running, or has just ended.
    fn on_data(&self, process: Pid);

    /// Called after the main stream of a process has ended, also without data.
    fn on_end(&self, process: Pid);
}

/// Shared destination of the streams of all processes.
pub type SharedSink = Arc<dyn StreamSink>;

/// Versions of .NET that cannot exclude events, and get a second session instead.
const SPLIT_VERSIONS: RangeInclusive<u32> = 8..=9;

/// The session of a process, and its second one if it has two. Each copies its stream to a file.
#[derive(Debug)]
pub struct EventSession {
    sessions: Vec<SessionThread<StreamItem>>,
    size: Arc<GrowingSize>,
    /// For each session whose thread still searches for the port: time until which it may end.
    search_ends: Vec<Option<Instant>>,
}

impl EventSession {
    /// Starts a session in a new thread, without waiting for it. A runtime that cannot exclude events
    /// gets a second session, in another thread.
    ///
    /// The thread creates the file when the runtime has started the session. With `is_new`, it
    /// waits for the port of a starting runtime.
    ///
    /// The session has a rundown only if `rundown` is set or nothing else has the names of methods:
    /// the rundown of a runtime that unloads code at that time may crash the process (.NET 9, 10).
    /// Without it, the file gets the settings of the runtime.
    ///
    /// `room` is what the streams of the capture share, and those of the user.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(
        pid: Pid,
        is_new: bool,
        mut request: SessionRequest,
        rundown: bool,
        room: StreamRoom,
        sink: SharedSink,
    ) -> Result<Self, RuntimeSessionError> {
        let size = Arc::new(GrowingSize::default());
        let (split, is_split) = sync_channel::<()>(1);
        let target = StreamTarget {
            pid,
            room,
            sink,
            size: Arc::clone(&size),
        };
        // It waits until the first one knows the version of the runtime.
        let second = request
            .clone()
            .split_excluded()
            .map(|request| {
                let target = target.clone();
                SessionThread::start(
                    pid,
                    move |_| match is_split.recv() {
                        Ok(()) => Ok(Some(Wanted {
                            port: DiagnosticPort::find(pid)?,
                            request,
                            context: (),
                        })),
                        Err(_) => Ok(None),
                    },
                    move |stream, (), sender| {
                        target.keep(stream, StreamContent::Collections, None, sender)
                    },
                )
            })
            .transpose()?;
        // One that was found by its executable, in the moment in which a shell became it, has no port yet.
        let is_new = is_new || machine::age(pid).is_some_and(|age| age < START_TIME);
        let timeout = if is_new { PORT_TIMEOUT } else { Duration::ZERO };
        let first = SessionThread::start(
            pid,
            move |is_over| {
                // Processes with JIT code of other runtimes need no session.
                let runtime = match Detector::default().identify(pid) {
                    Ok(Some(runtime)) => runtime,
                    Err(error) if error.lacks_descriptors() => {
                        return Err(PortError::Proc(Errno::MFILE.into()));
                    }
                    _ => return Ok(None),
                };
                let is_aot = runtime.flavour == Deployment::NativeAot;
                let limit = if is_aot {
                    AOT_PORT_TIMEOUT
                } else {
                    PORT_TIMEOUT
                };
                let port = match wait_for_port(pid, timeout.min(limit), is_over) {
                    // The program was built without event support.
                    Err(PortError::NoSocket { .. }) if is_aot => return Ok(None),
                    port => port?,
                };
                let settings = if rundown || runtime.needs_rundown(pid) {
                    None
                } else {
                    request.rundown_keywords = 0;
                    RuntimeSettings::read(pid, &runtime)
                };
                let needs_split = |major| SPLIT_VERSIONS.contains(&major);
                if runtime.major().is_some_and(needs_split) && split.send(()).is_ok() {
                    request.split_excluded();
                }
                Ok(Some(Wanted {
                    port,
                    request,
                    context: settings,
                }))
            },
            move |stream, settings, sender| {
                target.keep(stream, StreamContent::Main, settings, sender)
            },
        )?;
        Ok(Self {
            sessions: [first].into_iter().chain(second).collect(),
            size,
            search_ends: Vec::new(),
        })
    }

    /// Returns what the stream refers to since the last call.
    pub fn take(&self) -> impl Iterator<Item = StreamItem> {
        self.sessions.iter().flat_map(SessionThread::take)
    }

    /// Returns the size of its streams.
    #[must_use]
    pub fn size(&self) -> StreamSize {
        self.size.get()
    }

    /// Returns whether the threads have ended: the process has ended, or no session started. After
    /// an error of one session, the other one is of no use.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let mut sessions = self.sessions.iter();
        sessions.clone().all(SessionThread::has_ended) || sessions.any(SessionThread::has_failed)
    }

    /// Returns whether the session has ended, or the runtime has started it.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.sessions.iter().all(SessionThread::has_started)
    }

    /// Requests the rundown and the end of the session.
    pub fn ask_to_stop(&mut self, limits: &Limits) {
        for session in &mut self.sessions {
            let search_end = Instant::now() + SEARCH_TIMEOUT;
            self.search_ends
                .push((!session.has_started()).then_some(search_end));
            session.ask_to_stop(limits);
        }
    }

    /// Waits for the end of the stream until `deadline` or until `is_cancelled`, then closes the
    /// session. Passes the remaining items to `take`. Returns the reason if the stream may
    /// be incomplete.
    pub fn finish(
        self,
        deadline: Instant,
        mut is_cancelled: impl FnMut() -> bool,
        mut take: impl FnMut(StreamItem),
    ) -> Option<RuntimeSessionError> {
        let search_ends = self.search_ends.into_iter().chain(repeat(None));
        let sessions = self.sessions.into_iter().zip(search_ends);
        let errors = sessions.map(|(session, search_end)| {
            // A thread that is still searching for the port has no stream to wait for.
            let deadline = search_end.unwrap_or(deadline);
            session.finish(deadline, &mut is_cancelled, &mut take)
        });
        // The first error may be the cause of the second one. A session that is closed because the
        // other one failed is late.
        let errors = errors.collect::<Vec<_>>().into_iter().flatten();
        errors.min_by_key(RuntimeSessionError::is_late)
    }
}

/// Destination of the streams of a process.
#[derive(Clone)]
struct StreamTarget {
    pid: Pid,
    room: StreamRoom,
    sink: SharedSink,
    size: Arc<GrowingSize>,
}

impl StreamTarget {
    /// Copies a stream to its file, up to its end.
    fn keep(
        self,
        stream: SessionStream,
        content: StreamContent,
        settings: Option<RuntimeSettings>,
        sender: &SyncSender<StreamItem>,
    ) -> Result<(), RuntimeSessionError> {
        let Self {
            pid,
            room,
            sink,
            size,
        } = self;
        let queue = Arc::new(StreamQueue::new(room));
        let (parts, sender) = (QueueReader(Arc::clone(&queue)), sender.clone());
        let write = move || {
            let file = sink.create(pid, content);
            let file = file.map_err(RuntimeSessionError::Keep)?;
            let copy = StreamCopy::new(parts, file, size, || sink.on_data(pid));
            let copied = copy.run(content, settings.as_ref(), &sender);
            if content == StreamContent::Main {
                sink.on_end(pid);
            }
            copied
        };
        let writer = thread::Builder::new().name("runtime stream".into());
        let writer = writer.spawn(write).map_err(RuntimeSessionError::Thread)?;
        drain(stream, &queue);
        // The stream is closed now: the runtime waits for nothing.
        let panicked = |_| Err(RuntimeSessionError::Keep(io::Error::other("a bug")));
        writer.join().unwrap_or_else(panicked)
    }
}

/// Waits until the process has a port.
fn wait_for_port(
    pid: Pid,
    timeout: Duration,
    is_over: &IsOver<'_>,
) -> Result<DiagnosticPort, PortError> {
    let start = Instant::now();
    let mut interval = PORT_INTERVAL;
    loop {
        let port = DiagnosticPort::find(pid);
        let may_appear = match &port {
            Err(error) => matches!(error, PortError::NoSocket { .. }),
            Ok(port) => !port.has_key(),
        };
        if !may_appear || start.elapsed() >= timeout || is_over.get() {
            return port;
        }
        sleep(interval);
        interval = MAX_PORT_INTERVAL.min(interval * 5 / 4);
    }
}
