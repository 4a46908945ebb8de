//! An EventPipe session: a stream of events, with a rundown at its end.

use std::io::{self, Read};
use std::sync::Arc;

use super::connection::Connection;
use super::error::DiagnosticsError;
use super::limits::Limits;
use super::message::{CollectVersion, Command, SessionRequest};
use super::port::DiagnosticPort;
use super::request::{request, send};
use crate::bytes::Bytes;

/// A running session. Dropping it ends the session without a rundown, which is safe for the target.
#[derive(Debug)]
pub struct EventPipeSession {
    id: u64,
    connection: Arc<Connection>,
}

impl EventPipeSession {
    /// Starts a session with the newest command that the runtime has.
    ///
    /// # Errors
    /// The runtime is not reachable, or rejects the command.
    pub fn start(
        port: &DiagnosticPort,
        session: &SessionRequest,
        limits: &Limits,
    ) -> Result<Self, DiagnosticsError> {
        let mut last = DiagnosticsError::Malformed("no command was sent");
        for version in [
            CollectVersion::Five,
            CollectVersion::Four,
            CollectVersion::Three,
            CollectVersion::Two,
        ] {
            match request(port, &Command::collect_tracing(version, session), limits) {
                Ok((connection, payload)) => {
                    return Ok(Self {
                        id: session_id(&payload)?,
                        connection: Arc::new(connection),
                    });
                }
                Err(error) if error.is_unknown_command() => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Returns the stream of events.
    ///
    /// The caller must read it while the session runs and until it has stopped: the runtime replies
    /// to the stop command only after the rundown.
    #[must_use]
    pub fn stream(&self) -> SessionStream {
        SessionStream(Arc::clone(&self.connection))
    }

    /// Requests the end of the session.
    ///
    /// # Errors
    /// The runtime is not reachable.
    pub fn request_stop(
        &self,
        port: &DiagnosticPort,
        limits: &Limits,
    ) -> Result<StoppingSession, DiagnosticsError> {
        Ok(StoppingSession {
            connection: send(port, &Command::stop_tracing(self.id), limits)?,
            session: self.id,
        })
    }

    /// Shuts down the stream, so that a pending read returns.
    pub fn shut_down(&self) {
        self.connection.shut_down();
    }
}

/// A session whose end has been requested.
#[derive(Debug)]
pub struct StoppingSession {
    connection: Connection,
    session: u64,
}

impl StoppingSession {
    /// Waits until the runtime has sent all events. Another thread must read the stream meanwhile.
    ///
    /// # Errors
    /// The runtime rejects the command, or does not reply in time.
    pub fn wait(self, limits: &Limits) -> Result<(), DiagnosticsError> {
        let ended = session_id(&self.connection.reply(limits)?)?;
        match ended == self.session {
            true => Ok(()),
            false => Err(DiagnosticsError::Malformed("wrong session id")),
        }
    }
}

impl Drop for EventPipeSession {
    fn drop(&mut self) {
        self.shut_down();
    }
}

fn session_id(payload: &[u8]) -> Result<u64, DiagnosticsError> {
    Bytes(payload)
        .u64()
        .ok_or(DiagnosticsError::Malformed("no session id"))
}

/// The event stream of a session. Dropping the stream ends the session, and vice versa.
///
/// A runtime blocks on a stream that is open but not read. At its exit it would block forever.
#[derive(Debug)]
pub struct SessionStream(Arc<Connection>);

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.0.shut_down();
    }
}

impl Read for SessionStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_blocking(buffer)
    }
}
