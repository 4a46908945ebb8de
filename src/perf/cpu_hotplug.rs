//! CPUs that go offline or come online during a capture.

use std::fmt;
use std::io;

use crate::cpu_list;
use crate::ids::{Cpu, Nanos};
use crate::trace::{Notice, NoticeKind};

/// Time between two checks of the online CPUs.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Maximum number of events in the notice; further events are only counted.
const MAX_REPORTED: usize = 12;

/// CPUs online at the last check, and the hotplug events of the capture.
pub(super) struct CpuHotplug {
    cpus: Vec<u32>,
    next_check: Nanos,
    reported: Vec<(Nanos, Cpu, HotplugEvent)>,
    events: usize,
}

/// Hotplug event of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HotplugEvent {
    WentOffline,
    CameOnline,
    /// The CPU went offline and came online between two checks.
    WasOffline,
    /// The CPU came online but cannot be sampled; with the reason.
    NotSampled(String),
}

impl fmt::Display for HotplugEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WentOffline => f.write_str("went offline"),
            Self::CameOnline => f.write_str("came online"),
            Self::WasOffline => f.write_str("was offline for a moment"),
            Self::NotSampled(reason) => write!(f, "came online and is not sampled ({reason})"),
        }
    }
}

impl CpuHotplug {
    /// Reads the CPUs that are online.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            cpus: cpu_list::online()?,
            next_check: Nanos(0),
            reported: Vec::new(),
            events: 0,
        })
    }

    pub(super) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// Returns the CPUs that came online and those that went offline since the last check.
    ///
    /// Returns `None` if the next check is not due yet.
    pub(super) fn changes(&mut self, now: Nanos) -> Option<(Vec<u32>, Vec<u32>)> {
        if now < self.next_check {
            return None;
        }
        self.next_check = Nanos(now.0 + INTERVAL_NS);
        // `new` has read the file, so an error here is unlikely.
        let online = cpu_list::online().ok()?;
        let without = |list: &[u32], others: &[u32]| -> Vec<u32> {
            let missing = list.iter().filter(|cpu| !others.contains(cpu));
            missing.copied().collect()
        };
        let changes = (without(&online, &self.cpus), without(&self.cpus, &online));
        self.cpus = online;
        Some(changes)
    }

    pub(super) fn record(&mut self, now: Nanos, cpu: Cpu, event: HotplugEvent) {
        self.events += 1;
        if self.reported.len() < MAX_REPORTED {
            self.reported.push((now, cpu, event));
        }
    }

    /// Returns a notice with the hotplug events since the start of sampling, if there are any.
    pub(super) fn notice(&self, start: Nanos) -> Option<Notice> {
        let seconds = |time: Nanos| time.0.saturating_sub(start.0) as f64 / 1e9;
        let parts = self
            .reported
            .iter()
            .map(|(time, cpu, event)| format!("CPU {} {event} at +{:.1} s", cpu.0, seconds(*time)));
        let mut parts: Vec<String> = parts.collect();
        let unreported = self.events - parts.len();
        if unreported > 0 {
            parts.push(format!("{unreported} more such events"));
        }
        let has_gaps = self
            .reported
            .iter()
            .any(|(.., event)| *event != HotplugEvent::WentOffline);
        if has_gaps {
            parts.push("up to 1 s of samples is missing before each time a CPU came online".into());
        }
        (!parts.is_empty()).then(|| {
            Notice::new(NoticeKind::CpuHotplug, parts.join("; "), "").counting(self.events)
        })
    }
}
