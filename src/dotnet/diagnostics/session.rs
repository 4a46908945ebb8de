//! A session: events from when it begins, and at its end all that the runtime has (the rundown).

use std::io::{self, Read};
use std::sync::Arc;

use super::connection::Connection;
use super::error::DiagnosticsError;
use super::limits::Limits;
use super::message::{CollectVersion, Command, SessionRequest};
use super::port::DiagnosticPort;
use super::request::{request, send};
use crate::bytes::Bytes;

/// A session that runs. Dropped, it ends without a rundown, which does the target no harm.
#[derive(Debug)]
pub struct EventPipeSession {
    id: u64,
    connection: Arc<Connection>,
}

impl EventPipeSession {
    /// Begins a session, with the newest command that the runtime knows.
    ///
    /// # Errors
    /// The runtime cannot be reached, or refuses.
    pub fn start(
        port: &DiagnosticPort,
        wanted: &SessionRequest,
        limits: &Limits,
    ) -> Result<Self, DiagnosticsError> {
        let mut last = DiagnosticsError::Malformed("no command was sent");
        for version in [
            CollectVersion::Five,
            CollectVersion::Four,
            CollectVersion::Three,
            CollectVersion::Two,
        ] {
            match request(port, &Command::collect_tracing(version, wanted), limits) {
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

    /// What the session delivers. It must be read while the session runs, and while it is stopped: the reply to the stop
    /// comes only behind the rundown.
    #[must_use]
    pub fn stream(&self) -> SessionStream {
        SessionStream(Arc::clone(&self.connection))
    }

    /// Asks the runtime to end the session.
    ///
    /// # Errors
    /// The runtime cannot be reached.
    pub fn ask_to_stop(
        &self,
        port: &DiagnosticPort,
        limits: &Limits,
    ) -> Result<Stopping, DiagnosticsError> {
        Ok(Stopping {
            connection: send(port, &Command::stop_tracing(self.id), limits)?,
            session: self.id,
        })
    }

    /// Ends the stream here, for whoever waits for it.
    pub fn cut_off(&self) {
        self.connection.cut_off();
    }
}

/// A session that was asked to end.
#[derive(Debug)]
pub struct Stopping {
    connection: Connection,
    session: u64,
}

impl Stopping {
    /// Waits until all was delivered: somebody else must read the stream meanwhile.
    ///
    /// # Errors
    /// The runtime refuses, or takes too long.
    pub fn wait(self, limits: &Limits) -> Result<(), DiagnosticsError> {
        let ended = session_id(&self.connection.reply(limits)?)?;
        match ended == self.session {
            true => Ok(()),
            false => Err(DiagnosticsError::Malformed("the end of another session")),
        }
    }
}

impl Drop for EventPipeSession {
    fn drop(&mut self) {
        self.cut_off();
    }
}

fn session_id(payload: &[u8]) -> Result<u64, DiagnosticsError> {
    Bytes(payload)
        .u64()
        .ok_or(DiagnosticsError::Malformed("no session"))
}

/// The bytes a session delivers. Ends with the session, and the session with it: a runtime waits for whoever leaves a
/// stream open and does not read it, at its exit for ever.
#[derive(Debug)]
pub struct SessionStream(Arc<Connection>);

impl Drop for SessionStream {
    fn drop(&mut self) {
        self.0.cut_off();
    }
}

impl Read for SessionStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read_on(buffer)
    }
}
