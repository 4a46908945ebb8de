//! Reader for nettrace, the event stream of .NET runtimes (versions 4 and 5) and of system-wide
//! tracing tools (version 6).
//!
//! PerfView's repository specifies the format (`NetTraceFormat_v5.md`, `NetTraceFormat.md`). A
//! stream consists of blocks. A block refers only to earlier blocks:
//!
//! ```text
//! Trace | Metadata  Stack  Event ... SequencePoint | Metadata  Stack  Event ... SequencePoint | ... | end
//!         event     ids    refer to  resets the stacks,
//!         metadata         both      reports dropped events
//! ```
//! The input is untrusted: the sender chooses every byte. Memory is bounded. The reader returns all
//! complete events before corrupt data. [`AddedEvents`] adds events to a stream of a runtime.

mod added_events;
mod block;
mod code_references;
mod error;
mod event_block;
mod event_metadata;
mod feed;
mod field;
mod field_parser;
mod kind_map;
mod labels;
mod reader;
mod relay;
mod sequence;
mod stacks;
mod stream_header;
mod threads;
mod trace_info;
mod value;

pub use added_events::{AddedEvents, OBJECTS_HEADER_BYTES};
pub use code_references::{CodeReferences, StreamPart};
pub use error::{NettraceError, NettraceErrorKind};
pub use event_metadata::EventMetadata;
pub use field::{Field, FieldType};
pub use kind_map::KindMap;
pub use labels::Activity;
pub use reader::{Event, Losses, Reader};
pub use relay::Relay;
pub use stacks::Stack;
pub use threads::Thread;
pub use trace_info::TraceInfo;
pub use value::Value;
