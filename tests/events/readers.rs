//! A trace as PerfView's reader and babeltrace see it, against its raw streams.

use std::collections::BTreeMap;
use std::path::Path;

use perfcollect::nettrace::Event;
use serde_json::Value;

use crate::captured::Captured;
use crate::support::events::{babeltrace, for_each_raw_event, raw_runtime_events};
use crate::support::perfview_json;

/// Ids of runtime events.
pub(crate) const GC_START: u32 = 1;
pub(crate) const ALLOCATION_TICK: u32 = 10;
pub(crate) const EXCEPTION: u32 = 80;
pub(crate) const CONTENTION_START: u32 = 81;
pub(crate) const CONTENTION_STOP: u32 = 91;
pub(crate) const METHOD_LOADED: u32 = 143;
pub(crate) const JITTING: u32 = 145;

/// Events of the runtime with PerfView's names.
const IN_PERFVIEW: [(u32, &str); 6] = [
    (GC_START, "GC/Start"),
    (ALLOCATION_TICK, "GC/AllocationTick"),
    (EXCEPTION, "Exception/Start"),
    (CONTENTION_STOP, "Contention/Stop"),
    (METHOD_LOADED, "Method/LoadVerbose"),
    (JITTING, "Method/JittingStarted"),
];

/// Provider of the events during the run.
pub(crate) const RUNTIME_PROVIDER: &str = "Microsoft-Windows-DotNETRuntime";

/// Returns whether this is the runtime's event with this id.
pub(crate) fn is_of_runtime(event: &Event<'_>, id: u32) -> bool {
    event.metadata.id == id && event.metadata.provider == RUNTIME_PROVIDER
}

/// The CTF part contains the events that PerfView knows from the raw streams, in time order, for
/// every reader.
#[track_caller]
pub(crate) fn expect_same_in_all_readers(trace: &Path) {
    let mut lines = Vec::new();
    for program in ["babeltrace", "babeltrace2"] {
        lines.extend(babeltrace(program, trace).into_iter().flatten());
    }
    let times: Vec<&str> = lines
        .iter()
        .filter_map(|line| line.split(']').next())
        .collect();
    let Some(events) = perfview_json("events", trace, &[]) else {
        return;
    };
    assert_eq!(
        (&events["lost"], &events["truncated"]),
        (&0.into(), &false.into())
    );
    let in_ctf = events["ctf"]["events"].as_u64().unwrap() as usize;
    for chunk in times.chunks(in_ctf) {
        assert_eq!(chunk.len(), in_ctf);
        assert!(chunk.is_sorted());
    }
    let raw = raw_runtime_events(trace);
    let shown = |name: &str| {
        let rows = events["byEvent"].as_array().unwrap();
        let row = rows.iter().find(|row| row["event"] == name);
        row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
    };
    for (id, name) in IN_PERFVIEW {
        assert_eq!(shown(name), raw.get(&id).copied().unwrap_or(0), "{name}");
    }
}

/// The merged file contains the samples of the summary and the events of the raw streams, with
/// their stacks.
#[track_caller]
pub(crate) fn expect_same_in_nettrace(captured: &Captured, collections: &Value) {
    let path = captured.nettrace();
    let Some(all) = perfview_json("nettrace", &path, &[]) else {
        return;
    };
    let summary = captured.summary();
    let (cpu, events) = (&all["cpu"], &all["events"]);
    assert_eq!(cpu["samples"], summary["samples"]);
    // The remainder of a thread's time is less than a millisecond.
    let (shown, is) = (&cpu["totalMs"], &summary["cpu_ms"]);
    let difference = (shown.as_f64().unwrap() - is.as_f64().unwrap()).abs();
    let threads = cpu["processes"].as_array().unwrap().iter();
    let threads: usize = threads
        .map(|p| p["threads"].as_array().unwrap().len())
        .sum();
    assert!(difference <= threads as f64, "{shown} {is}");
    assert_eq!(
        (&events["lost"], &events["truncated"]),
        (&0.into(), &false.into())
    );
    // The numbers of events, and of those with a stack.
    let mut raw: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for_each_raw_event(&captured.trace(), |event| {
        if event.metadata.provider == RUNTIME_PROVIDER {
            let counts = raw.entry(event.metadata.id).or_default();
            counts.0 += 1;
            counts.1 += u64::from(event.stack.addresses().next().is_some());
        }
    });
    assert!(raw[&EXCEPTION].1 > 0, "{raw:?}");
    for (id, name) in IN_PERFVIEW {
        let rows = events["byEvent"].as_array().unwrap();
        let row = rows.iter().find(|row| row["event"] == name);
        let count = |key: &str| row.and_then(|row| row[key].as_u64()).unwrap_or(0);
        let counts = (count("count"), count("withStack"));
        assert_eq!(counts, raw.get(&id).copied().unwrap_or_default(), "{name}");
    }
    let codes = &all["codeAddresses"];
    let count = |key: &str| codes[key].as_u64().unwrap();
    assert!(count("withMethod") * 100 >= count("total") * 99, "{codes}");
    let Some(gc) = perfview_json("gc", &path, &[]) else {
        return;
    };
    for (generation, count) in collections.as_array().unwrap().iter().enumerate() {
        assert_eq!(
            &gc["processes"][0][format!("gen{generation}")],
            count,
            "{gc:#}"
        );
    }
    // Both files count from the same time.
    let zip = perfview_json("cpu", &captured.trace(), &[]).unwrap();
    let first = |cpu: &Value| cpu["firstMs"].as_f64().unwrap();
    assert!((first(&zip) - first(cpu)).abs() < 0.01);
}
