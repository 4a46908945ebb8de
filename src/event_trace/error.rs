//! Reasons why an event stream is no trace.

use crate::nettrace::NettraceError;

/// An event stream cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum EventTraceError {
    /// The header is corrupt or of an unknown version.
    #[error("cannot view {path}: {source}")]
    Header {
        /// Path of the file.
        path: String,
        /// Cause.
        source: NettraceError,
    },
    /// The stream is of a whole system: perfcollect or `dotnet-trace collect-linux` wrote it.
    #[error(
        "cannot view {path}: it is a nettrace file of version 6, which PerfView opens; a capture of perfcollect has the same in NAME.trace.zip beside it"
    )]
    SystemWide {
        /// Path of the file.
        path: String,
    },
    /// The file is a dump of a heap.
    #[error(
        "cannot view {path}: it is a heap dump, which `dotnet-gcdump report` and PerfView open"
    )]
    HeapDump {
        /// Path of the file.
        path: String,
    },
}
