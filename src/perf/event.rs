//! perf_event_open: what is asked of the kernel, and what a refusal means.

use std::fs::File;
use std::io::{self, Read};
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as sys;
use rustix::io::Errno;
use thiserror::Error;

use super::call_graph::CallGraph;
use super::grant::Grant;
use super::layout::{Layout, ParseError};
use super::sample_layout::USER_REGS;
use crate::trace::Tid;

const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN;

/// What a stack copy is unwound with.
const STACK_COPY: u32 = sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER;

/// What to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingRequest {
    /// Samples a second on a busy CPU.
    pub frequency_hz: u32,
    /// What to find the callers with.
    pub call_graph: CallGraph,
    /// No longer copies of the stack are taken, whatever `call_graph` says.
    pub(super) stack_limit: u32,
    /// Size of the ring of each CPU; a power of two of pages.
    pub ring_bytes: usize,
    /// What makes a sample due.
    pub clock: Clock,
}

/// What makes a sample due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// A timer of the kernel's, which runs while the CPU is busy.
    #[default]
    CpuClock,
    /// The cycles the CPU has counted, as many as make the wanted rate.
    Cycles,
}

impl Clock {
    /// The event's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuClock => "cpu-clock",
            Self::Cycles => "cycles",
        }
    }

    /// `perf_event_attr.type` and `config`.
    fn event(self) -> (u32, u64) {
        match self {
            Self::CpuClock => (sys::PERF_TYPE_SOFTWARE, sys::PERF_COUNT_SW_CPU_CLOCK.into()),
            Self::Cycles => (
                sys::PERF_TYPE_HARDWARE,
                sys::PERF_COUNT_HW_CPU_CYCLES.into(),
            ),
        }
    }
}

/// Why sampling could not begin.
#[derive(Debug, Error)]
pub enum OpenError {
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

/// Time a ring holds the samples of a busy CPU, in milliseconds. The collector comes by when a quarter is full.
const RING_MS: u64 = 200;
/// Bytes of a sample besides its stack: header, registers, callchains.
const SAMPLE_BYTES: u64 = 1024;
/// Time a ring must hold the samples of a busy CPU, in milliseconds: the merge leaves 20 of them there, and the collector
/// may come late by as much again.
const LEAST_RING_MS: u64 = 60;
/// Copies of the stack are not made shorter than this.
const LEAST_STACK_BYTES: u64 = 1024;
/// Rings of all CPUs together take no more.
const ALL_RINGS_BYTES: u64 = 512 << 20;
/// Smallest and largest ring.
const RING_BYTES: RangeInclusive<usize> = 128 << 10..=1 << 30;

impl SamplingRequest {
    /// A request with rings that fit the rate and the number of CPUs.
    #[must_use]
    pub fn new(frequency_hz: u32, call_graph: CallGraph, cpus: usize) -> Self {
        let sample_bytes = u64::from(call_graph.stack_bytes()) + SAMPLE_BYTES;
        let wanted = u64::from(frequency_hz) * RING_MS / 1000 * sample_bytes;
        let share = ALL_RINGS_BYTES / cpus.max(1) as u64;
        Self {
            frequency_hz,
            call_graph,
            stack_limit: CallGraph::MAX_STACK_BYTES,
            ring_bytes: 0,
            clock: Clock::CpuClock,
        }
        .with_ring_bytes(wanted.min(share) as usize)
    }

    /// The same with rings of about this many bytes for each CPU.
    #[must_use]
    pub fn with_ring_bytes(mut self, bytes: usize) -> Self {
        let bytes = bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end());
        // The next power of two up, unless the one below is nearer.
        self.ring_bytes = (bytes - bytes / 4).next_power_of_two();
        self
    }

    /// The same with copies of the stack so short that the rings hold [`LEAST_RING_MS`] of samples: a shorter copy cuts
    /// some stacks, and a full ring loses whole samples.
    pub(super) fn with_stacks_that_fit(mut self) -> Self {
        let samples = u64::from(self.frequency_hz) * LEAST_RING_MS / 1000;
        let share = self.ring_bytes as u64 / samples.max(1);
        let room = share.saturating_sub(SAMPLE_BYTES).max(LEAST_STACK_BYTES);
        self.stack_limit = room.min(u64::from(CallGraph::MAX_STACK_BYTES)) as u32 & !7;
        self
    }

    /// Bytes of user stack that are copied, a multiple of 8.
    pub(super) fn stack_bytes(&self) -> u32 {
        self.call_graph.stack_bytes().min(self.stack_limit)
    }

