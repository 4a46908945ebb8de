//! Counts of events of the CPU and the kernel, by process.

use serde::{Deserialize, Serialize};

/// Maximum number of processes whose counts are kept.
pub(crate) const MAX_COUNTED: usize = 64;

/// An event of the CPU or the kernel that is counted.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum CounterEvent {
    /// Cycles of a busy CPU.
    Cycles,
    /// Instructions.
    Instructions,
    /// Branch instructions.
    Branches,
    /// Mispredicted branches.
    BranchMisses,
    /// Accesses to the last-level cache, on most CPUs.
    CacheReferences,
    /// Accesses that it could not serve.
    CacheMisses,
    /// Page faults without I/O.
    MinorFaults,
    /// Page faults with I/O.
    MajorFaults,
    /// Context switches.
    ContextSwitches,
    /// Moves of a thread to another CPU.
    CpuMigrations,
    /// An event of a newer perfcollect.
    #[default]
    #[serde(other)]
    Unknown,
}

impl CounterEvent {
    /// Events that need counters of the CPU (`-hwevents`).
    pub const HARDWARE: [Self; 6] = [
        Self::Cycles,
        Self::Instructions,
        Self::Branches,
        Self::BranchMisses,
        Self::CacheReferences,
        Self::CacheMisses,
    ];
    /// Events that the kernel counts (`-system`).
    pub const SYSTEM: [Self; 4] = [
        Self::MinorFaults,
        Self::MajorFaults,
        Self::ContextSwitches,
        Self::CpuMigrations,
    ];

    /// Returns the name of the event as perf spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cycles => "cycles",
            Self::Instructions => "instructions",
            Self::Branches => "branches",
            Self::BranchMisses => "branch-misses",
            Self::CacheReferences => "cache-references",
            Self::CacheMisses => "cache-misses",
            Self::MinorFaults => "minor-faults",
            Self::MajorFaults => "major-faults",
            Self::ContextSwitches => "context-switches",
            Self::CpuMigrations => "cpu-migrations",
            Self::Unknown => "unknown",
        }
    }

    /// Returns the event that a ratio of this one is of, such as instructions of cycles.
    #[must_use]
    pub fn base(self) -> Option<Self> {
        match self {
            Self::Instructions => Some(Self::Cycles),
            Self::BranchMisses => Some(Self::Branches),
            Self::CacheMisses => Some(Self::CacheReferences),
            _ => None,
        }
    }
}

/// Counts of the target's processes, or of the whole system.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counters {
    /// One row per process, in the order in which they were found; one without a process id for the
    /// whole system. At most 64.
    pub processes: Vec<ProcessCounters>,
    /// Whether kernel code was not counted.
    pub user_code_only: bool,
}

/// Counts of a process, and of everything that it started during the capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessCounters {
    /// Process id; `None` for the whole system.
    pub pid: Option<i32>,
    /// Name of the process. Untrusted.
    pub name: String,
    /// The counts, one per event.
    pub counts: Vec<EventCount>,
}

/// How often an event occurred.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventCount {
    /// The event.
    pub event: CounterEvent,
    /// Number of times, extrapolated from the counted part of the time.
    pub count: u64,
    /// Part of the time in which it was counted, in percent. It is less than 100 if more events than the CPU
    /// has counters took turns.
    pub counted_percent: f64,
}

impl ProcessCounters {
    /// Returns the count of an event.
    #[must_use]
    pub fn count(&self, event: CounterEvent) -> Option<u64> {
        let mut counts = self.counts.iter();
        counts
            .find(|count| count.event == event)
            .map(|count| count.count)
    }

    /// Returns how often an event occurs for each time of the event that it is compared with.
    #[must_use]
    pub fn ratio(&self, event: CounterEvent) -> Option<f64> {
        let base = self.count(event.base()?).filter(|base| *base > 0)?;
        Some(self.count(event)? as f64 / base as f64)
    }
}

impl Counters {
    /// Returns the totals of all processes. Part of the time: the least of them.
    #[must_use]
    pub fn total(&self) -> ProcessCounters {
        let mut total = ProcessCounters::default();
        for count in self.processes.iter().flat_map(|process| &process.counts) {
            let mut known = total.counts.iter_mut();
            match known.find(|known| known.event == count.event) {
                Some(known) => {
                    known.count = known.count.saturating_add(count.count);
                    known.counted_percent = known.counted_percent.min(count.counted_percent);
                }
                None => total.counts.push(*count),
            }
        }
        total
    }

    /// Drops what is beyond the limits: a file may have any number of rows.
    pub(crate) fn truncate(&mut self) {
        self.processes.truncate(MAX_COUNTED);
        let all = CounterEvent::HARDWARE.len() + CounterEvent::SYSTEM.len();
        for process in &mut self.processes {
            process.counts.truncate(all);
        }
    }

    /// Keeps these processes only. A row of the whole system is not one of them.
    pub(crate) fn keep(&mut self, is_kept: impl Fn(i32) -> bool) {
        self.processes
            .retain(|process| process.pid.is_some_and(&is_kept));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: i32, counts: &[(CounterEvent, u64, f64)]) -> ProcessCounters {
        let counts = counts
            .iter()
            .map(|&(event, count, counted_percent)| EventCount {
                event,
                count,
                counted_percent,
            });
        ProcessCounters {
            pid: Some(pid),
            name: "app".into(),
            counts: counts.collect(),
        }
    }

    /// The counts are those of a machine with hardware counters.
    #[test]
    fn adds_processes_and_compares_events() {
        use CounterEvent::{BranchMisses, Cycles, Instructions};
        let counters = Counters {
            processes: vec![
                process(
                    1,
                    &[
                        (Cycles, 3_000_000_000, 100.0),
                        (Instructions, 4_500_000_000, 80.0),
                    ],
                ),
                process(
                    2,
                    &[
                        (Cycles, 1_000_000_000, 100.0),
                        (Instructions, 500_000_000, 100.0),
                    ],
                ),
            ],
            user_code_only: false,
        };
        let total = counters.total();
        assert_eq!(total.count(Cycles), Some(4_000_000_000));
        assert_eq!(total.ratio(Instructions), Some(1.25));
        assert_eq!(total.counts[1].counted_percent, 80.0);
        assert_eq!(total.ratio(BranchMisses), None);
        assert_eq!(total.ratio(Cycles), None);
    }

    #[test]
    fn events_of_newer_versions_are_kept_as_unknown() {
        let json = r#"{"event": "llc-loads", "count": 7, "counted_percent": 100.0}"#;
        let count: EventCount = serde_json::from_str(json).unwrap();
        assert_eq!((count.event, count.count), (CounterEvent::Unknown, 7));
        for event in CounterEvent::HARDWARE
            .into_iter()
            .chain(CounterEvent::SYSTEM)
        {
            let json = serde_json::to_string(&event).unwrap();
            assert_eq!(json, format!("\"{}\"", event.name()));
        }
    }
}
