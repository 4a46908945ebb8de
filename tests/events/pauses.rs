//! Pauses for garbage collections against the runtime's counters.

use std::collections::HashMap;
use std::path::Path;

use perfcollect::trace::Nanos;

use crate::readers::{GC_START, RUNTIME_PROVIDER};
use crate::support::events::for_each_raw_event;
use crate::tables::{ROUNDING, Tables, expect_near};

/// Ids of the pause events.
const GC_END: u32 = 2;
const RESTARTED: u32 = 3;
const SUSPEND: u32 = 9;
const TRIGGERED: u32 = 35;
const MARKED: u32 = 202;
/// Reasons for which the runtime suspends its threads.
const FOR_GC: u32 = 1;
const FOR_STEP: u32 = 6;
/// Type of a background collection.
const BACKGROUND: u32 = 1;

/// A suspension of the threads: its earliest possible start, and the time of its event.
struct Suspension {
    not_before: Nanos,
    begin: Nanos,
}

/// Fails unless the table has all pauses and the runtime's count is between their certain and their
/// possible length. The runtime reads the clock before it sends an event, on a busy machine long
/// before. A pause starts after the previous event of its thread, and ends between the last event
/// and the resumption.
#[track_caller]
pub(crate) fn expect_pauses_of_runtime(trace: &Path, tables: &Tables, counted_ms: f64) {
    let mut events = Vec::new();
    for_each_raw_event(trace, |event| {
        let id = event.metadata.id;
        let is_known = event.metadata.provider == RUNTIME_PROVIDER;
        let id = if is_known { id } else { 0 };
        let words = event.payload.chunks_exact(4);
        let words = words
            .take(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        events.push((event.time, event.thread.id, id, words.collect::<Vec<_>>()));
    });
    events.sort_by_key(|(time, ..)| *time);
    let mut last_of_thread = HashMap::new();
    let mut triggered = Nanos(0);
    let mut suspended = HashMap::new();
    let mut collection = None;
    let (mut paused, mut at_least, mut at_most) = (0, 0, 0);
    for (time, thread, id, words) in events {
        let last = last_of_thread.insert(thread, time).unwrap_or(Nanos(0));
        match id {
            TRIGGERED => triggered = time,
            SUSPEND if matches!(words[0], FOR_GC | FOR_STEP) => {
                let trigger = (words[0] == FOR_GC).then_some(triggered);
                let suspension = Suspension {
                    not_before: trigger.map_or(last, |trigger| trigger.max(last)),
                    begin: time,
                };
                suspended.insert(thread, suspension);
            }
            GC_START if words[3] != BACKGROUND => collection = Some((words[0], time, time)),
            MARKED => {
                if let Some((_, _, marked)) = &mut collection {
                    *marked = time;
                }
            }
            GC_END => {
                let ended = collection.take_if(|(number, ..)| *number == words[0]);
                at_least += ended.map_or(0, |(_, start, marked)| marked.0 - start.0);
            }
            RESTARTED => {
                if let Some(suspension) = suspended.remove(&thread) {
                    paused += time.0 - suspension.begin.0;
                    at_most += time.0 - suspension.not_before.0;
                }
            }
            _ => {}
        }
    }
    let ms = |ns| ns as f64 / 1e6;
    let in_table = tables.stated(" ms in all") + tables.stated(" ms more of pauses");
    expect_near(in_table, ms(paused), 2.0 * ROUNDING, "pauses");
    let range = ms(at_least) - ROUNDING..=ms(at_most) + ROUNDING;
    assert!(
        range.contains(&counted_ms),
        "{counted_ms} is not in {range:?}"
    );
}