    /// Time between two samples of a busy CPU. The kernel divides a second by the frequency once and then counts
    /// nanoseconds (perf_swevent_init_hrtimer).
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.frequency_hz.max(1))
    }

    /// What all events have in common: how their records look.
    fn common(&self) -> sys::perf_event_attr {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            size: size_of::<sys::perf_event_attr>() as u32,
            sample_type: u64::from(SAMPLE_TYPE),
            clockid: rustix::time::ClockId::Monotonic as i32,
            read_format: u64::from(sys::PERF_FORMAT_TOTAL_TIME_ENABLED),
            ..Default::default()
        };
        if self.stack_bytes() > 0 {
            attr.sample_type |= u64::from(STACK_COPY);
            attr.sample_regs_user = USER_REGS;
            attr.sample_stack_user = self.stack_bytes();
        }
        attr.__bindgen_anon_2.wakeup_watermark = (self.ring_bytes / 4) as u32;
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.set_watermark(1);
        attr
    }

    /// Counts nothing, but reports mappings, names, forks and exits, and code that the kernel makes.
    fn tracker(&self) -> sys::perf_event_attr {
        let mut attr = self.common();
        attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
        set_tracking(&mut attr);
        attr.set_ksymbol(1);
        attr
    }

    /// Samples the clock.
    fn sampler(&self) -> sys::perf_event_attr {
        let mut attr = self.common();
        (attr.type_, attr.config) = self.clock.event();
        attr.__bindgen_anon_1.sample_freq = u64::from(self.frequency_hz);
        attr.set_freq(1);
        attr.set_exclude_idle(1);
        attr.set_exclude_guest(1);
        attr.set_exclude_callchain_user(u64::from(!self.call_graph.walks_frame_pointers()));
        attr
    }

    /// Samples a thread and reports what it does, and the same of all it starts from now on.
    fn inherited(&self) -> sys::perf_event_attr {
        let mut attr = self.sampler();
        // Several events may see one thread, see `threads`.
        attr.sample_type |= u64::from(sys::PERF_SAMPLE_ID);
        set_tracking(&mut attr);
        attr.set_inherit(1);
        attr
    }
}

fn set_tracking(attr: &mut sys::perf_event_attr) {
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_task(1);
}

/// Which event of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Tells what happens to the processes of the machine. It runs first, so that those that are there already can be
    /// read while nothing is missed and no sample waits.
    Tracker,
    /// Takes samples of the machine, into the tracker's ring.
    Sampler,
    /// Follows what this thread of the collector starts, from its exec on, and not the collector itself.
    Children,
    /// Follows a thread and all it starts.
    Thread(Tid),
}

impl Role {
    /// The attributes, and the thread as the system call takes it.
    fn attributes(self, grant: &Grant) -> (sys::perf_event_attr, i32) {
        const EVERYBODY: i32 = -1;
        const MYSELF: i32 = 0;
        let request = &grant.request;
        let (mut attr, thread) = match self {
            Self::Tracker => (request.tracker(), EVERYBODY),
            Self::Sampler => (request.sampler(), EVERYBODY),
            Self::Children => (request.inherited(), MYSELF),
            Self::Thread(tid) => (request.inherited(), tid.0),
        };
        attr.set_enable_on_exec(u64::from(self == Self::Children));
        attr.set_exclude_kernel(u64::from(!grant.kernel));
        attr.set_exclude_hv(u64::from(!grant.kernel));
        (attr, thread)
    }

    /// How to read the records of all events of a session.
    pub(super) fn layout(self, grant: &Grant) -> Result<Layout, ParseError> {
        let (attr, _) = self.attributes(grant);
        Layout::new(attr.sample_type, attr.sample_regs_user)
    }
}

/// An event on one CPU.
pub(super) struct Event {
    file: File,
    /// Whether the kernel counts what it drops (Linux 6.0).
    counts_lost: bool,
}

impl Event {
    /// Opens an event, not yet counting.
    pub(super) fn open(grant: &Grant, role: Role, cpu: u32) -> Result<Self, Errno> {
        let (wanted, thread) = role.attributes(grant);
        // Linux before 6.0 knows no count of what was lost, before 5.1 no records of the kernel's own code.
        for (counts_lost, tells_code) in [(true, true), (false, true), (false, false)] {
            let mut attr = wanted;
            if counts_lost {
                attr.read_format |= u64::from(sys::PERF_FORMAT_LOST);
            }
            if !tells_code {
                attr.set_ksymbol(0);
            }
            match open(&mut attr, thread, cpu) {
                Err(Errno::INVAL) => {}
                opened => {
                    return Ok(Self {
                        file: opened?,
                        counts_lost,
                    });
                }
            }
        }
        Err(Errno::INVAL)
    }

