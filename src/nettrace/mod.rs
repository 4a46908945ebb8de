//! Reading nettrace: the stream of events that a .NET runtime sends (versions 4 and 5), and what tools that trace the
//! whole machine write (version 6).
//!
//! The format is stated in PerfView's repository (`NetTraceFormat_v5.md`, `NetTraceFormat.md`). A stream is blocks, and
//! what later ones refer to comes before them:
//!
//! ```text
//! Trace | Metadata  Stack  Event ... SequencePoint | Metadata  Stack  Event ... SequencePoint | ... | end
//!         kinds of  ids    refer to  forgets the stacks,
//!         events           both      tells what is missing
//! ```
//! The sender chooses every byte. Memory is bounded, and whatever was whole before the damage is delivered.

mod block;
mod error;
mod event_block;
mod event_metadata;
mod feed;
mod field;
mod field_parser;
mod labels;
mod reader;
mod sequence;
mod stacks;
mod stream_header;
mod threads;
mod trace_info;
mod value;

pub use error::{NettraceError, NettraceErrorKind};
pub use event_metadata::EventMetadata;
pub use field::{Field, FieldType};
pub use labels::Activity;
pub use reader::{Event, Losses, Reader};
pub use stacks::Stack;
pub use threads::Thread;
pub use trace_info::TraceInfo;
pub use value::Value;
