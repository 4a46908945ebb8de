//! How long records wait in the ring buffers for the analysis of code.
//!
//! The callers of a sample in code without unwind information are known when a thread has analyzed
//! it. Meanwhile, the sample and all that follow stay in the ring buffers.

use std::time::{Duration, Instant};

/// Maximum time that one record waits, and the first records together.
const AT_ONCE: Duration = Duration::from_millis(500);
/// Part of the time that records may wait.
const ONE_IN: u32 = 20;

/// The time that records have waited.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Start of the first wait.
    first: Option<Instant>,
    /// Start of the current wait.
    since: Option<Instant>,
    /// Time of the waits before it.
    waited: Duration,
}

impl Patience {
    /// Returns whether the current record may wait longer. Else it must be processed.
    pub(super) fn may_wait(&mut self, now: Instant) -> bool {
        let first = *self.first.get_or_insert(now);
        let since = *self.since.get_or_insert(now);
        let allowed = AT_ONCE + now.duration_since(first) / ONE_IN;
        let waits = self.waited + now.duration_since(since) < allowed.min(self.waited + AT_ONCE);
        if !waits {
            self.end(now);
        }
        waits
    }

    /// Returns whether a record waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// Ends the wait of the current record, if it waits.
    pub(super) fn end(&mut self, now: Instant) {
        if let Some(since) = self.since.take() {
            self.waited += now.duration_since(since);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_one_wait_and_the_share_of_all() {
        let start = Instant::now();
        let mut patience = Patience::default();
        assert!(patience.may_wait(start) && patience.is_waiting());
        assert!(patience.may_wait(start + AT_ONCE - Duration::from_millis(1)));
        let late = start + 2 * AT_ONCE;
        assert!(!patience.may_wait(late) && !patience.is_waiting());
        // All of the time was used.
        assert!(!patience.may_wait(late));
        let later = start + AT_ONCE * ONE_IN * 3;
        assert!(patience.may_wait(later));
        patience.end(later + Duration::from_millis(5));
        assert!(!patience.is_waiting());
    }
}
