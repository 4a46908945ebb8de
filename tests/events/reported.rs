//! What the summary reports of a runtime, against the raw streams, the counters of the process and
//! PerfView.

use std::collections::BTreeMap;

use perfcollect::output::summary::{MethodPair, RuntimeSummary, Summary};
use serde_json::Value;

use crate::captured::Captured;
use crate::readers::{
    ALLOCATION_TICK, CONTENTION_START, CONTENTION_STOP, EXCEPTION, is_of_runtime,
};
use crate::support::events::{for_each_raw_event, raw_runtime_events};
use crate::tables::{ROUNDING, expect_near};

/// Returns what the summary has about the only process with events.
#[track_caller]
pub(crate) fn reported(captured: &Captured) -> RuntimeSummary {
    let summary: Summary = serde_json::from_value(captured.summary()).unwrap();
    let [runtime] = &summary.runtimes[..] else {
        panic!("{:#?}", summary.runtimes);
    };
    assert_eq!(runtime.pid, captured.done["pid"]);
    runtime.clone()
}

/// Returns the name of the user's method.
pub(crate) fn own(methods: &MethodPair) -> &str {
    methods.own.as_ref().map_or("", |method| &method.name)
}

/// Fails unless the summary has the collections that PerfView shows, and the exceptions, waits and
/// allocations of the raw streams.
#[track_caller]
pub(crate) fn expect_reported(captured: &Captured) -> RuntimeSummary {
    let runtime = reported(captured);
    let raw = raw_runtime_events(&captured.trace());
    expect_same_counts(&runtime, &raw);
    expect_allocated_by_ticks(&runtime, captured);
    for (what, percent) in [
        ("paused", runtime.gc.as_ref().map(|gc| gc.paused_percent)),
        ("GC", runtime.gc.as_ref().and_then(|gc| gc.cpu_percent)),
    ] {
        let is_percentage = percent.is_none_or(|percent| (0.0..=100.0).contains(&percent));
        assert!(is_percentage, "{what}: {percent:?}");
    }
    if let Some(gc) = captured.in_perfview("gc") {
        expect_same_collections(&runtime, &gc);
    }
    if let Some(jit) = captured.in_perfview("jit") {
        expect_same_compilations(&runtime, &jit);
    }
    runtime
}

#[track_caller]
fn expect_same_counts(runtime: &RuntimeSummary, raw: &BTreeMap<u32, u64>) {
    let sent = |id| raw.get(&id).copied().unwrap_or(0);
    let thrown = runtime.exceptions.clone().unwrap_or_default();
    assert_eq!(thrown.count, sent(EXCEPTION));
    let listed: u64 = thrown.rows.iter().map(|row| row.count).sum();
    assert!(listed <= thrown.count && (thrown.rows.len() == 20 || listed == thrown.count));
    let locks = runtime.contention.clone().unwrap_or_default();
    // A wait that had started before the session has only an end, with its duration since .NET 6.
    let (started, stopped) = (sent(CONTENTION_START), sent(CONTENTION_STOP));
    let counted = locks.count + locks.unended;
    assert!(
        (started..=started.max(stopped) + 1).contains(&counted),
        "{locks:#?}: {started} {stopped}"
    );
    assert!(locks.unended <= 1, "{locks:#?}");
}

/// Estimates of allocated bytes are the amounts of the ticks.
#[track_caller]
fn expect_allocated_by_ticks(runtime: &RuntimeSummary, captured: &Captured) {
    let (mut ticks, mut bytes) = (0, 0);
    for_each_raw_event(&captured.trace(), |event| {
        if is_of_runtime(event, ALLOCATION_TICK) {
            ticks += 1;
            bytes += u64::from_le_bytes(event.payload[10..18].try_into().unwrap());
        }
    });
    let allocated = runtime.allocations.clone().unwrap_or_default();
    assert_eq!((allocated.reports, allocated.bytes), (ticks, bytes));
}

#[track_caller]
fn expect_same_collections(runtime: &RuntimeSummary, theirs: &Value) {
    let Some(gc) = &runtime.gc else {
        assert_eq!(theirs["gcs"], 0);
        return;
    };
    assert_eq!(theirs["gcs"], gc.count);
    for (generation, count) in gc.generations.iter().enumerate() {
        assert_eq!(theirs[format!("gen{generation}")], *count, "{theirs:#}");
    }
    assert_eq!(theirs["induced"], gc.induced);
    let number = |key: &str| theirs[key].as_f64().unwrap();
    for (key, ours, rounding) in [
        ("totalPauseMs", gc.pause_ms, ROUNDING * gc.count as f64),
        ("maxPauseMs", gc.max_pause_ms, ROUNDING),
        ("peakHeapMB", gc.max_heap_bytes as f64 / 1e6, ROUNDING),
    ] {
        expect_near(ours, number(key), rounding, key);
    }
}

#[track_caller]
fn expect_same_compilations(runtime: &RuntimeSummary, theirs: &Value) {
    let jit = runtime.jit.clone().unwrap_or_default();
    assert_eq!(theirs["methods"], jit.count, "{theirs:#}");
    assert_eq!(theirs["ilBytes"], jit.il_bytes);
    assert_eq!(theirs["nativeBytes"], jit.native_bytes);
    expect_near(jit.ms, theirs["jitMs"].as_f64().unwrap(), ROUNDING, "JIT");
    let by_tier: u64 = jit.tiers.iter().map(|tier| tier.count).sum();
    assert_eq!(by_tier, jit.count);
}
