//! Client for the diagnostic port of a .NET runtime, an IPC socket in the target's temporary
//! directory.
//!
//! ```text
//! port                 finds the socket, or the reason why there is none
//! connection           connects only to the target itself; limits every wait and the total time
//! message              encodes commands, decodes replies
//! request              the command for process information
//! eventpipe_session    the commands that start and stop an event session
//! ```
//! A malformed command may crash a runtime. Only this module creates commands, from types without
//! invalid values. dotnet/diagnostics specifies the protocol in
//! `documentation/design-docs/ipc-protocol.md`.

mod connection;
mod error;
mod eventpipe_session;
mod limits;
mod message;
mod port;
mod process_info;
mod request;

pub use error::DiagnosticsError;
pub use eventpipe_session::{EventPipeSession, SessionStream, StoppingSession};
pub use limits::Limits;
pub use message::{Excluded, GC_SETTINGS, Provider, SessionRequest, read_reply};
pub use port::{DiagnosticPort, PortError};
pub use process_info::ProcessInfo;
pub use request::{ProcessInfoReply, query};
