//! Sampling request: the attributes of events and the size of their ring buffers.

use std::ops::RangeInclusive;

use perf_event_open_sys::bindings as sys;

use super::call_graph::CallGraph;
use super::copy_length::SHORT_BYTES;
use super::occurrence_events::Occurrence;
use super::sample_layout::USER_REGS;

const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN;

/// Sample fields for unwinding from a stack copy.
const STACK_COPY: u32 = sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER;

/// Milliseconds for which a ring buffer holds the samples of a busy CPU.
///
/// The kernel wakes perfcollect when a quarter is full.
const RING_MS: u64 = 200;
/// Estimated size of a sample without its stack copy: header, registers, callchains.
const SAMPLE_BYTES: u64 = 1024;
/// Minimum number of milliseconds for which a ring buffer holds the samples of a busy CPU.
///
/// The merge keeps the last 20 ms of records there, and perfcollect may drain as much again late.
const MIN_RING_MS: u64 = 60;
/// Minimum number of stack copies of occurrences that a ring buffer holds.
const OCCURRENCES_PER_RING: usize = 512;
/// Minimum number of samples of occurrences between two choices of their period.
const MIN_BUDGET: u32 = 32;
/// Minimum size of a stack copy.
const MIN_STACK_BYTES: u64 = 1024;
/// Maximum total size of the ring buffers of all CPUs, by default.
const ALL_RINGS_BYTES: u64 = 512 << 20;
/// Minimum and maximum size of a ring buffer.
const RING_BYTES: RangeInclusive<usize> = 128 << 10..=1 << 30;

/// Sampling parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingRequest {
    /// Sampling frequency per busy CPU.
    pub frequency_hz: u32,
    /// Source of the callers on a user stack.
    pub call_graph: CallGraph,
    /// Maximum size of a stack copy, in addition to the limit of `call_graph`.
    pub(super) stack_limit: u32,
    /// Size of the ring buffer of each CPU: a power of two, and a multiple of the page size.
    pub ring_bytes: usize,
    /// Event that triggers samples.
    pub clock: Clock,
    /// Whether page faults are sampled, too, at about the same frequency at most.
    pub faults: bool,
    /// Id of the kernel's tracepoint `sched:sched_waking` if wake-ups are sampled, too, at about the same
    /// frequency at most.
    pub wakeups: Option<u64>,
}

/// A sampling request after all fallbacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EffectiveRequest {
    pub(super) request: SamplingRequest,
    /// Whether sampling is system-wide, not limited to the threads of the target.
    pub(super) system_wide: bool,
    /// Whether kernel code is sampled.
    pub(super) kernel: bool,
}

/// Event that triggers samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    /// A timer of the kernel, which runs while the CPU is busy.
    #[default]
    CpuClock,
    /// Hardware cycles. The kernel adjusts the period to the requested frequency.
    Cycles,
}

