//! Chooses between long and short stack copies on one CPU.
//!
//! A long copy and the kernel's callchain beside it cost a busy .NET program about a percent of its
//! throughput at 999 Hz. Nearly all stacks need neither: a CPU whose samples have needed only short
//! copies for a while gets a sampler that makes no other.

use crate::ids::Nanos;

/// Length of a short stack copy. Shorter ones do not cost measurably less.
pub(super) const SHORT_BYTES: u32 = 32 << 10;
/// Minimum part of a stack that calls for long copies. .NET needs 26 KB where exceptions are thrown.
const DEEP_BYTES: u64 = 28 << 10;
/// Time without a deep stack after which copies are short.
const QUIET_NS: u64 = 1_000_000_000;
/// Factor by which this time grows when a short copy has truncated a stack.
const QUIET_GROWTH: u64 = 8;

/// Choice for one CPU. The copies are long at first.
#[derive(Debug)]
pub(super) struct CopyLength {
    is_short: bool,
    /// Time of the start or the last deep stack.
    deep_at: Nanos,
    quiet_ns: u64,
}

impl CopyLength {
    pub(super) fn new(now: Nanos) -> Self {
        Self {
            is_short: false,
            deep_at: now,
            quiet_ns: QUIET_NS,
        }
    }

    /// Notes the largest number of stack bytes that a sample has needed since the last call.
    ///
    /// Returns whether copies should be short now, if that is a change.
    pub(super) fn note(&mut self, bytes: u64, now: Nanos) -> Option<bool> {
        let was_short = self.is_short;
        if bytes > DEEP_BYTES {
            if was_short && bytes > u64::from(SHORT_BYTES) {
                self.quiet_ns = self.quiet_ns.saturating_mul(QUIET_GROWTH);
            }
            (self.deep_at, self.is_short) = (now, false);
        } else {
            self.is_short |= now.0.saturating_sub(self.deep_at.0) >= self.quiet_ns;
        }
        (self.is_short != was_short).then_some(self.is_short)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHALLOW: u64 = 4 << 10;
    const DEEP: u64 = 40 << 10;

    /// Returns the changes, with their times in tenths of a second.
    fn changes(bytes_at: impl Fn(u64) -> u64, tenths: u64) -> Vec<(u64, bool)> {
        let mut length = CopyLength::new(Nanos(0));
        let noted = |tenth| {
            Some((
                tenth,
                length.note(bytes_at(tenth), Nanos(tenth * QUIET_NS / 10))?,
            ))
        };
        (0..tenths).filter_map(noted).collect()
    }

    #[test]
    fn copies_are_short_after_a_time_without_deep_stacks() {
        assert_eq!(changes(|_| SHALLOW, 100), [(10, true)]);
        assert_eq!(changes(|_| DEEP, 100), []);
        let deep_until_3 = |tenth| if tenth <= 30 { DEEP } else { SHALLOW };
        assert_eq!(changes(deep_until_3, 100), [(40, true)]);
    }

    #[test]
    fn rare_deep_stacks_soon_keep_copies_long() {
        let every_2_s = |tenth| if tenth % 20 == 19 { DEEP } else { SHALLOW };
        assert_eq!(changes(every_2_s, 600), [(10, true), (19, false)]);
        let every_10_s = |tenth| if tenth % 100 == 99 { DEEP } else { SHALLOW };
        let expected = [(10, true), (99, false), (179, true), (199, false)];
        assert_eq!(changes(every_10_s, 1000), expected);
    }
}
