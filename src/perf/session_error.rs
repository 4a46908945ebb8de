//! Errors of a sampling session.

use std::io;

use thiserror::Error;

use super::open_error::OpenEventError;

/// Reason why a session cannot be opened, started or stopped.
#[derive(Debug, Error)]
pub enum SessionError {
    /// The kernel refused an event.
    #[error(transparent)]
    Open(#[from] OpenEventError),
    /// The ring buffer cannot be mapped.
    #[error(
        "cannot map a ring buffer of {bytes} bytes for CPU {cpu}: {source}; \
         raise kernel.perf_event_mlock_kb or `ulimit -l`, or run as root"
    )]
    Ring {
        /// CPU of the ring buffer.
        cpu: u32,
        /// Requested size.
        bytes: usize,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The list of online CPUs cannot be read.
    #[error("cannot read the online CPUs from /sys/devices/system/cpu/online: {0}")]
    Cpus(io::Error),
    /// The events cannot be enabled or disabled.
    #[error("cannot enable or disable perf events: {0}")]
    Enable(io::Error),
}
