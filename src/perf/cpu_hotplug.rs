//! CPUs that come and go while they are sampled.

use std::fmt;
use std::io;

use crate::cpu_list;
use crate::ids::{Cpu, Nanos};
use crate::trace::Notice;

/// Time between two looks.
const INTERVAL_NS: u64 = 1_000_000_000;
/// Changes that are told one by one.
const MAX_TOLD: usize = 12;

/// Which CPUs are online, as last looked at.
pub(super) struct CpuHotplug {
    cpus: Vec<u32>,
    next_look: Nanos,
    told: Vec<(Nanos, Cpu, HotplugEvent)>,
    changes: usize,
}

/// What became of a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HotplugEvent {
    WentOffline,
    CameOnline,
    /// Both, between two looks.
    WasOffline,
    /// It is online, but cannot be sampled.
    NotSampled(String),
}

impl fmt::Display for HotplugEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WentOffline => f.write_str("went offline"),
            Self::CameOnline => f.write_str("came online"),
            Self::WasOffline => f.write_str("was offline for a moment"),
            Self::NotSampled(why) => write!(f, "came online and is not sampled ({why})"),
        }
    }
}

impl CpuHotplug {
    /// Begins with the CPUs that are online.
    pub(super) fn look() -> io::Result<Self> {
        Ok(Self {
            cpus: cpu_list::online()?,
            next_look: Nanos(0),
            told: Vec::new(),
            changes: 0,
        })
    }

    pub(super) fn cpus(&self) -> &[u32] {
        &self.cpus
    }

    /// The CPUs that are online now and were not, and the reverse; `None` before it is time to look again.
    pub(super) fn changes(&mut self, now: Nanos) -> Option<(Vec<u32>, Vec<u32>)> {
        if now < self.next_look {
            return None;
        }
        self.next_look = Nanos(now.0 + INTERVAL_NS);
        // It was readable at the start.
        let online = cpu_list::online().ok()?;
        let without = |list: &[u32], others: &[u32]| -> Vec<u32> {
            let missing = list.iter().filter(|cpu| !others.contains(cpu));
            missing.copied().collect()
        };
        let changes = (without(&online, &self.cpus), without(&self.cpus, &online));
        self.cpus = online;
        Some(changes)
    }

    pub(super) fn tell(&mut self, now: Nanos, cpu: Cpu, change: HotplugEvent) {
        self.changes += 1;
        if self.told.len() < MAX_TOLD {
            self.told.push((now, cpu, change));
        }
    }

    /// What became of the CPUs since the start of sampling.
    pub(super) fn notice(&self, start: Nanos) -> Option<Notice> {
        let seconds = |time: Nanos| time.0.saturating_sub(start.0) as f64 / 1e9;
        let told = self.told.iter().map(|(time, cpu, change)| {
            format!("CPU {} {change} at +{:.1} s", cpu.0, seconds(*time))
        });
        let mut told: Vec<String> = told.collect();
        let untold = self.changes - told.len();
        if untold > 0 {
            told.push(format!("and {untold} more such changes"));
        }
        let missed = self
            .told
            .iter()
            .any(|(.., change)| *change != HotplugEvent::WentOffline);
        if missed {
            told.push("what ran there up to a second before is missing".into());
        }
        (!told.is_empty()).then(|| Notice::new(told.join("; "), ""))
    }
}