impl Clock {
    /// Returns the name of the event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::CpuClock => "cpu-clock",
            Self::Cycles => "cycles",
        }
    }

    /// Returns `perf_event_attr.type` and `config`.
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
    /// Creates a request with ring buffers sized for the frequency and the number of CPUs.
    #[must_use]
    pub fn new(frequency_hz: u32, call_graph: CallGraph, cpus: usize) -> Self {
        let sample_bytes = u64::from(call_graph.stack_bytes()) + SAMPLE_BYTES;
        let needed = u64::from(frequency_hz) * RING_MS / 1000 * sample_bytes;
        let share = ALL_RINGS_BYTES / cpus.max(1) as u64;
        Self {
            frequency_hz,
            call_graph,
            stack_limit: CallGraph::MAX_STACK_BYTES,
            ring_bytes: 0,
            clock: Clock::CpuClock,
            faults: false,
            wakeups: None,
        }
        .with_ring_bytes(needed.min(share) as usize)
    }

    /// Returns the request with samples of page faults, and ring buffers with room for them.
    #[must_use]
    pub fn with_faults(mut self, cpus: usize) -> Self {
        self.faults = true;
        self.with_more_room(cpus)
    }

    /// Returns the request with ring buffers that have room for the samples of one more kind.
    #[must_use]
    pub fn with_more_room(self, cpus: usize) -> Self {
        let share = ALL_RINGS_BYTES / cpus.max(1) as u64;
        let needed = 2 * self.ring_bytes as u64;
        self.with_ring_bytes(needed.min(share) as usize)
    }

    /// Returns whether a kind of occurrences is sampled.
    pub(super) fn samples(&self, kind: Occurrence) -> bool {
        match kind {
            Occurrence::Fault => self.faults,
            Occurrence::Wakeup => self.wakeups.is_some(),
        }
    }

    /// Samples a kind of occurrences no more.
    pub(super) fn omit(&mut self, kind: Occurrence) {
        match kind {
            Occurrence::Fault => self.faults = false,
            Occurrence::Wakeup => self.wakeups = None,
        }
    }

    /// Returns the kinds of occurrences that are sampled.
    pub(super) fn kinds(&self) -> Vec<Occurrence> {
        let mut kinds = Occurrence::ALL.to_vec();
        kinds.retain(|kind| self.samples(*kind));
        kinds
    }

    /// Returns the size of each ring buffer of a CPU: one for CPU samples, and one for each kind of occurrences.
    pub(super) fn bytes_of_each_ring(&self) -> usize {
        self.ring_bytes >> self.kinds().len()
    }

    /// Returns the request with ring buffers of about `bytes` per CPU.
    #[must_use]
    pub fn with_ring_bytes(mut self, bytes: usize) -> Self {
        let bytes = bytes.clamp(*RING_BYTES.start(), *RING_BYTES.end());
        // Rounds to the nearest power of two.
        self.ring_bytes = (bytes - bytes / 4).next_power_of_two();
        self
    }

    /// Returns the request with stack copies so short that the ring buffers hold [`MIN_RING_MS`].
    ///
    /// A shorter copy truncates some stacks, whereas a full ring buffer loses whole samples.
    pub(super) fn with_stacks_that_fit(mut self) -> Self {
        let events = 1 + self.kinds().len() as u64;
        let samples = events * u64::from(self.frequency_hz) * MIN_RING_MS / 1000;
        let share = self.ring_bytes as u64 / samples.max(1);
        let room = share.saturating_sub(SAMPLE_BYTES).max(MIN_STACK_BYTES);
        self.stack_limit = room.min(u64::from(CallGraph::MAX_STACK_BYTES)) as u32 & !7;
        self
    }

    /// Returns the maximum size of a stack copy, a multiple of 8.
    pub(super) fn stack_bytes(&self) -> u32 {
        self.call_graph.stack_bytes().min(self.stack_limit)
    }

    /// Returns the time between two samples of a busy CPU.
    ///
    /// The kernel divides a second by the frequency once and then counts nanoseconds
    /// (perf_swevent_init_hrtimer).
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        1_000_000_000 / u64::from(self.frequency_hz.max(1))
    }

    /// Returns the attributes that all events share, which determine the record layout.
    fn common(&self) -> sys::perf_event_attr {
        let mut attr = sys::perf_event_attr {
            type_: sys::PERF_TYPE_SOFTWARE,
            size: size_of::<sys::perf_event_attr>() as u32,
            sample_type: u64::from(SAMPLE_TYPE),
            clockid: rustix::time::ClockId::Monotonic as i32,
            read_format: u64::from(sys::PERF_FORMAT_TOTAL_TIME_ENABLED),
            ..Default::default()
        };
        if !self.kinds().is_empty() {
            // The id distinguishes the kinds of samples in one ring buffer. With their period, the kernel would
            // sample each occurrence (perf_swevent_event); that of other samples is known.
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_ID);
            attr.sample_type &= !u64::from(sys::PERF_SAMPLE_PERIOD);
        }
        if self.wakeups.is_some() {
            // All events of a ring buffer have one layout.
            attr.sample_type |= u64::from(sys::PERF_SAMPLE_RAW);
        }
        if self.stack_bytes() > 0 {
            attr.sample_type |= u64::from(STACK_COPY);
            attr.sample_regs_user = USER_REGS;
            attr.sample_stack_user = self.stack_bytes();
        }
        attr.__bindgen_anon_2.wakeup_watermark = (self.bytes_of_each_ring() / 4) as u32;
        attr.set_disabled(1);
        attr.set_sample_id_all(1);
        attr.set_use_clockid(1);
        attr.set_watermark(1);
        attr
    }

    /// Returns the attributes of a dummy event that reports process changes and kernel code.
    ///
    /// It reports mappings, names, forks, exits and dynamically generated kernel code.
    pub(super) fn tracker(&self) -> sys::perf_event_attr {
        let mut attr = self.common();
        attr.config = u64::from(sys::PERF_COUNT_SW_DUMMY);
        set_tracking(&mut attr);
        attr.set_ksymbol(1);
        attr
    }

    /// Returns the attributes of an event that samples `clock`.
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

    /// Whether stack copies may be short while all stacks are: unless the user chose the call
    /// graph, or the ring buffers hold no longer copies.
    pub(super) fn may_copy_less(&self) -> bool {
        self.call_graph == CallGraph::Auto && self.stack_bytes() > SHORT_BYTES
    }

    /// Returns the attributes of a sampler that makes short stack copies and no user callchain.
    pub(super) fn short_sampler(&self) -> sys::perf_event_attr {
        let mut attr = self.sampler();
        attr.sample_stack_user = SHORT_BYTES;
        attr.set_exclude_callchain_user(1);
        attr
    }

    /// Returns the attributes of an event that samples one in `period` occurrences.
    pub(super) fn occurrence_sampler(&self, kind: Occurrence, period: u64) -> sys::perf_event_attr {
        let mut attr = self.sampler();
        (attr.type_, attr.config) = match kind {
            Occurrence::Fault => (
                sys::PERF_TYPE_SOFTWARE,
                sys::PERF_COUNT_SW_PAGE_FAULTS.into(),
            ),
            Occurrence::Wakeup => (sys::PERF_TYPE_TRACEPOINT, self.wakeups.unwrap_or_default()),
        };
        // What an interrupt wakes on an idle CPU counts, too.
        attr.set_exclude_idle(0);
        attr.__bindgen_anon_1.sample_period = period;
        attr.set_freq(0);
        // Until the period is longer, a block of memory that is used first has many samples.
        let share = (self.bytes_of_each_ring() / OCCURRENCES_PER_RING) as u32 & !7;
        let copied = &mut attr.sample_stack_user;
        *copied = (*copied).min(share);
        if self.call_graph == CallGraph::Auto {
            *copied = (*copied).min(SHORT_BYTES);
        }
        attr
    }

    /// Returns the attributes of an event that counts the occurrences which [`Self::occurrence_sampler`] samples.
    pub(super) fn occurrence_counter(&self, kind: Occurrence) -> sys::perf_event_attr {
        let mut attr = self.occurrence_sampler(kind, 0);
        (
            attr.sample_type,
            attr.sample_regs_user,
            attr.sample_stack_user,
        ) = (0, 0, 0);
        attr.set_watermark(0);
        attr.__bindgen_anon_2.wakeup_watermark = 0;
        attr
    }

    /// Returns the maximum number of samples of a kind of occurrences between two choices of their period: they
    /// fill half of a ring buffer at most, and last for 125 ms at the frequency.
    pub(super) fn occurrence_budget(&self, kind: Occurrence) -> u32 {
        let copied = u64::from(self.occurrence_sampler(kind, 1).sample_stack_user);
        let room = self.bytes_of_each_ring() as u64 / 2 / (copied + SAMPLE_BYTES);
        (self.frequency_hz / 8).clamp(MIN_BUDGET, (room as u32).max(MIN_BUDGET))
    }

    /// Returns the attributes of an event that samples the occurrences of a thread and all it starts.
    pub(super) fn inherited_occurrences(&self, kind: Occurrence) -> sys::perf_event_attr {
        let mut attr = self.occurrence_sampler(kind, kind.thread_period().unwrap_or(1));
        attr.set_inherit(1);
        attr
    }

    /// Returns whether samples of the clock have a period. Otherwise it is [`Self::period_ns`].
    pub(super) fn has_periods(&self) -> bool {
        self.kinds().is_empty()
    }

    /// Returns the attributes of an event that samples and tracks a thread and all it starts.
    pub(super) fn inherited(&self) -> sys::perf_event_attr {
        let mut attr = self.sampler();
        // Two events may sample one thread, see `thread_events`.
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
    fn sizes_ring_buffers_for_frequency_and_cpus() {
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
    fn limits_stack_copies_to_the_ring_buffer() {
        let copied = |call_graph, hz, ring_bytes| {
            SamplingRequest::new(hz, call_graph, 2)
                .with_ring_bytes(ring_bytes)
                .with_stacks_that_fit()
                .stack_bytes()
        };
        assert_eq!(copied(CallGraph::Auto, 999, 16 << 20), 61_440);
        // Sixty samples with copies of this size fit.
        assert_eq!(copied(CallGraph::Auto, 999, 512 << 10), 7_856);
        assert_eq!(copied(CallGraph::Auto, 20_000, 128 << 10), 1024);
        let short = CallGraph::StackCopy { bytes: 2048 };
        assert_eq!(copied(short, 999, 512 << 10), 2048);
        assert_eq!(copied(CallGraph::FramePointers, 999, 512 << 10), 0);
    }
}
