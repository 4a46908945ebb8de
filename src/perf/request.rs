//! What is asked of the kernel: the attributes of events, and rings that they fit in.

use std::ops::RangeInclusive;

use perf_event_open_sys::bindings as sys;

use super::call_graph::CallGraph;
use super::sample_layout::USER_REGS;

const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN;

/// What a stack copy is unwound with.
const STACK_COPY: u32 = sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER;

/// Time a ring holds the samples of a busy CPU, in milliseconds. The collector comes by when a quarter is full.
const RING_MS: u64 = 200;
/// Bytes of a sample besides its stack: header, registers, callchains.
const SAMPLE_BYTES: u64 = 1024;
/// Time a ring must hold the samples of a busy CPU, in milliseconds: the merge leaves 20 of them there, and the collector
/// may come late by as much again.
const MIN_RING_MS: u64 = 60;
/// Copies of the stack are not made shorter than this.
const MIN_STACK_BYTES: u64 = 1024;
/// Rings of all CPUs together take no more.
const ALL_RINGS_BYTES: u64 = 512 << 20;
/// Smallest and largest ring.
const RING_BYTES: RangeInclusive<usize> = 128 << 10..=1 << 30;

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

    /// The same with copies of the stack so short that the rings hold [`MIN_RING_MS`] of samples: a shorter copy cuts
    /// some stacks, and a full ring loses whole samples.
    pub(super) fn with_stacks_that_fit(mut self) -> Self {
        let samples = u64::from(self.frequency_hz) * MIN_RING_MS / 1000;
        let share = self.ring_bytes as u64 / samples.max(1);
        let room = share.saturating_sub(SAMPLE_BYTES).max(MIN_STACK_BYTES);
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
    pub(super) fn tracker(&self) -> sys::perf_event_attr {
        let mut attr = self.common();
        attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
        set_tracking(&mut attr);
        attr.set_ksymbol(1);
        attr
    }

    /// Samples the clock.
    pub(super) fn sampler(&self) -> sys::perf_event_attr {
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
    pub(super) fn inherited(&self) -> sys::perf_event_attr {
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
