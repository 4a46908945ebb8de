//! What a refusal of the kernel means.

use rustix::io::Errno;
use thiserror::Error;

use super::layout::ParseError;
use super::request::SamplingRequest;

/// Why sampling could not begin.
#[derive(Debug, Error)]
pub enum OpenEventError {
    /// The kernel refuses for want of privilege.
    #[error(
        "not permitted to sample {what} (perf_event_open: {errno}; kernel.perf_event_paranoid is {paranoid}): \
         run as root (sudo), or with the capability CAP_PERFMON; in a container: --privileged, or \
         --cap-add PERFMON with a seccomp profile that allows perf_event_open"
    )]
    NotPermitted {
        /// The machine or a process.
        what: String,
        /// EACCES or EPERM.
        errno: Errno,
        /// Content of /proc/sys/kernel/perf_event_paranoid.
        paranoid: String,
    },
    /// The kernel has no perf_events.
    #[error(
        "this kernel has no perf_events (perf_event_open: {0}): it was built without CONFIG_PERF_EVENTS, \
         or a sandbox (gVisor, seccomp) hides the system call"
    )]
    Unsupported(Errno),
    /// The kernel does not allow that many samples a second; it lowers the limit itself where interrupts are slow.
    #[error(
        "{asked_hz} samples a second are more than the {allowed_hz} this kernel allows: use -freq {allowed_hz}, or raise \
         kernel.perf_event_max_sample_rate"
    )]
    TooFast {
        /// What was asked for.
        asked_hz: u32,
        /// kernel.perf_event_max_sample_rate.
        allowed_hz: u32,
    },
    /// Anything else.
    #[error("perf_event_open for CPU {cpu}: {errno}")]
    Refused {
        /// CPU that was asked for.
        cpu: u32,
        /// Answer of the kernel.
        errno: Errno,
    },
    /// The attributes ask for fields this program cannot read back.
    #[error(transparent)]
    Layout(#[from] ParseError),
}

impl OpenEventError {
    /// What it means that the kernel refuses to sample `what` on a CPU.
    pub(super) fn of(request: &SamplingRequest, errno: Errno, what: &str, cpu: u32) -> Self {
        match errno {
            Errno::ACCESS | Errno::PERM => Self::NotPermitted {
                what: what.into(),
                errno,
                paranoid: paranoid(),
            },
            Errno::INVAL if request.frequency_hz > max_sample_rate() => Self::TooFast {
                asked_hz: request.frequency_hz,
                allowed_hz: max_sample_rate(),
            },
            Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP => Self::Unsupported(errno),
            _ => Self::Refused { cpu, errno },
        }
    }
}

/// kernel.perf_event_max_sample_rate; no limit if it cannot be read.
#[must_use]
pub fn max_sample_rate() -> u32 {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate")
        .ok()
        .and_then(|rate| rate.trim().parse().ok())
        .unwrap_or(u32::MAX)
}

/// Content of /proc/sys/kernel/perf_event_paranoid.
pub(super) fn paranoid() -> String {
    std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map_or_else(|_| "unreadable".into(), |level| level.trim().to_owned())
}
