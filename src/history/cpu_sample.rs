//! CPU time between events.

use crate::trace::{Nanos, Pid, Tid};

/// CPU time of a thread, as one sample measured it.
#[derive(Clone, Copy, Debug)]
pub struct CpuSample {
    /// Process of the thread.
    pub process: Pid,
    /// Thread id.
    pub thread: Tid,
    /// Time of the sample.
    pub time: Nanos,
    /// CPU time that the sample represents, in nanoseconds.
    pub ns: u64,
}
