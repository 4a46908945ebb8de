//! Why a runtime does not answer as it should.

use std::io;

use thiserror::Error;

use crate::trace::Pid;

/// The answer of a runtime to a command it does not have.
pub(super) const UNKNOWN_COMMAND: u32 = 0x8013_1385;

/// Why asking a runtime failed.
#[derive(Debug, Error)]
pub enum DiagnosticsError {
    /// It is stopped and could not answer.
    #[error("the process is stopped (by a signal or a debugger)")]
    Stopped,
    /// Nobody listens any more, or the user may not connect.
    #[error("its diagnostics socket cannot be connected to: {0}")]
    Connect(io::Error),
    /// Somebody else listens there.
    #[error(
        "its diagnostics socket is held by process {pid} of user {uid}, not by the process itself"
    )]
    Squatted {
        /// Who.
        pid: Pid,
        /// Whose process that is.
        uid: u32,
    },
    /// Nothing came in time.
    #[error("it does not answer on its diagnostics socket")]
    Silent,
    /// The connection broke.
    #[error("its diagnostics socket fails: {0}")]
    Io(io::Error),
    /// No reply that the protocol allows.
    #[error("it answers what the protocol does not allow: {0}")]
    Malformed(&'static str),
    /// It says no.
    #[error("the runtime refuses: {}", meaning(*.0))]
    Refused(u32),
    /// What is asked is larger than a command can be.
    #[error("the command would have {0} bytes; a command has at most 65535")]
    TooLong(usize),
}

impl DiagnosticsError {
    /// The runtime is too old for the command.
    pub(super) fn is_unknown_command(&self) -> bool {
        matches!(self, Self::Refused(UNKNOWN_COMMAND))
    }
}

fn meaning(code: u32) -> String {
    let known = match code {
        0x8013_1384 => "malformed command",
        UNKNOWN_COMMAND => "it does not know the command",
        0x8013_1386 => "not its protocol",
        0x8013_1515 => "not supported",
        0x8000_4005 => "failure (it has 64 sessions at most)",
        0x8013_135b => "not available yet",
        0x8013_1371 => "not set up yet",
        0x8007_0057 => "invalid argument",
        _ => return format!("error {code:#x}"),
    };
    format!("{known} ({code:#x})")
}
