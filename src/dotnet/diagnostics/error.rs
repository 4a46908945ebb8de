//! Errors of commands to a runtime.

use std::io;

use thiserror::Error;

use crate::trace::Pid;

/// Error code of a runtime that does not have the command.
pub(super) const UNKNOWN_COMMAND: u32 = 0x8013_1385;

/// An error of a command to a runtime.
#[derive(Debug, Error)]
pub enum DiagnosticsError {
    /// The process is stopped and cannot respond.
    #[error("the process is stopped (by a signal or a debugger)")]
    Stopped,
    /// The socket has no listener, or the user may not connect.
    #[error("cannot connect to its diagnostic port: {}{}", .0, remedy(.0))]
    Connect(io::Error),
    /// Another process listens on the socket.
    #[error("process {pid} of user {uid} listens on its diagnostic port, not the process itself")]
    Squatted {
        /// The listening process.
        pid: Pid,
        /// The user of the listening process.
        uid: u32,
    },
    /// The time limit expired.
    #[error("its diagnostic port does not respond in time")]
    Silent,
    /// The connection failed.
    #[error("the connection to its diagnostic port failed: {0}")]
    Io(io::Error),
    /// The reply violates the protocol.
    #[error("malformed reply from its diagnostic port: {0}")]
    Malformed(&'static str),
    /// The runtime returned an error code.
    #[error("the runtime rejected the command: {}", describe(*.0))]
    Refused(u32),
    /// The request exceeds the maximum size of a command.
    #[error("the command is too long ({0} bytes, limit 65535): request fewer providers")]
    TooLong(usize),
}

impl DiagnosticsError {
    /// Returns whether the runtime is too old for the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Refused(UNKNOWN_COMMAND))
    }
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run perfcollect as the user of the process, or as root with CAP_DAC_OVERRIDE"
        }
        _ => "",
    }
}

fn describe(code: u32) -> String {
    let description = match code {
        0x8013_1384 => "malformed command",
        UNKNOWN_COMMAND => "unknown command",
        0x8013_1386 => "unknown protocol",
        0x8013_1515 => "not supported",
        0x8000_4005 => "failure (a runtime has at most 64 sessions)",
        0x8013_135b => "not available yet",
        0x8013_1371 => "not initialized yet",
        0x8007_0057 => "invalid argument",
        _ => return format!("error {code:#x}"),
    };
    format!("{description} ({code:#x})")
}
