//! Why there is no capture.

use thiserror::Error;

use super::command::CommandError;
use super::target::TargetError;
use crate::machine::ProcError;
use crate::perf::SessionError;
use crate::trace::spool::SpoolError;

/// Why there is no capture.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The target cannot be captured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The command could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Sampling could not begin.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The running processes could not be read.
    #[error("{0}; perfcollect needs a mounted /proc")]
    Proc(#[from] ProcError),
    /// Not even the beginning of the spool can be written.
    #[error(
        "cannot begin the spool of samples: {0}; free some space, or name the trace with a directory on another disk"
    )]
    SpoolBegin(String),
    /// A recording has no such event.
    #[error("there is no event {wanted}; the recording has: {names}")]
    NoEvent {
        /// What was asked for.
        wanted: String,
        /// What there is.
        names: String,
    },
    /// It ends before it names its events.
    #[error("the recording ends before it names an event")]
    NoEvents,
    /// No sample of a recording's event is of a running process.
    #[error("no sample of {event} is of a running process{damage}")]
    NoSamples {
        /// The event.
        event: String,
        /// Those that have samples of running processes, and how many.
        others: Vec<(String, u64)>,
        /// Samples of CPUs that had nothing to do.
        idle: u64,
        /// The hardware trace that was left out, in words, if there is one.
        hardware_trace: Option<String>,
        /// Records that the kernel dropped.
        lost: u64,
        /// Where the recording ends too early and why, to go on the line; else empty.
        damage: String,
    },
    /// The spool cannot be read back.
    #[error("the spool cannot be read: {0}")]
    Spool(#[from] SpoolError),
}
