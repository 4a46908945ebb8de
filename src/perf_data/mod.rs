//! Reader of perf.data recordings, which `perf record` writes to a file or a pipe.
//!
//! See `tools/perf/Documentation/perf.data-file-format.txt`.
//!
//! ```text
//! file   header | attributes | data: record record ... | sections: host, events, build ids ...
//! pipe   magic  | record record ...; the first records contain the attributes and sections
//! ```
//! `perf record --threads` writes a directory: `data` is a file as above; `data.0`, `data.1` ...
//! contain only records. The reader reads each file once. perf writes the records of all CPUs in
//! rounds; the reader returns them in order of time.

mod archive;
mod attribute;
mod deferred;
mod error;
mod event_group;
mod event_name;
mod events;
mod file_header;
mod kernel;
mod magic;
mod numbers;
mod open;
mod pipe;
mod reader;
mod record_stream;
mod recording_info;
mod rounds;
mod swap;
#[cfg(test)]
mod tests;
mod thread_files;
mod tracepoint_field;
mod tracing_data;
mod zstd;

pub use attribute::{Attribute, EventSource, Excluded};
pub use error::{Corruption, PerfDataError};
pub use event_group::EventGroup;
pub(crate) use kernel::{KernelMapping, kernel_mismatch};
pub use open::{Input, OpenRecording, OpenRecordingError, SiblingFiles, Source, open, source};
pub use pipe::CancelCheck;
pub use reader::{Reader, TimedRecord};
pub(crate) use recording_info::section;
pub use recording_info::{ClockReference, RecordedBuildId, RecordingInfo};
pub(crate) use tracepoint_field::{TracepointField, tracepoint_id};
pub(crate) use tracing_data::TracingData;
