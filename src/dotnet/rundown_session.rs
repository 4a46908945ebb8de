//! The names of a process's methods from a session of events, for runtimes whose memory does not tell them.
//!
//! While the session runs the methods that are made and freed are noted. At its end the runtime lists all there are (the
//! rundown), and then names are sent. Where the process ends by itself they come then; `take` looks for them.

use std::io::Read;
use std::sync::mpsc::{SyncSender, TryIter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::code_event::{CodeEvent, RUNTIME};
use super::diagnostics::{DiagnosticPort, Limits, Provider, SessionRequest};
use super::rundown_table::{MethodRange, RundownTable};
use super::runtime_session::{RuntimeSessionError, SessionThread};
use crate::nettrace::{Losses, NettraceError, NettraceErrorKind, Reader};
use crate::trace::Pid;

/// What the runtime may hold back: a second of start-up makes less than 2 MB.
const BUFFER_MIB: u32 = 16;
/// Groups of events: modules; methods the JIT compiler makes.
const LOADER: u64 = 8;
const JIT: u64 = 0x10;
/// Of the rundown: its end.
const END: u64 = 0x100;
const INFORMATIONAL: u32 = 4;

/// How a session went.
#[derive(Debug, Default)]
pub struct SessionOutcome {
    /// Why there may be names missing.
    pub error: Option<RuntimeSessionError>,
    /// What was missed though there was no error.
    pub missed: Missed,
}

/// What a session did not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Missed {
    /// What did not come through.
    pub losses: Losses,
    /// Events that do not hold what their kind has.
    pub malformed: u64,
    /// Methods beyond the limit of what is kept.
    pub forgotten: u64,
}

/// A session that runs, and the thread that reads it.
#[derive(Debug)]
pub struct RundownSession {
    session: SessionThread<MethodRange>,
    missed: Arc<Mutex<Missed>>,
}

impl RundownSession {
    /// Begins a session in a thread of its own, where it also finds out whether one is needed. Waits for nothing.
    ///
    /// # Errors
    /// There is no thread.
    pub fn start(
        pid: Pid,
        is_needed: impl FnOnce(Pid) -> bool + Send + 'static,
    ) -> Result<Self, RuntimeSessionError> {
        let wanted = SessionRequest {
            buffer_mib: BUFFER_MIB,
            rundown_keywords: LOADER | JIT | END,
            stacks: false,
            providers: vec![Provider {
                name: RUNTIME.into(),
                keywords: LOADER | JIT,
                level: INFORMATIONAL,
                arguments: String::new(),
            }],
        };
        let missed = Arc::new(Mutex::new(Missed::default()));
        let theirs = Arc::clone(&missed);
        let session = SessionThread::start(
            pid,
            wanted,
            move |_| {
                is_needed(pid)
                    .then(|| DiagnosticPort::find(pid))
                    .transpose()
            },
            move |stream, named| read(stream, &theirs, named),
        )?;
        Ok(Self { session, missed })
    }

    /// What has got a name since the last call.
    pub fn take(&self) -> TryIter<'_, MethodRange> {
        self.session.take()
    }

    /// Whether its thread has ended: the process has, or needed no session. What it has told waits to be taken.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.session.has_ended()
    }

    /// Asks the runtime to list its methods and to end the session. What comes is taken by [`RundownSession::finish`].
    pub fn ask_to_stop(&mut self, limits: &Limits) {
        self.session.ask_to_stop(limits);
    }

    /// The rest of the names, up to a time; then the session is cut off.
    pub fn finish(self, until: Instant, take: impl FnMut(MethodRange)) -> SessionOutcome {
        let error = self.session.finish(until, || false, take);
        let missed = *self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        SessionOutcome { error, missed }
    }
}

fn read(
    stream: impl Read,
    missed: &Mutex<Missed>,
    named: &SyncSender<MethodRange>,
) -> Result<(), RuntimeSessionError> {
    let mut reader = Reader::open(stream)?;
    let mut table = RundownTable::default();
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
    *missed.lock().unwrap_or_else(PoisonError::into_inner) = Missed {
        losses: reader.losses(),
        malformed,
        forgotten: table.forgotten(),
    };
    for code in table.methods() {
        if named.send(code).is_err() {
            break;
        }
    }
    match ended {
        // What the runtime had told until its process ended is all there is.
        Err(NettraceError {
            kind: NettraceErrorKind::Truncated,
            ..
        }) => Ok(()),
        ended => Ok(ended?),
    }
}
