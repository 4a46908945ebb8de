//! Client for the diagnostic port of a .NET runtime, an IPC socket in the target's temporary
//! directory.
//!
//! ```text
//! port                finds the socket, or the reason why there is none
//! connection          connects only to the target itself; limits every wait and the total time
//! message             encodes commands, decodes replies
//! request, session    the commands: process information, start and stop of an event session
//! ```
//! A malformed command may crash a runtime. Only this module creates commands, from types without
//! invalid values. dotnet/diagnostics specifies the protocol in
//! `documentation/design-docs/ipc-protocol.md`.

mod connection;
mod error;
mod limits;
mod message;
mod port;
mod process_info;
mod request;
mod session;

pub use error::DiagnosticsError;
pub use limits::Limits;
pub use message::{GC_SETTINGS, Provider, SessionRequest, read_reply};
pub use port::{DiagnosticPort, PortError};
pub use process_info::ProcessInfo;
pub use request::{ProcessInfoReply, query};
pub use session::{EventPipeSession, SessionStream, StoppingSession};
