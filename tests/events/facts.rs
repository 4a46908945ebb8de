//! The raw streams against what the runtime has counted when it was asked.

use std::path::Path;

use perfcollect::dotnet::decode;
use perfcollect::dotnet::nettrace::Value as Field;
use perfcollect::trace::Nanos;
use serde_json::Value;

use crate::readers::{ALLOCATION_TICK, CONTENTION_STOP, JITTING, METHOD_LOADED, is_of_runtime};
use crate::support::events::for_each_raw_event;

/// A tick tells what was handed out to threads since the last, about 100 KB; they need not have used all of it.
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

/// What the ready workloads say of their runtime (its facts) is counted after the last of these methods was compiled, and
/// before their thread compiles another.
const LAST_BEFORE: &str = "get_ElapsedMs";

/// Methods that .NET 9 and 10 may have compiled before their session has begun: they start as fast as it does.
const BEFORE_SESSION: u64 = 32;

/// Fails unless the runtime had compiled as many methods, and waited for as many locks, when it was asked.
#[track_caller]
pub(crate) fn expect_counted_by_then(trace: &Path, facts: &Value) {
    let (mut begun, mut compiled, mut waits) = (Vec::new(), Vec::new(), Vec::new());
    let mut last_before = None;
    for_each_raw_event(trace, |event| {
        let at = (event.thread.id, event.time);
        if is_of_runtime(event, JITTING) {
            begun.push(at);
            let (_, fields) = decode(event.kind, event.payload);
            let is_last = fields.iter().any(|(name, value)| {
                *name == "MethodName" && matches!(value, Field::Text(text) if text == LAST_BEFORE)
            });
            last_before = is_last.then_some(at).or(last_before);
        } else if is_of_runtime(event, METHOD_LOADED) {
            compiled.push(at);
        } else if is_of_runtime(event, CONTENTION_STOP) {
            waits.push(at);
        }
    });
    let (thread, begin) = last_before.unwrap();
    let first_after = |of: &[(Option<u64>, Nanos)], time| {
        let of = of.iter().filter(|at| at.0 == thread && at.1 > time);
        of.map(|at| at.1).min()
    };
    let from = first_after(&compiled, begin).unwrap();
    let until = first_after(&begun, from).unwrap();
    let count =
        |of: &[(Option<u64>, Nanos)], end| of.iter().filter(|at| at.1 <= end).count() as u64;
    let methods = count(&compiled, from)..=count(&begun, until) + BEFORE_SESSION;
    let contentions = count(&waits, from)..=count(&waits, until);
    for (range, fact) in [(methods, "jittedMethods"), (contentions, "lockContentions")] {
        let counted = facts[fact].as_u64().unwrap();
        assert!(
            range.contains(&counted),
            "{fact}: {counted} is not in {range:?}"
        );
    }
}
