//! perf_event_open: what is asked of the kernel, and what a refusal means.

use std::fs::File;
use std::io;
use std::os::fd::FromRawFd;

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;
use thiserror::Error;

use super::record::{Layout, ParseError, USER_REGS};

const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN
    | sys::PERF_SAMPLE_REGS_USER
    | sys::PERF_SAMPLE_STACK_USER;

/// What to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingRequest {
    /// Samples a second on a busy CPU.
    pub frequency_hz: u32,
    /// Bytes of user stack to copy with a sample; a multiple of 8, below 64 KiB.
    pub stack_bytes: u32,
    /// Size of the ring of each CPU; a power of two of pages.
    pub ring_bytes: usize,
}

/// Why sampling could not begin.
#[derive(Debug, Error)]
pub enum OpenError {
    /// The kernel refuses for want of privilege.
    #[error(
        "not permitted to sample this machine (perf_event_open: {errno}; kernel.perf_event_paranoid is {paranoid}): \
         run as root (sudo), or with the capability CAP_PERFMON; in a container: --privileged, or \
         --cap-add PERFMON with a seccomp profile that allows perf_event_open"
    )]
    NotPermitted {
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

impl SamplingRequest {
    /// Time between two samples of a busy CPU. The kernel divides a second by the frequency once and then counts
    /// nanoseconds (perf_swevent_init_hrtimer).
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.frequency_hz.max(1))
    }

    fn attributes(&self) -> sys::perf_event_attr {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            size: size_of::<sys::perf_event_attr>() as u32,
            config: u64::from(sys::PERF_COUNT_SW_CPU_CLOCK),
            sample_type: u64::from(SAMPLE_TYPE),
            sample_regs_user: USER_REGS,
            sample_stack_user: self.stack_bytes,
            clockid: rustix::time::ClockId::Monotonic as i32,
            ..Default::default()
        };
        attr.__bindgen_anon_1.sample_freq = u64::from(self.frequency_hz);
        attr.__bindgen_anon_2.wakeup_watermark = (self.ring_bytes / 4) as u32;
        attr.set_freq(1);
        attr.set_disabled(1);
        attr.set_exclude_idle(1);
        attr.set_exclude_guest(1);
        attr.set_exclude_callchain_user(1);
        attr.set_mmap(1);
        attr.set_mmap2(1);
        attr.set_comm(1);
        attr.set_comm_exec(1);
        attr.set_task(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.set_watermark(1);
        attr
    }

    /// How to read the records of this event.
    pub(super) fn layout(&self) -> Result<Layout, ParseError> {
        let attr = self.attributes();
        Layout::new(attr.sample_type, attr.sample_regs_user)
    }
}

/// Opens the event on one CPU, not yet counting. `None`: the CPU is not there.
pub(super) fn open(request: &SamplingRequest, cpu: u32) -> Result<Option<File>, OpenError> {
    let mut attr = request.attributes();
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a valid perf_event_attr of the size it states; the event only writes to its own ring.
    let fd = unsafe { perf::perf_event_open(&raw mut attr, -1, cpu as i32, -1, flags) };
    if fd < 0 {
        return refusal(io::Error::last_os_error(), cpu);
    }
    // SAFETY: the kernel has just handed out this descriptor, nobody else owns it.
    Ok(Some(unsafe { File::from_raw_fd(fd) }))
}

fn refusal(error: io::Error, cpu: u32) -> Result<Option<File>, OpenError> {
    let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
    Err(match errno {
        Errno::NODEV => return Ok(None),
        Errno::ACCESS | Errno::PERM => OpenError::NotPermitted {
            errno,
            paranoid: std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
                .map_or_else(|_| "unreadable".into(), |level| level.trim().to_owned()),
        },
        Errno::NOSYS | Errno::NOENT | Errno::OPNOTSUPP => OpenError::Unsupported(errno),
        _ => OpenError::Refused { cpu, errno },
    })
}

/// Starts or stops counting.
pub(super) fn set_enabled(event: &File, enabled: bool) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let fd = event.as_raw_fd();
    // SAFETY: `fd` is an open perf event; these ioctls take no pointer.
    let result = unsafe {
        if enabled {
            perf::ioctls::ENABLE(fd, 0)
        } else {
            perf::ioctls::DISABLE(fd, 0)
        }
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
