//! What counters have counted since the sample before: a sample may tell of all members of its group (`{a,b}:S`).

use rustc_hash::FxHashMap;

use crate::perf_data::RecordingInfo;

/// Counters by their id.
#[derive(Default)]
pub(super) struct Counters {
    by_id: FxHashMap<u64, Counter>,
    /// Events whose counters are among them.
    events: usize,
}

struct Counter {
    event: usize,
    count: u64,
}

impl Counters {
    /// The event of a counter, and what it has counted since it was told before; `None`: nothing, or it is no event's.
    pub(super) fn since(
        &mut self,
        about: &RecordingInfo,
        (id, count): (u64, u64),
    ) -> Option<(usize, u64)> {
        // In a pipe they may become more.
        let new = about.events.iter().enumerate().skip(self.events);
        for (event, attribute) in new {
            let counters = attribute
                .ids
                .iter()
                .map(|&id| (id, Counter { event, count: 0 }));
            self.by_id.extend(counters);
        }
        self.events = about.events.len();
        let counter = self.by_id.get_mut(&id)?;
        let before = std::mem::replace(&mut counter.count, count);
        let since = count.wrapping_sub(before);
        (since != 0).then_some((counter.event, since))
    }
}
