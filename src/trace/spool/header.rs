//! The header of a spool: facts about the capture that are known before the first sample.

use serde::{Deserialize, Serialize};

use crate::trace::{CaptureInfo, Notice};

/// First row of a spool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// Origin and conditions of the capture; its end is not known yet.
    pub info: CaptureInfo,
    /// Process id of perfcollect.
    pub collector: i32,
    /// Boot id. Kernel addresses, process ids and the clock have another meaning after a reboot.
    pub boot_id: String,
    /// Requests that the kernel granted only in part.
    #[serde(default)]
    pub notices: Vec<Notice>,
}
