//! Errors of `perf_event_open`, with their causes and remedies.

use rustix::io::Errno;
use thiserror::Error;

use super::layout::ParseError;
use super::request::SamplingRequest;

/// Reason why a perf event cannot be opened.
#[derive(Debug, Error)]
pub enum OpenEventError {
    /// The user lacks privileges.
    #[error(
        "cannot sample {what}: not permitted (perf_event_open: {errno}; kernel.perf_event_paranoid \
         is {paranoid}); run as root (sudo), or with the capability CAP_PERFMON; in a container, \
         which must not be a rootless one: --privileged, or --cap-add PERFMON with a seccomp profile that allows \
         perf_event_open"
    )]
    NotPermitted {
        /// The whole system or a process.
        what: String,
        /// EACCES or EPERM.
        errno: Errno,
        /// Content of /proc/sys/kernel/perf_event_paranoid.
        paranoid: String,
    },
    /// The kernel does not support perf_events.
    #[error(
        "this kernel does not support perf_events (perf_event_open: {0}): it was built without \
         CONFIG_PERF_EVENTS, or a sandbox (gVisor, seccomp) blocks the system call"
    )]
    Unsupported(Errno),
    /// The sampling frequency exceeds the kernel's limit.
    ///
    /// The kernel lowers the limit where interrupts are slow.
    #[error(
        "cannot sample at {requested_hz} Hz: this kernel allows at most {allowed_hz} Hz; \
         use -freq {allowed_hz}, or raise kernel.perf_event_max_sample_rate"
    )]
    TooFast {
        /// Requested frequency.
        requested_hz: u32,
        /// kernel.perf_event_max_sample_rate.
        allowed_hz: u32,
    },
    /// The kernel returned another error.
    #[error("cannot open a perf event on CPU {cpu} (perf_event_open: {errno})")]
    Refused {
        /// Requested CPU.
        cpu: u32,
        /// Error of the kernel.
        errno: Errno,
    },
    /// The attributes request fields that perfcollect does not support.
    #[error(transparent)]
    Layout(#[from] ParseError),
}

impl OpenEventError {
    /// Interprets an error of `perf_event_open` for `what` on a CPU.
    pub(super) fn from_errno(
        request: &SamplingRequest,
        errno: Errno,
        what: &str,
        cpu: u32,
    ) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::NotPermitted {
                what: what.into(),
                errno,
                paranoid: paranoid(),
            },
            Errno::INVAL if request.frequency_hz > max_sample_rate() => Self::TooFast {
                requested_hz: request.frequency_hz,
                allowed_hz: max_sample_rate(),
            },
            Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP => Self::Unsupported(errno),
            _ => Self::Refused { cpu, errno },
        }
    }
}

/// Returns kernel.perf_event_max_sample_rate, or `u32::MAX` if it cannot be read.
#[must_use]
pub fn max_sample_rate() -> u32 {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")
        .ok()
        .and_then(|rate| rate.trim().parse().ok())
        .unwrap_or(u32::MAX)
}

/// Returns the content of /proc/sys/kernel/perf_event_paranoid.
pub(super) fn paranoid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "unreadable".into(), |level| level.trim().to_owned())
}
