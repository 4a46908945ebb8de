//! Method names from an event session, for runtimes whose memory perfcollect cannot read.
//!
//! The session records methods when they are compiled and freed. At its end the runtime lists all
//! methods (the rundown). Only then, or when the process ends, the session returns the names.

use std::io::Read;
use std::sync::mpsc::{SyncSender, TryIter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::code_event::{CodeEvent, RUNTIME};
use super::diagnostics::{DiagnosticPort, Excluded, Limits, Provider, SessionRequest};
use super::rundown_table::{MethodRange, RundownTable};
use super::session_thread::{RuntimeSessionError, SessionThread, Wanted};
use crate::nettrace::{Losses, NettraceError, NettraceErrorKind, Reader};
use crate::trace::Pid;

/// Size of the runtime's event buffer. One second of startup produces less than 2 MB of events.
const BUFFER_MIB: u32 = 16;
/// Keywords for modules and for JIT-compiled methods.
const LOADER: u64 = 8;
const JIT: u64 = 0x10;
/// Rundown keyword for a rundown at the end of the session.
const END: u64 = 0x100;
const INFORMATIONAL: u32 = 4;

/// The outcome of a session.
#[derive(Debug, Default)]
pub struct SessionOutcome {
    /// The error because of which names may be missing.
    pub error: Option<RuntimeSessionError>,
    /// Losses without an error.
    pub missed: Missed,
}

/// Counts of lost events and methods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// Losses of the event stream.
    pub losses: Losses,
    /// Events with a malformed payload.
    pub malformed: u64,
    /// Methods beyond the memory limit.
    pub forgotten: u64,
}

/// A running session and the thread that reads its stream.
#[derive(Debug)]
pub struct RundownSession {
    session: SessionThread<MethodRange>,
    missed: Arc<Mutex<Missed>>,
}

impl RundownSession {
    /// Starts a session in a new thread, without waiting. The thread calls `is_needed` first.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub fn start(
        pid: Pid,
        is_needed: impl FnOnce(Pid) -> bool + Send + 'static,
    ) -> Result<Self, RuntimeSessionError> {
        let request = SessionRequest {
            buffer_mib: BUFFER_MIB,
            rundown_keywords: LOADER | JIT | END,
            stacks: false,
            providers: vec![Provider {
                name: RUNTIME.into(),
                keywords: LOADER | JIT,
                level: INFORMATIONAL,
                arguments: String::new(),
                excluded: Excluded::default(),
            }],
        };
        let missed = Arc::new(Mutex::new(Missed::default()));
        let thread_missed = Arc::clone(&missed);
        let session = SessionThread::start(
            pid,
            move |_| {
                let port = is_needed(pid).then(|| DiagnosticPort::find(pid));
                Ok(port.transpose()?.map(|port| Wanted {
                    port,
                    request,
                    context: (),
                }))
            },
            move |stream, (), sender| read(stream, &thread_missed, sender),
        )?;
        Ok(Self { session, missed })
    }

    /// Returns the named methods since the last call.
    pub fn take(&self) -> TryIter<'_, MethodRange> {
        self.session.take()
    }

    /// Returns whether the thread has ended: the process has ended, or needed no session.
    ///
    /// Named methods may still be available.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Requests rundown and end of the session. [`RundownSession::finish`] receives the names.
    pub fn ask_to_stop(&mut self, limits: &Limits) {
        self.session.ask_to_stop(limits);
    }

    /// Receives the remaining names until `deadline`, then closes the session.
    pub fn finish(self, deadline: Instant, take: impl FnMut(MethodRange)) -> SessionOutcome {
        let error = self.session.finish(deadline, || false, take);
        let missed = *self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        SessionOutcome { error, missed }
    }
}

fn read(
    stream: impl Read,
    missed: &Mutex<Missed>,
    sender: &SyncSender<MethodRange>,
) -> Result<(), RuntimeSessionError> {
    let mut reader = Reader::open(stream)?;
    let mut table = RundownTable::default();
    let mut malformed = 0;
    let result = loop {
        match reader.next_event() {
            Ok(Some(event)) => match CodeEvent::parse(event.metadata, event.payload) {
                Ok(Some(event)) => table.take(event),
                Ok(None) => {}
                Err(_) => malformed += 1,
            },
            Ok(None) => break Ok(()),
            // The process has ended, or perfcollect has closed the session.
            Err(error) => break Err(error),
        }
    };
    *missed.lock().unwrap_or_else(PoisonError::into_inner) = Missed {
        losses: reader.losses(),
        malformed,
        forgotten: table.forgotten(),
    };
    for code in table.methods() {
        if sender.send(code).is_err() {
            break;
        }
    }
    match result {
        // The process has ended: there are no more events.
        Err(NettraceError {
            kind: NettraceErrorKind::Truncated,
            ..
        }) => Ok(()),
        result => Ok(result?),
    }
}
