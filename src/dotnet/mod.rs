//! The .NET runtime of another process, seen from outside: its memory, the layout of its structures, the code it knows.
//!
//! Everything read is chosen by that process: every number is checked, every list and search has an end.

mod assemblies;
mod code_event;
mod code_map;
mod code_table;
mod contract;
pub mod diagnostics;
mod event_session;
mod file_bytes;
mod memory;
mod method;
mod method_name;
mod method_reader;
mod method_session;
mod names;
mod processes;
mod profile;
mod profile_error;
mod profile_names;
mod runtime;
mod runtime_events;
mod runtime_file;
mod runtime_session;
mod runtime_values;
mod stub_kind;
mod survey;
mod tier;
mod type_reader;
mod type_system;
mod version;

pub use assemblies::Assemblies;
pub use code_event::{CodeEvent, CompiledMethod, MalformedEvent};
pub use code_table::{CodeTable, NamedCode};
pub use contract::Contract;
pub use event_session::{EventSession, KeepStream, KeepStreams};
pub use file_bytes::FileBytes;
pub use memory::{Image, Memory, ProcessMemory};
pub use method::{Function, Method, MethodKey};
pub use method_name::MethodName;
pub use method_session::{MethodSession, Missed, SessionOutcome};
pub use names::{MethodNames, NamesOff};
pub use processes::{Detector, Flavour, RuntimeIdentity};
pub use profile::EventProfile;
pub use profile_error::ProfileError;
pub use runtime::{Code, Found, Runtime, Stub};
pub use runtime_events::{RuntimeEventKind, decode, runtime_event_kind};
pub use runtime_file::{RuntimeFile, candidates, tells_of_runtime};
pub use runtime_session::RuntimeSessionError;
pub use runtime_values::runtime_value;
pub use stub_kind::StubKind;
pub use survey::{DotnetProcess, Reach, survey};
