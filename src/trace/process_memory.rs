//! The memory of the processes that a capture named.

use serde::{Deserialize, Serialize};

/// The resident memory of a process (`VmRSS`), read once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessMemory {
    /// Process id.
    pub pid: i32,
    /// KiB when it was read first, at the start of the capture or of the process.
    pub first_kib: u64,
    /// KiB when it was read last. A process that has ended has none.
    pub last_kib: u64,
    /// Most KiB that were read.
    pub max_kib: u64,
    /// Whether it ended before the capture.
    pub has_ended: bool,
}
