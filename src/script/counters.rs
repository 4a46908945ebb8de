//! Counter increases between samples: a sample may contain all members of its group (`{a,b}:S`).

use rustc_hash::FxHashMap;

use crate::perf_data::RecordingInfo;

/// Counters by id.
#[derive(Default)]
pub(super) struct Counters {
    by_id: FxHashMap<u64, Counter>,
    /// Number of events whose counters are included.
    events: usize,
}

struct Counter {
    event: usize,
    count: u64,
}

impl Counters {
    /// Returns the event of a counter and its increase since the last call. Returns `None` without
    /// an increase, or for an unknown counter.
    pub(super) fn since(
        &mut self,
        info: &RecordingInfo,
        (id, count): (u64, u64),
    ) -> Option<(usize, u64)> {
        // A pipe may declare more events later.
        let new = info.events.iter().enumerate().skip(self.events);
        for (event, attribute) in new {
            let counters = attribute
                .ids
                .iter()
                .map(|&id| (id, Counter { event, count: 0 }));
            self.by_id.extend(counters);
        }
        self.events = info.events.len();
        let counter = self.by_id.get_mut(&id)?;
        let before = std::mem::replace(&mut counter.count, count);
        let since = count.wrapping_sub(before);
        (since != 0).then_some((counter.event, since))
    }
}
