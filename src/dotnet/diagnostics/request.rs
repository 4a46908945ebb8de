//! Asking a runtime who it is.

use super::connection::Connection;
use super::error::DiagnosticsError;
use super::limits::Limits;
use super::message::{Command, InfoVersion};
use super::port::DiagnosticPort;
use super::process_info::ProcessInfo;
use crate::machine;

/// What a runtime that is there answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessInfoReply {
    /// Who it is.
    Info(ProcessInfo),
    /// It is older than the question (before .NET 5), and said so.
    TooOld,
}

/// Asks a runtime who it is: the newest form of the question first.
///
/// # Errors
/// It is stopped, somebody else, silent, or answers nonsense.
pub fn query(port: &DiagnosticPort, limits: &Limits) -> Result<ProcessInfoReply, DiagnosticsError> {
    for version in [InfoVersion::Three, InfoVersion::Two, InfoVersion::One] {
        match request(port, &Command::process_info(version), limits) {
            Ok((_, payload)) => {
                let info = ProcessInfo::parse(version, &payload)
                    .ok_or(DiagnosticsError::Malformed("what it says of its process"))?;
                return Ok(ProcessInfoReply::Info(info));
            }
            Err(error) if error.is_unknown_command() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ProcessInfoReply::TooOld)
}

/// Sends a command and takes the reply.
pub(super) fn request(
    port: &DiagnosticPort,
    command: &Command,
    limits: &Limits,
) -> Result<(Connection, Vec<u8>), DiagnosticsError> {
    let connection = send(port, command, limits)?;
    let payload = connection.reply(limits)?;
    Ok((connection, payload))
}

/// Sends a command to a process that runs. One that is stopped would answer when it runs again, to nobody.
pub(super) fn send(
    port: &DiagnosticPort,
    command: &Command,
    limits: &Limits,
) -> Result<Connection, DiagnosticsError> {
    if machine::is_stopped(port.pid()) {
        return Err(DiagnosticsError::Stopped);
    }
    Connection::send(port, command, limits)
}
