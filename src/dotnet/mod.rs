//! Inspects the .NET runtime of another process: memory, data structures, code and events.
//!
//! All input is untrusted: every value is checked, and every list and search is bounded.

mod code_event;
mod contract;
mod contract_error;
pub mod diagnostics;
mod event_session;
mod execution_manager;
mod memory;
mod metadata_cache;
mod method;
mod method_name;
mod method_name_error;
mod method_namer;
mod method_reader;
mod process_list;
mod processes;
mod profile;
mod profile_error;
mod profile_names;
mod rundown_session;
mod rundown_table;
mod runtime;
mod runtime_error;
mod runtime_events;
mod runtime_file;
mod runtime_values;
mod session_thread;
mod stub_kind;
mod tier;
mod type_reader;
mod type_system;
mod version;

pub use code_event::{CodeEvent, CompiledMethod, MalformedEvent};
pub use contract::Contract;
pub use contract_error::{ContractError, OffsetError, TypeSystemError};
pub use event_session::{EventSession, SharedSink, StreamSink};
pub use memory::{Image, Memory, ProcessMemory, ReadError};
pub use metadata_cache::MetadataCache;
pub use method::{FunctionEntry, Method, MethodKey};
pub use method_name::MethodName;
pub use method_name_error::{MethodDataError, MethodNameError, NamingDisabled};
pub use method_namer::MethodNamer;
pub use process_list::{DiagnosticStatus, DotnetProcess, list_dotnet_processes};
pub use processes::{Deployment, Detector, IdentifyError, RuntimeIdentity};
pub use profile::EventProfile;
pub use profile_error::ProfileError;
pub use rundown_session::{Missed, RundownSession, SessionOutcome};
pub use rundown_table::{MethodRange, RundownTable};
pub use runtime::{Code, CodeLookup, Runtime, Stub};
pub use runtime_error::{AttachError, CodeLookupError, RuntimeFileError};
pub use runtime_events::{RuntimeEventKind, decode, runtime_event_kind};
pub use runtime_file::{RuntimeFile, candidates, maps_runtime, tells_of_runtime};
pub use runtime_values::runtime_value;
pub use session_thread::RuntimeSessionError;
pub use stub_kind::StubKind;
