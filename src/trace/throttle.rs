//! Pauses in sampling: the kernel throttles sampling that takes too much time.

use serde::{Deserialize, Serialize};

use super::{Cpu, Nanos};

/// The pauses of one CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPauses {
    /// CPU id.
    pub cpu: u32,
    /// Number of pauses.
    pub times: u64,
    /// Total duration, in nanoseconds.
    pub paused_ns: u64,
    /// Start of the first pause, nanoseconds on CLOCK_MONOTONIC.
    pub first_ns: u64,
    /// End of the last pause, or its start if it still lasts.
    pub last_ns: u64,
    /// Start of the current pause; `None` in a finished capture.
    #[serde(skip)]
    pub since: Option<Nanos>,
}

/// The pauses of all throttled CPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Pauses(pub Vec<CpuPauses>);

impl Pauses {
    /// Records that sampling paused on a CPU.
    pub fn start(&mut self, Cpu(cpu): Cpu, time: Nanos) {
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

    /// Records that sampling resumed on a CPU.
    pub fn end(&mut self, Cpu(cpu): Cpu, time: Nanos) {
        let pauses = self.0.iter_mut().find(|pauses| pauses.cpu == cpu);
        if let Some(pauses) = pauses
            && let Some(since) = pauses.since.take()
        {
            pauses.paused_ns += time.0.saturating_sub(since.0);
            pauses.last_ns = time.0;
        }
    }

    /// Ends all current pauses, as the capture is over.
    pub fn end_all(&mut self, time: Nanos) {
        for at in 0..self.0.len() {
            self.end(Cpu(self.0[at].cpu), time);
        }
    }

    /// Returns the number of pauses.
    #[must_use]
    pub fn times(&self) -> u64 {
        self.0
            .iter()
            .map(|pauses| pauses.times)
            .fold(0, u64::saturating_add)
    }

    /// Returns the total duration over all CPUs, in nanoseconds.
    #[must_use]
    pub fn paused_ns(&self) -> u64 {
        self.0
            .iter()
            .map(|pauses| pauses.paused_ns)
            .fold(0, u64::saturating_add)
    }

    /// Returns the time range from the first pause to the last one.
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
        // An end without a start: the kernel lost the record of the start.
        pauses.end(Cpu(1), Nanos(5));
        pauses.start(Cpu(1), Nanos(10));
        pauses.start(Cpu(0), Nanos(20));
        pauses.end(Cpu(1), Nanos(40));
        // A second start belongs to the same pause: the kernel lost the record of the end.
        pauses.start(Cpu(1), Nanos(100));
        pauses.start(Cpu(1), Nanos(110));
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