    /// The kernel's counters, as `read` gives them: the event's value, the time it was enabled, what was lost of it.
    fn counters(&self) -> Option<[u64; 3]> {
        let mut bytes = [0; 24];
        let read = (&self.file).read(&mut bytes).ok()?;
        let (words, _) = bytes.as_chunks::<8>();
        let wanted = if self.counts_lost { 24 } else { 16 };
        (read >= wanted).then(|| std::array::from_fn(|i| u64::from_le_bytes(words[i])))
    }

    /// Records of this event the kernel has dropped so far, if it counts them.
    pub(super) fn lost(&self) -> Option<u64> {
        let [.., lost] = self.counters()?;
        self.counts_lost.then_some(lost)
    }

    /// For how long it has been at work, in nanoseconds. Does not grow once its CPU was offline.
    pub(super) fn time_enabled(&self) -> Option<u64> {
        let [_, enabled, _] = self.counters()?;
        Some(enabled)
    }

    /// What samples of this event, and of those inherited from it, have as [`super::SampleRecord::event`].
    pub(super) fn id(&self) -> io::Result<u64> {
        let mut id = 0;
        // SAFETY: the descriptor is an open perf event, and `id` lives while the kernel writes its 8 bytes.
        done(unsafe { perf::ioctls::ID(self.file.as_raw_fd(), &raw mut id) })?;
        Ok(id)
    }

    /// Starts or stops counting, also in what was inherited from it.
    pub(super) fn set_enabled(&self, enabled: bool) -> io::Result<()> {
        let fd = self.file.as_raw_fd();
        // SAFETY: `fd` is an open perf event; these ioctls take no pointer.
        done(unsafe {
            if enabled {
                perf::ioctls::ENABLE(fd, 0)
            } else {
                perf::ioctls::DISABLE(fd, 0)
            }
        })
    }

    /// Writes to the ring of another event of the same CPU.
    pub(super) fn write_to(&self, other: &Self) -> io::Result<()> {
        // SAFETY: both are open perf events; the ioctl takes no pointer.
        done(unsafe { perf::ioctls::SET_OUTPUT(self.file.as_raw_fd(), other.file.as_raw_fd()) })
    }

    /// The descriptor, to map its ring.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

fn done(result: i32) -> io::Result<()> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn open(attr: &mut sys::perf_event_attr, thread: i32, cpu: u32) -> Result<File, Errno> {
    let flags = u64::from(sys::PERF_FLAG_FD_CLOEXEC);
    // SAFETY: `attr` is a valid perf_event_attr of the size it states; the event only writes to its own ring.
    let fd = unsafe { perf::perf_event_open(attr, thread, cpu as i32, -1, flags) };
    if fd < 0 {
        let error = io::Error::last_os_error();
        return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO));
    }
    // SAFETY: the kernel has just handed out this descriptor, nobody else owns it.
    Ok(unsafe { File::from_raw_fd(fd) })
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

impl OpenError {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_fit_rate_and_cpus() {
        let call_graph = CallGraph::StackCopy { bytes: 32_760 };
        let ring_mib = |hz, cpus| SamplingRequest::new(hz, call_graph, cpus).ring_bytes >> 20;
        assert_eq!(ring_mib(999, 2), 8);
        assert_eq!(ring_mib(10_000, 2), 64);
        assert_eq!(ring_mib(999, 128), 4);
        assert_eq!(
            SamplingRequest::new(1, CallGraph::FramePointers, 1).ring_bytes,
            128 << 10
        );
    }
    #[test]
    fn copies_of_the_stack_fit_the_rings() {
        let copied = |call_graph, hz, ring_bytes| {
            SamplingRequest::new(hz, call_graph, 2)
                .with_ring_bytes(ring_bytes)
                .with_stacks_that_fit()
                .stack_bytes()
        };
        assert_eq!(copied(CallGraph::Auto, 999, 16 << 20), 61_440);
        // Sixty samples of this size fit.
        assert_eq!(copied(CallGraph::Auto, 999, 512 << 10), 7_856);
        assert_eq!(copied(CallGraph::Auto, 20_000, 128 << 10), 1024);
        let short = CallGraph::StackCopy { bytes: 2048 };
        assert_eq!(copied(short, 999, 512 << 10), 2048);
        assert_eq!(copied(CallGraph::FramePointers, 999, 512 << 10), 0);
    }
}
