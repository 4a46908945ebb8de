//! Requests to a runtime.

use super::connection::Connection;
use super::error::DiagnosticsError;
use super::limits::Limits;
use super::message::{Command, InfoVersion};
use super::port::DiagnosticPort;
use super::process_info::ProcessInfo;
use crate::machine;

/// A reply to a request for process information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessInfoReply {
    /// The information about the process.
    Info(ProcessInfo),
    /// The runtime does not have the command (before .NET 5).
    TooOld,
}

/// Requests process information from a runtime. Tries the newest version of the command first.
///
/// # Errors
/// The process is stopped, another process listens, or the reply is missing or malformed.
pub fn query(port: &DiagnosticPort, limits: &Limits) -> Result<ProcessInfoReply, DiagnosticsError> {
    for version in [InfoVersion::Three, InfoVersion::Two, InfoVersion::One] {
        match request(port, &Command::process_info(version), limits) {
            Ok((_, payload)) => {
                let info = ProcessInfo::parse(version, &payload)?;
                return Ok(ProcessInfoReply::Info(info));
            }
            Err(error) if error.is_unknown_command() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(ProcessInfoReply::TooOld)
}

/// Sends a command and reads the reply.
pub(super) fn request(
    port: &DiagnosticPort,
    command: &Command,
    limits: &Limits,
) -> Result<(Connection, Vec<u8>), DiagnosticsError> {
    let connection = send(port, command, limits)?;
    let payload = connection.reply(limits)?;
    Ok((connection, payload))
}

/// Sends a command to a running process.
///
/// A stopped process would execute the command when it continues, after perfcollect has given up.
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
