//! Imports `perf.data.txt`, the output of `perf script`. Some archives contain no other samples.
//!
//! ```text
//! dotnet  1814/1815  [000]  2191.551277:    1000000 cpu-clock:
//!             7f14fc0f3005 void [App] Program::Main()[OptimizedTier1] (/tmp/perf-1814.map)
//!             7f15002a1f6e [unknown] (/usr/share/dotnet/libcoreclr.so)
//! ```
//! perf has already unwound and symbolized the samples, so the text becomes a trace directly.

mod error;
mod frame;
mod function;
mod header;
mod import;
mod labels;
mod lines;
mod run;
mod written;

pub use error::{OddLine, TextError};
pub use frame::Frame;
pub use header::Header;
pub use import::{WrittenTrace, events, import, import_written};
pub use labels::Labels;
pub use lines::{Leftovers, Sample, each};
pub use written::WrittenError;
pub(crate) use written::read_written;
