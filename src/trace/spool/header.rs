//! What a spool says of its capture before the first sample.

use serde::{Deserialize, Serialize};

use crate::trace::{CaptureInfo, Notice};

/// First row of a spool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// How the capture came to be; its end is not known yet.
    pub info: CaptureInfo,
    /// Process id of the collector.
    pub collector: i32,
    /// Which start of the machine it was: kernel addresses, process ids and the clock mean something else after the next.
    pub boot_id: String,
    /// What was granted less than asked.
    #[serde(default)]
    pub notices: Vec<Notice>,
}
