//! Errors of a capture.

use thiserror::Error;

use super::command::CommandError;
use super::target::TargetError;
use crate::machine::ProcError;
use crate::perf::SessionError;
use crate::trace::spool::SpoolError;

/// Reason why there is no capture.
#[derive(Debug, Error)]
pub enum CaptureError {
    /// The target cannot be captured.
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The command could not be started.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// Sampling could not start.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The running processes could not be read.
    #[error("{0}; perfcollect needs a mounted /proc")]
    Proc(#[from] ProcError),
    /// The header of the spool cannot be written.
    #[error(
        "cannot start the spool of samples: {0}; free some space, or use an output name in a directory on another disk"
    )]
    SpoolStart(String),
    /// The recording has no such event.
    #[error("the recording has no event {wanted}; its events: {names}")]
    NoEvent {
        /// Requested event.
        wanted: String,
        /// Events of the recording.
        names: String,
    },
    /// The recording ends before it declares its events.
    #[error("the recording ends before it names an event")]
    NoEvents,
    /// The event has no sample of a running process.
    #[error("no sample of {event} is of a running process{corruption}")]
    NoSamples {
        /// Imported event.
        event: String,
        /// Other events with samples of running processes, and the number of their samples.
        others: Vec<(String, u64)>,
        /// Number of samples of idle CPUs.
        idle: u64,
        /// Description of the hardware trace that was left out, if any.
        hardware_trace: Option<String>,
        /// Number of records that the kernel dropped.
        lost: u64,
        /// Offset and cause of an early end, as a suffix of the message; else empty.
        corruption: String,
    },
    /// The spool cannot be read back.
    #[error("cannot read the spool: {0}")]
    Spool(#[from] SpoolError),
}
