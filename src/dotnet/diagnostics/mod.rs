//! Asking a .NET runtime through its diagnostics port: a Unix socket in the target's temporary directory.
//!
//! ```text
//! port::Port          which socket, and why there is none
//! connection          connect only to the target itself; a limit on every wait and on the whole
//! message             commands as bytes, replies from bytes
//! ask, session        what is asked: who are you, events please, stop
//! ```
//! A runtime may die of a malformed command, so commands are made here only, from values that have no wrong ones.
//! The protocol is stated in dotnet/diagnostics, `documentation/design-docs/ipc-protocol.md`.

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
pub use session::{EventPipeSession, SessionStream, Stopping};
