//! How long a thread ran between its last look and its end: the scheduler's counters end with it, so its samples
//! show that.

use crate::trace::Nanos;

/// Largest number of samples that are kept of a thread.
const MAX_SAMPLES: usize = 128;

/// What is known of a thread after its last look.
#[derive(Debug)]
pub(super) struct Tail {
    looked: Nanos,
    /// CPU time until then, in nanoseconds.
    ran_ns: u64,
    /// Times and lengths of later samples, in order.
    samples: Vec<(Nanos, u64)>,
    pub(super) end: Option<Nanos>,
}

impl Tail {
    pub(super) fn new(looked: Nanos, ran_ns: u64) -> Self {
        Self {
            looked,
            ran_ns,
            samples: Vec::new(),
            end: None,
        }
    }

    /// Begins anew with a look. Samples after it may be known already.
    pub(super) fn look(&mut self, time: Nanos, ran_ns: u64) {
        (self.looked, self.ran_ns) = (time, ran_ns);
        self.samples.retain(|(sampled, _)| *sampled > time);
    }

    /// Adds a sample that stands for `length` nanoseconds.
    pub(super) fn sample(&mut self, time: Nanos, length: u64) {
        if self.samples.len() == MAX_SAMPLES {
            let pairs = self.samples.chunks(2);
            let merged = pairs.map(|pair| {
                let (last, _) = pair[pair.len() - 1];
                (last, pair.iter().map(|(_, length)| length).sum())
            });
            self.samples = merged.collect();
        }
        self.samples.push((time, length));
    }

    /// Returns the CPU time of the thread at its end, in nanoseconds.
    pub(super) fn ran_at(&self, end: Nanos) -> u64 {
        let after = self.samples.iter();
        let after = after.filter(|(time, _)| (self.looked..=end).contains(time));
        after.fold(self.ran_ns, |sum, (_, length)| sum.saturating_add(*length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_samples_have_their_sum_and_their_times() {
        let mut tail = Tail::new(Nanos(0), 7);
        for time in 1..=5_000 {
            tail.sample(Nanos(time), 2);
        }
        assert!(tail.samples.len() <= MAX_SAMPLES);
        assert_eq!(tail.ran_at(Nanos(5_000)), 10_007);
        // Late ones are exact, and early ones are in groups.
        let half = tail.ran_at(Nanos(4_990));
        assert_eq!(half, 9_987);
        tail.look(Nanos(4_999), 9_000);
        assert_eq!(tail.ran_at(Nanos(5_000)), 9_002);
    }
}
