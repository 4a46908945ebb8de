//! `perf_event_attr`: the recorded event and the fields of its samples.

use perf_event_open_sys::bindings as sys;

use super::numbers::{Numbers, Order};
use crate::perf::RecordFormat;
use crate::trace::Callers;

/// Size of the first version of the struct.
const MIN_BYTES: usize = 64;
/// Size of the members that perfcollect reads. Newer kernels append members.
const BYTES: usize = 96;

/// The members of `perf_event_attr` that perfcollect reads, with the ids of the event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// Name of the event on perf's command line; empty if the file does not contain it.
    pub name: String,
    /// `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `sample_period`, or `sample_freq` (in Hz) if `by_frequency` is set.
    pub period: u64,
    /// Whether the kernel adjusts the period to a frequency (`freq`).
    pub by_frequency: bool,
    /// Whether the user part of callchains is recorded later (`defer_callchain`).
    pub defers_user_callers: bool,
    /// Modes in which the event does not count.
    pub excluded: Excluded,
    /// `precise_ip`: maximum skid of the sampled address, from 0 (arbitrary) to 3 (none).
    pub precise_ip: u8,
    /// `bp_type` of a breakpoint.
    pub breakpoint_access: u32,
    /// `bp_addr` of a breakpoint.
    pub breakpoint_address: u64,
    /// Members that determine the record layout.
    pub format: RecordFormat,
    /// Ids of the event in records.
    pub ids: Vec<u64>,
}

/// Modes in which an event does not count, and callers that its callchains omit (`exclude_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Excluded {
    /// User space.
    pub user: bool,
    /// The kernel.
    pub kernel: bool,
    /// The hypervisor.
    pub hypervisor: bool,
    /// The host of virtual machines.
    pub host: bool,
    /// Virtual machines.
    pub guest: bool,
    /// Callers in user space.
    pub user_callers: bool,
}

/// Source of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// CPU clock or task clock, in nanoseconds.
    Time,
    /// A tracepoint of the kernel, by id.
    Tracepoint(u64),
    /// Any other event.
    Other,
}

impl Attribute {
    /// Parses the struct, whose size is the length of `bytes`.
    pub(super) fn parse(bytes: &[u8], order: Order) -> Option<Self> {
        if bytes.len() < MIN_BYTES {
            return None;
        }
        let mut whole = [0; BYTES];
        let len = bytes.len().min(BYTES);
        whole[..len].copy_from_slice(&bytes[..len]);
        let mut numbers = Numbers::new(&whole, order);
        let (kind, _size, config) = (numbers.u32()?, numbers.u32()?, numbers.u64()?);
        let (period, sample_type, read_format) = (numbers.u64()?, numbers.u64()?, numbers.u64()?);
        let flags = numbers.bits()?;
        let (_watermark, breakpoint_access) = (numbers.u32()?, numbers.u32()?);
        let (breakpoint_address, _breakpoint_len) = (numbers.u64()?, numbers.u64()?);
        let (branch_type, user_regs) = (numbers.u64()?, numbers.u64()?);
        let flag = |bit: u32| flags >> bit & 1 != 0;
        Some(Self {
            name: String::new(),
            kind,
            config,
            period,
            by_frequency: flag(10),
            defers_user_callers: flag(38),
            excluded: Excluded {
                user: flag(4),
                kernel: flag(5),
                hypervisor: flag(6),
                host: flag(19),
                guest: flag(20),
                user_callers: flag(22),
            },
            precise_ip: u8::from(flag(15)) | u8::from(flag(16)) << 1,
            breakpoint_access,
            breakpoint_address,
            format: RecordFormat {
                sample_type,
                read_format,
                branch_type,
                user_regs,
                sample_id_all: flag(18),
                foreign_registers: false,
            },
            ids: Vec::new(),
        })
    }

    /// Sets the ids from consecutive 64-bit integers.
    pub(super) fn set_ids(&mut self, bytes: &[u8], order: Order) {
        let mut numbers = Numbers::new(bytes, order);
        self.ids = std::iter::from_fn(|| numbers.u64()).collect();
    }

    /// Returns the source of the event.
    #[must_use]
    pub fn source(&self) -> EventSource {
        let clocks = [sys::PERF_COUNT_SW_CPU_CLOCK, sys::PERF_COUNT_SW_TASK_CLOCK];
        match self.kind {
            sys::PERF_TYPE_SOFTWARE if clocks.map(u64::from).contains(&self.config) => {
                EventSource::Time
            }
            sys::PERF_TYPE_TRACEPOINT => EventSource::Tracepoint(self.config),
            _ => EventSource::Other,
        }
    }

    /// Returns the type of the unit to which a generic event is restricted on a hybrid processor.
    ///
    /// It is in the upper half of the configuration (`PERF_PMU_TYPE_SHIFT`).
    pub(super) fn hybrid_unit(&self) -> Option<u32> {
        let is_generic = matches!(self.kind, sys::PERF_TYPE_HARDWARE | sys::PERF_TYPE_HW_CACHE);
        let unit = (self.config >> 32) as u32;
        (is_generic && unit != 0).then_some(unit)
    }

    /// Returns which callers the samples of the event have.
    #[must_use]
    pub fn callers(&self) -> Callers {
        let has_copy = self.has(sys::PERF_SAMPLE_REGS_USER | sys::PERF_SAMPLE_STACK_USER);
        match self.has_callchain() {
            _ if has_copy => Callers::All,
            true if self.excluded.user_callers => Callers::Kernel,
            true => Callers::All,
            false => Callers::None,
        }
    }

    /// Whether the kernel counted lost samples.
    #[must_use]
    pub fn counts_losses(&self) -> bool {
        self.format.read_format & u64::from(sys::PERF_FORMAT_LOST) != 0
    }

    /// Whether samples have a callchain.
    #[must_use]
    pub fn has_callchain(&self) -> bool {
        self.has(sys::PERF_SAMPLE_CALLCHAIN)
    }

    /// Whether samples have these fields (`PERF_SAMPLE_*`).
    #[must_use]
    pub fn has(&self, fields: u32) -> bool {
        self.format.sample_type & u64::from(fields) == u64::from(fields)
    }
}
