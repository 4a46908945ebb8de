//! perf.data, the file that `perf record` writes: in a file, or through a pipe (`tools/perf/Documentation/perf.data-file-format.txt`).
//!
//! ```text
//! file   header | attributes | data: record record record ...  | sections: host, events, build ids, ...
//! pipe   magic  | record record record ..., of which the first ones hold the attributes and the sections
//! ```
//! `perf record --threads` makes a folder of files: `data`, which is as above, and `data.0`, `data.1` ... of records alone.
//! Read once from the beginning to the end. The records of all CPUs lie in rounds, and come out in order of time.

mod about;
mod archive;
mod attribute;
mod deferred;
mod error;
mod event_group;
mod event_name;
mod events;
mod file_header;
mod kernel;
mod numbers;
mod open;
mod pipe;
mod reader;
mod record_stream;
mod rounds;
mod swap;
#[cfg(test)]
mod tests;
mod thread_files;
mod tracing_data;
mod zstd;

pub(crate) use about::section;
pub use about::{About, BuildId, ClockReference};
pub use attribute::{Attribute, EventSource, Excluded};
pub use error::{Damage, PerfDataError};
pub use event_group::EventGroup;
pub(crate) use kernel::{KernelMapping, kernel_gone};
pub use open::{Beside, Input, OpenError, Opened, Source, open, source};
pub use pipe::CancelCheck;
pub use reader::{Entry, Reader};
pub(crate) use tracing_data::TracingData;
