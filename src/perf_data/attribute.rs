//! `perf_event_attr`: what was sampled, and what a sample holds.

use perf_event_open_sys::bindings as sys;

use super::numbers::{Numbers, Order};
use crate::perf::Format;

/// The first version of the struct, and the one with everything that matters here; kernels have made it longer ever since.
const MIN_BYTES: usize = 64;
const BYTES: usize = 96;

/// `perf_event_attr` as far as it matters here, with the ids of its counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribute {
    /// The event's name, as perf was asked for it; empty if the file does not tell.
    pub name: String,
    /// `type`.
    pub kind: u32,
    /// `config`.
    pub config: u64,
    /// `sample_period`, or with `by_frequency` samples a second.
    pub period: u64,
    /// Whether the kernel made the period fit a frequency.
    pub by_frequency: bool,
    /// What a sample holds.
    pub format: Format,
    /// Ids by which records name it.
    pub ids: Vec<u64>,
}

/// What an event counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventSource {
    /// Nanoseconds a CPU or a task runs.
    Time,
    /// A tracepoint of the kernel, by its id.
    Tracepoint(u64),
    /// Anything else.
    Other,
}

impl Attribute {
    /// Reads the struct; it is as long as the bytes are.
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
        // Watermark, breakpoint.
        numbers.bytes.take(24)?;
        let (branch_type, user_regs) = (numbers.u64()?, numbers.u64()?);
        let flag = |bit: u32| flags >> bit & 1 != 0;
        Some(Self {
            name: String::new(),
            kind,
            config,
            period,
            by_frequency: flag(10),
            format: Format {
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

    /// Ids as they follow one another.
    pub(super) fn set_ids(&mut self, bytes: &[u8], order: Order) {
        let mut numbers = Numbers::new(bytes, order);
        self.ids = std::iter::from_fn(|| numbers.u64()).collect();
    }

    /// Gives it the name that perf gives an event of its kind, if the file tells none.
    pub(super) fn name_by_kind(&mut self) {
        const SOFTWARE: [&str; 12] = [
            "cpu-clock",
            "task-clock",
            "page-faults",
            "context-switches",
            "cpu-migrations",
            "minor-faults",
            "major-faults",
            "alignment-faults",
            "emulation-faults",
            "dummy",
            "bpf-output",
            "cgroup-switches",
        ];
        const HARDWARE: [&str; 10] = [
            "cycles",
            "instructions",
            "cache-references",
            "cache-misses",
            "branches",
            "branch-misses",
            "bus-cycles",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "ref-cycles",
        ];
        if !self.name.is_empty() {
            return;
        }
        let config = usize::try_from(self.config).unwrap_or(usize::MAX);
        let known = match self.kind {
            sys::PERF_TYPE_HARDWARE => HARDWARE.get(config),
            sys::PERF_TYPE_SOFTWARE => SOFTWARE.get(config),
            _ => None,
        };
        self.name = known.map_or_else(
            || format!("event-{}-{:#x}", self.kind, self.config),
            |name| (*name).into(),
        );
    }

    /// What it counts.
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

    /// Whether the kernel counted what it dropped.
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
