//! When the kernel paused sampling because it took too much time.

use serde::{Deserialize, Serialize};

use super::{Cpu, Nanos};

/// The pauses of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPauses {
    /// Its number.
    pub cpu: u32,
    /// How many.
    pub times: u64,
    /// How long they were together, in nanoseconds.
    pub paused_ns: u64,
    /// When the first began, nanoseconds on CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// When the last one ended, or began if it still lasts.
    pub last_ns: u64,
    /// Start of the one that lasts; `None` in a finished capture.
    #[serde(skip)]
    pub since: Option<Nanos>,
}

/// The pauses of all CPUs that had any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pauses(pub Vec<CpuPauses>);

impl Pauses {
    /// Sampling stops on a CPU.
    pub fn begin(&mut self, Cpu(cpu): Cpu, time: Nanos) {
        let at = self.0.iter().position(|pauses| pauses.cpu == cpu);
        let at = at.unwrap_or_else(|| {
            self.0.push(CpuPauses {
                cpu,
                first_ns: time.0,
                ..CpuPauses::default()
            });
            self.0.len() - 1
        });
        let pauses = &mut self.0[at];
        pauses.times += 1;
        pauses.last_ns = time.0;
        pauses.since.get_or_insert(time);
    }

    /// Sampling goes on there.
    pub fn end(&mut self, Cpu(cpu): Cpu, time: Nanos) {
        let pauses = self.0.iter_mut().find(|pauses| pauses.cpu == cpu);
        if let Some(pauses) = pauses
            && let Some(since) = pauses.since.take()
        {
            pauses.paused_ns += time.0.saturating_sub(since.0);
            pauses.last_ns = time.0;
        }
    }

    /// The capture is over, and with it what still lasts.
    pub fn end_all(&mut self, time: Nanos) {
        for at in 0..self.0.len() {
            self.end(Cpu(self.0[at].cpu), time);
        }
    }

    /// How many there were.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.0.iter().map(|pauses| pauses.times).sum()
    }

    /// How long they were, over all CPUs, in nanoseconds.
    #[must_use]
    pub fn paused_ns(&self) -> u64 {
        self.0.iter().map(|pauses| pauses.paused_ns).sum()
    }

    /// From the first to the last one.
    #[must_use]
    pub fn range(&self) -> Option<(Nanos, Nanos)> {
        let first = self.0.iter().map(|pauses| pauses.first_ns).min()?;
        let last = self.0.iter().map(|pauses| pauses.last_ns).max()?;
        Some((Nanos(first), Nanos(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_add_up_by_cpu() {
        let mut pauses = Pauses::default();
        assert_eq!(pauses.range(), None);
        // No end without a beginning: the record of it was lost.
        pauses.end(Cpu(1), Nanos(5));
        pauses.begin(Cpu(1), Nanos(10));
        pauses.begin(Cpu(0), Nanos(20));
        pauses.end(Cpu(1), Nanos(40));
        // A second beginning is the same pause, but for the record of the end.
        pauses.begin(Cpu(1), Nanos(100));
        pauses.begin(Cpu(1), Nanos(110));
        pauses.end(Cpu(1), Nanos(115));
        pauses.end(Cpu(1), Nanos(117));
        pauses.end_all(Nanos(120));
        let times = |at: usize| {
            let on: &CpuPauses = &pauses.0[at];
            (on.cpu, on.times, on.paused_ns, on.first_ns, on.last_ns)
        };
        assert_eq!(times(0), (1, 3, 45, 10, 115));
        assert_eq!(times(1), (0, 1, 100, 20, 120));
        assert_eq!((pauses.times(), pauses.paused_ns()), (4, 145));
        assert_eq!(pauses.range(), Some((Nanos(10), Nanos(120))));
    }
}
