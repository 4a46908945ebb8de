//! The events of a process by kind.

use serde::{Deserialize, Serialize};

use super::{kept, largest_of};
use crate::dotnet::event_name;
use crate::trace::{Pid, Trace};

/// Maximum number of kinds of a process.
pub(super) const MAX_KINDS: usize = 50;

/// The events of one kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EventCount {
    /// Provider.
    pub provider: String,
    /// Name; `Event` and the id if it has none.
    pub name: String,
    /// Number of events that were received.
    pub count: u64,
    /// Number per second.
    pub per_second: f64,
}

/// Returns the most frequent kinds of a process, and the number of events of all others.
pub(super) fn counts(
    trace: &Trace,
    pid: Pid,
    per_second: impl Fn(u64) -> f64,
) -> (Vec<EventCount>, u64) {
    let streams = trace.events.streams().iter();
    let streams: Vec<_> = streams
        .filter(|stream| stream.name.process == pid)
        .map(|stream| &stream.counts)
        .collect();
    let kinds = streams.iter().flat_map(|counts| &counts.by_kind);
    let kinds =
        kinds.map(|(kind, count)| ((kept(&kind.provider), kept(&event_name(kind))), *count));
    let add = |sum: &mut u64, count: &u64| *sum = sum.saturating_add(*count);
    let rows = largest_of(kinds, add, |count| *count, MAX_KINDS);
    let rows: Vec<EventCount> = rows
        .into_iter()
        .map(|((provider, name), count)| EventCount {
            provider,
            name,
            count,
            per_second: per_second(count),
        })
        .collect();
    let sum = |counts: &mut dyn Iterator<Item = u64>| counts.fold(0, u64::saturating_add);
    let all = sum(&mut streams.iter().map(|counts| counts.events));
    let listed = sum(&mut rows.iter().map(|row| row.count));
    (rows, all.saturating_sub(listed))
}
