//! A distribution of times in a fixed amount of memory.

/// Parts of a power of two: a time is known to 12.5 %.
const PARTS: u32 = 8;
const PART_BITS: u32 = PARTS.ilog2();
const BUCKETS: usize = ((u64::BITS - PART_BITS + 1) * PARTS) as usize;

/// Times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Latencies {
    counts: Box<[u32; BUCKETS]>,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) max_ns: u64,
}

impl Default for Latencies {
    fn default() -> Self {
        Self {
            counts: Box::new([0; BUCKETS]),
            count: 0,
            total_ns: 0,
            max_ns: 0,
        }
    }
}

impl Latencies {
    pub(super) fn push(&mut self, ns: u64) {
        if let Some(count) = self.counts.get_mut(bucket(ns)) {
            *count = count.saturating_add(1);
        }
        self.count += 1;
        self.total_ns = self.total_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Returns the time that this part of them, from 0 to 1, took at most.
    pub(super) fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            below += u64::from(count);
            if below >= wanted {
                return end(bucket).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

/// Returns the row of a time: those below [`PARTS`] have a row each.
fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(PART_BITS + 1);
    (u64::from(shift * PARTS) + (ns >> shift)) as usize
}

/// Returns the last time of a row.
fn end(bucket: usize) -> u64 {
    let parts = PARTS as usize;
    let shift = (bucket / parts).saturating_sub(1);
    let start = (bucket - shift * parts) as u128;
    let end = ((start + 1) << shift) - 1;
    u64::try_from(end).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_time_is_in_a_row_that_ends_at_most_an_eighth_later() {
        let times = (0..64).flat_map(|bit| [1_u64 << bit, (1 << bit) + (1 << bit) / 3]);
        for ns in times.chain([0, 5, 1000, 1_000_000_007, u64::MAX]) {
            let row = bucket(ns);
            assert!(row < BUCKETS, "{ns}");
            let last = end(row);
            assert!(last >= ns && last - ns <= ns / 8, "{ns} {last}");
            assert!(row == 0 || end(row - 1) < ns, "{ns}");
        }
    }

    #[test]
    fn quantiles_are_of_the_sorted_times() {
        let mut latencies = Latencies::default();
        (1..=1000).for_each(|ms| latencies.push(ms * 1_000_000));
        for (part, ms) in [(0.5, 500), (0.99, 990), (1.0, 1000)] {
            let exact = ms * 1_000_000;
            let found = latencies.quantile(part);
            assert!(
                found >= exact && found <= exact + exact / 8,
                "{part}: {found}"
            );
        }
        assert_eq!(Latencies::default().quantile(0.5), 0);
    }
}
