//! The events of a process as they come, into a file: nothing is parsed while capturing, so whatever ends the capture,
//! what had come by then is there.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::diagnostics::{DiagnosticPort, Limits, PortError, SessionRequest};
use super::processes::{Deployment, Detector};
use super::runtime_session::{IsOver, RuntimeSessionError, SessionThread};
use crate::trace::Pid;

/// Bytes that are taken at a time.
const CHUNK: usize = 1 << 16;
/// A runtime opens its port some hundredths of a second after its library is mapped, later on a busy machine: the waits
/// get longer.
const PORT_INTERVAL: Duration = Duration::from_millis(2);
const MAX_PORT_INTERVAL: Duration = Duration::from_millis(50);
const PORT_LIMIT: Duration = Duration::from_secs(30);
/// How often it is told at most that a stream goes on. Runtimes send ten times a second.
const DATA_INTERVAL: Duration = Duration::from_millis(50);

/// Where streams go.
pub trait StreamSink: Send + Sync {
    /// Makes the file for the stream of a process.
    ///
    /// # Errors
    /// There is no room for it.
    fn create(&self, process: Pid) -> io::Result<File>;

    /// Something has come of the stream of a process, which is alive or was just now.
    fn on_data(&self, process: Pid);
}

/// Keeps the streams of all processes.
pub type SharedSink = Arc<dyn StreamSink>;

/// A session whose stream goes to a file.
#[derive(Debug)]
pub struct EventSession {
    session: SessionThread<Infallible>,
    bytes: Arc<AtomicU64>,
    is_stopped: bool,
}

impl EventSession {
    /// Begins a session in a thread of its own. The file is made when the runtime has said that it begins. Waits for
    /// nothing. With `is_new` the port may still come.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        pid: Pid,
        is_new: bool,
        wanted: SessionRequest,
        keep: SharedSink,
    ) -> Result<Self, RuntimeSessionError> {
        let bytes = Arc::new(AtomicU64::new(0));
        let written = Arc::clone(&bytes);
        let limit = if is_new { PORT_LIMIT } else { Duration::ZERO };
        let session = SessionThread::start(
            pid,
            wanted,
            move |is_over| {
                // Others run code made at run time too.
                let Some(runtime) = Detector::default().identify(pid) else {
                    return Ok(None);
                };
                match wait_for_port(pid, limit, is_over) {
                    // It was built without events.
                    Err(PortError::NoSocket { .. }) if runtime.flavour == Deployment::NativeAot => {
                        Ok(None)
                    }
                    found => found.map(Some),
                }
            },
            move |stream, _| {
                let file = keep.create(pid).map_err(RuntimeSessionError::Keep)?;
                copy(stream, &file, &written, || keep.on_data(pid))
            },
        )?;
        Ok(Self {
            session,
            bytes,
            is_stopped: false,
        })
    }

    /// Bytes that are in the file.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether its thread has ended: the process has, or the session never began.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Whether it has ended, or the runtime has said that it begins.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.session.has_begun()
    }

    /// Asks the runtime for the rundown and the end.
    pub fn ask_to_stop(&mut self, limits: &Limits) {
        self.is_stopped = self.has_begun();
        self.session.ask_to_stop(limits);
    }

    /// Waits for the end of the stream, up to a time or until it is `enough`; then it is cut off. Gives why something
    /// may be missing.
    pub fn finish(
        self,
        until: Instant,
        enough: impl FnMut() -> bool,
    ) -> Option<RuntimeSessionError> {
        // Who looks for a port still need not be waited for.
        let until = if self.is_stopped {
            until
        } else {
            Instant::now()
        };
        self.session.finish(until, enough, |never| match never {})
    }
}

/// The port, once it is there.
fn wait_for_port(
    pid: Pid,
    limit: Duration,
    is_over: &IsOver<'_>,
) -> Result<DiagnosticPort, PortError> {
    let begin = Instant::now();
    let mut pace = PORT_INTERVAL;
    loop {
        let found = DiagnosticPort::find(pid);
        let may_come = match &found {
            Err(error) => matches!(error, PortError::NoSocket { .. }),
            Ok(port) => !port.has_key(),
        };
        if !may_come || begin.elapsed() >= limit || is_over.get() {
            return found;
        }
        sleep(pace);
        pace = MAX_PORT_INTERVAL.min(pace * 5 / 4);
    }
}

fn copy(
    mut stream: impl Read,
    mut file: &File,
    written: &AtomicU64,
    goes_on: impl Fn(),
) -> Result<(), RuntimeSessionError> {
    let mut chunk = vec![0; CHUNK];
    let mut told: Option<Instant> = None;
    loop {
        let read = match stream.read(&mut chunk) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            // As a socket ends whose process was killed.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
            Err(error) => return Err(RuntimeSessionError::Receive(error)),
        };
        let part = chunk.get(..read).unwrap_or_default();
        file.write_all(part).map_err(RuntimeSessionError::Keep)?;
        written.fetch_add(read as u64, Ordering::Relaxed);
        if told.is_none_or(|told| told.elapsed() >= DATA_INTERVAL) {
            goes_on();
            told = Some(Instant::now());
        }
    }
}
