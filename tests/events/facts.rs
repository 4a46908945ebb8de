//! The raw streams against the counters of the runtime.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::path::Path;

use perfcollect::dotnet::decode;
use perfcollect::nettrace::{Event, Value as Field};
use perfcollect::trace::Nanos;
use serde_json::Value;

use crate::readers::{
    ALLOCATION_TICK, CONTENTION_START, CONTENTION_STOP, GC_START, JITTING, METHOD_LOADED,
    is_of_runtime,
};
use crate::support::events::for_each_raw_event;

/// The rundown.
const RUNDOWN: &str = "Microsoft-Windows-DotNETRuntimeRundown";
const LISTED_AT_END: u32 = 144;

/// A tick reports the bytes handed out to threads since the last one, about 100 KB; they may not be
/// in use yet.
#[track_caller]
pub(crate) fn expect_allocated(trace: &Path, counted: &Value) {
    let mut allocated = 0;
    for_each_raw_event(trace, |event| {
        if is_of_runtime(event, ALLOCATION_TICK) {
            allocated += u64::from_le_bytes(event.payload[10..18].try_into().unwrap());
        }
    });
    let counted = counted["allocatedBytes"].as_u64().unwrap();
    let difference = counted.abs_diff(allocated);
    assert!(difference * 5 < counted, "{allocated} of {counted}");
}

/// The workloads read the counters of their runtime (its facts) after the last of these methods was
/// compiled, and before their thread compiles another.
const LAST_BEFORE: &str = "get_ElapsedMs";

/// Returns the number of started collections by generation.
pub(crate) fn collections_begun(trace: &Path) -> [u64; 3] {
    let mut by_generation = [0; 3];
    for_each_raw_event(trace, |event| {
        if is_of_runtime(event, GC_START) {
            by_generation[generation(event)] += 1;
        }
    });
    by_generation
}

fn generation(event: &Event<'_>) -> usize {
    u32::from_le_bytes(event.payload[4..8].try_into().unwrap()) as usize
}

/// Methods compiled before the session started, which is later on a busy machine: they are in the
/// rundown only.
fn compiled_before(trace: &Path) -> u64 {
    const JITTED: u64 = 8;
    let (mut loaded, mut listed) = (HashSet::new(), HashSet::new());
    for_each_raw_event(trace, |event| {
        let is_listed = event.metadata.provider == RUNDOWN && event.metadata.id == LISTED_AT_END;
        if !is_listed && !is_of_runtime(event, METHOD_LOADED) {
            return;
        }
        let (_, fields) = decode(event.metadata, event.payload);
        let number = |wanted: &str| {
            let field = fields.iter().find(|(name, _)| *name == wanted);
            match field {
                Some((_, Field::Unsigned(number))) => *number,
                other => panic!("{other:?}"),
            }
        };
        let start = number("MethodStartAddress");
        if !is_listed {
            loaded.insert(start);
        } else if number("MethodFlags") & JITTED != 0 {
            listed.insert(start);
        }
    });
    listed.difference(&loaded).count() as u64
}

/// Maximum number of methods that are compiled before the session starts, and that no event lists: on a
/// busy machine it starts some milliseconds late. Usually there are none, at most 19 were seen, of 2 000.
const MAX_UNSEEN_METHODS: u64 = 64;

/// Fails unless the numbers of compiled methods, lock contentions and started collections equal the
/// runtime's counters.
#[track_caller]
pub(crate) fn expect_counted_by_then(trace: &Path, facts: &Value) {
    let (mut started, mut compiled) = (Vec::new(), Vec::new());
    let (mut waits, mut waiting) = (Vec::new(), Vec::new());
    let mut collections = [const { Vec::new() }; 3];
    let mut last_before = None;
    for_each_raw_event(trace, |event| {
        let at = (event.thread.id, event.time);
        if is_of_runtime(event, JITTING) {
            started.push(at);
            let (_, fields) = decode(event.metadata, event.payload);
            let is_last = fields.iter().any(|(name, value)| {
                *name == "MethodName" && matches!(value, Field::Text(text) if text == LAST_BEFORE)
            });
            last_before = is_last.then_some(at).or(last_before);
        } else if is_of_runtime(event, METHOD_LOADED) {
            compiled.push(at);
        } else if is_of_runtime(event, CONTENTION_START) {
            waiting.push(at);
        } else if is_of_runtime(event, CONTENTION_STOP) {
            waits.push(at);
        } else if is_of_runtime(event, GC_START) {
            collections[generation(event)].push(at);
        }
    });
    let (thread, begin) = last_before.unwrap();
    let first_after = |of: &[(Option<u64>, Nanos)], time| {
        let of = of.iter().filter(|at| at.0 == thread && at.1 > time);
        of.map(|at| at.1).min()
    };
    let from = first_after(&compiled, begin).unwrap();
    let until = first_after(&started, from).unwrap();
    let count =
        |of: &[(Option<u64>, Nanos)], end| of.iter().filter(|at| at.1 <= end).count() as u64;
    let expect = |range: RangeInclusive<u64>, counted: &Value, what: &str| {
        let counted = counted.as_u64().unwrap();
        assert!(
            range.contains(&counted),
            "{what}: {counted} is not in {range:?}"
        );
    };
    let early = compiled_before(trace) + MAX_UNSEEN_METHODS;
    let methods = count(&compiled, from)..=count(&started, until) + early;
    expect(methods, &facts["jittedMethods"], "methods");
    // The runtime counts a wait before the event about its end.
    let contentions = count(&waits, from)..=count(&waits, until).max(count(&waiting, until));
    expect(contentions, &facts["lockContentions"], "contentions");
    for (generation, started) in collections.iter().enumerate() {
        let range = count(started, from)..=count(started, until);
        let counted = &facts["gcByGeneration"][generation];
        expect(range, counted, &format!("generation {generation}"));
    }
}
