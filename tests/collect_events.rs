//! The events of real .NET processes in a trace, as PerfView's reader and babeltrace see them,
//! against the counters of each process.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "events/captured.rs"]
mod captured;
#[path = "events/collections.rs"]
mod collections;
#[path = "events/facts.rs"]
mod facts;
#[path = "events/listed.rs"]
mod listed;
#[path = "events/methods.rs"]
mod methods;
#[path = "events/namespaces.rs"]
mod namespaces;
#[path = "events/pauses.rs"]
mod pauses;
#[path = "events/readers.rs"]
mod readers;
#[path = "events/reported.rs"]
mod reported;
#[path = "events/tables.rs"]
mod tables;
#[path = "events/timeline.rs"]
mod timeline;

use std::time::Duration;

use perfcollect::output::summary::{AllocationRow, RuntimeSummary};

use captured::{Captured, one_of_each, view};
use collections::{expect_cpu_time_of_collections, expect_same_table_of_collections};
use facts::{collections_begun, expect_allocated, expect_counted_by_then};
use listed::expect_same_list;
use methods::expect_same_table_of_methods;
use pauses::expect_pauses_of_runtime;
use readers::{
    ALLOCATION_TICK, CONTENTION_STOP, EXCEPTION, METHOD_LOADED, expect_same_in_all_readers,
    expect_same_in_nettrace, is_of_runtime,
};
use reported::{expect_reported, own};
use serde_json::Value;
use support::events::{entries, for_each_raw_event, raw_runtime_events};
use support::{Missing, Runtime, workloads};
use tables::Tables;
use timeline::{expect_same_details, expect_samples_line_up};

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(600);

/// PerfView's views, and perfcollect's tables, agree with the process.
#[track_caller]
fn expect_same_collections(captured: &Captured, counted: &Value) -> Option<Tables> {
    let gc = captured.in_perfview("gc")?;
    for (generation, count) in counted.as_array().unwrap().iter().enumerate() {
        assert_eq!(&gc[format!("gen{generation}")], count, "{gc:#}");
    }
    assert_eq!(gc["incomplete"], 0, "{gc:#}");
    expect_same_table_of_collections(&captured.trace(), &captured.nettrace())
}

/// Returns the number of exception events for a program's count. From .NET 9 on, the runtime sends
/// none when an exception is rethrown, as every fifth of this workload is.
fn exception_events(runtime: &Runtime, counted: &Value) -> u64 {
    let counted = counted.as_u64().unwrap();
    match runtime.major() {
        ..9 => counted,
        _ => counted / 5 * 4,
    }
}

/// From .NET 9 on, `Main` may run before the session has started (see docs/architecture.md): up to two
/// groups of the workload may be missing, with four events each.
#[track_caller]
fn expect_exceptions(runtime: &Runtime, sent: u64, thrown: u64) {
    let early = match runtime.major() {
        ..9 => 0,
        _ => 2 * 4,
    };
    assert!(
        (thrown - early..=thrown).contains(&sent),
        "{sent} of {thrown}"
    );
}

/// The summary has the methods of `mixed` that throw, wait and allocate, and its counts.
#[track_caller]
fn expect_known_methods(runtime: &RuntimeSummary, counted: &Value) {
    let gc = runtime.gc.clone().unwrap_or_default();
    assert_eq!(
        counted["gcByGeneration"],
        Value::from(gc.generations.to_vec())
    );
    let exceptions = runtime.exceptions.clone().unwrap_or_default();
    for row in &exceptions.rows {
        assert_eq!(row.type_name, "System.InvalidOperationException");
        assert!(
            own(&row.methods).contains("Exceptions.ThrowBelow("),
            "{row:#?}"
        );
        assert_eq!(row.methods.leaf, row.methods.own);
    }
    let locks = runtime.contention.clone().unwrap_or_default();
    let own_locks = locks
        .rows
        .iter()
        .find(|row| own(&row.methods).contains("EnterTaken("));
    let row = own_locks.unwrap_or_else(|| panic!("{locks:#?}"));
    // The owner sleeps for 2 ms while the other thread wakes up and waits.
    assert!(row.ms / row.count as f64 > 0.5, "{row:#?}");
    assert_eq!((row.threads, &row.methods.leaf), (1, &row.methods.own));
    let rows = &runtime.allocations.clone().unwrap_or_default().rows;
    let arrays = |row: &&AllocationRow| row.type_name == "System.Byte[]";
    if let Some(row) = rows.iter().find(arrays) {
        assert!(
            own(&row.methods).contains("Allocation.Allocate("),
            "{rows:#?}"
        );
    }
    let pool = runtime.thread_pool.clone().unwrap_or_default();
    assert!(pool.max_threads > 0 && pool.started > 0, "{pool:#?}");
}

/// One capture of each kind: with all events but frequent ones, and with allocation ticks.
#[test]
fn the_summary_reports_what_a_runtime_did() {
    need_capture!();
    let program = need!(workloads::mixed());
    let runtime = need!(Runtime::newest());
    let arguments = ["--cpu-seconds", "1"];
    let captured = Captured::run(&runtime, &program, &arguments, &[]);
    let default = expect_reported(&captured);
    expect_known_methods(&default, &captured.done["runtime"]);
    expect_same_list(&captured.trace());
    assert_eq!(default.allocations, None);
    let gc = default.gc.unwrap_or_default();
    assert!(!gc.has_ticks && gc.allocated_bytes > 0 && gc.is_server == Some(false));
    let captured = Captured::run(&runtime, &program, &arguments, &["-gconly"]);
    let allocations = expect_reported(&captured).allocations.unwrap_or_default();
    let arrays = allocations.rows.iter().find(|row| {
        row.type_name == "System.Byte[]" && own(&row.methods).contains("Allocation.Allocate(")
    });
    let arrays = arrays.unwrap_or_else(|| panic!("{allocations:#?}"));
    // The program makes these arrays, one in 3000 of them in the heap of large objects.
    let made = captured.done["counts"]["allocatedBytes"].as_u64().unwrap();
    assert!(
        arrays.bytes.abs_diff(made) * 4 < made,
        "{arrays:#?}: {made}"
    );
    assert!(arrays.large_bytes > 0 && arrays.large_bytes < arrays.bytes);
}

#[test]
#[ignore = "slow"]
fn events_of_every_runtime_are_what_it_counts_itself() {
    need_capture!();
    let program = need!(workloads::mixed());
    for runtime in one_of_each(|_| true) {
        println!("on .NET {}", runtime.version);
        let captured = Captured::run(&runtime, &program, &["--cpu-seconds", "3"], &[]);
        let counted = &captured.done["runtime"];
        let trace = captured.trace();
        let raw = raw_runtime_events(&trace);
        let exceptions = exception_events(&runtime, &counted["exceptions"]);
        expect_exceptions(&runtime, raw[&EXCEPTION], exceptions);
        if let Some(contentions) = counted["lockContentions"].as_u64() {
            // In many of their runs .NET 9 and 10 count one or two of which they send neither start
            // nor stop.
            let unsent = if runtime.major() >= 9 { 3 } else { 0 };
            let sent = raw[&CONTENTION_STOP];
            assert!(
                (contentions - unsent..=contentions).contains(&sent),
                "{sent} of {contentions}"
            );
        }
        let table = expect_same_collections(&captured, &counted["gcByGeneration"]);
        table.iter().for_each(expect_cpu_time_of_collections);
        let (mut with_stack, mut thrown) = (0, 0);
        let ends = for_each_raw_event(&trace, |event| {
            if is_of_runtime(event, EXCEPTION) {
                thrown += 1;
                with_stack += u64::from(event.stack.addresses().next().is_some());
            }
        });
        // .NET 8 and 9 have a second session.
        let has_two = (8..=9).contains(&runtime.major());
        assert_eq!(ends, vec![None; 1 + usize::from(has_two)]);
        assert_eq!(thrown, with_stack);
        // From .NET 8 on, the runtime sends no allocation ticks unless they are chosen.
        assert_eq!(raw.contains_key(&ALLOCATION_TICK), runtime.major() < 8);
        if runtime.major() < 8 {
            expect_allocated(&trace, counted);
        }
        expect_known_methods(&expect_reported(&captured), counted);
        expect_same_in_all_readers(&trace);
        expect_same_in_nettrace(&captured, &captured.done["runtime"]["gcByGeneration"]);
        expect_samples_line_up(&captured.nettrace());
        // Readers show no thread names, but the trace has them. Older runtimes name no threads.
        let nettrace = std::fs::read(captured.nettrace()).unwrap();
        let name = b".NET Tiered Com";
        let is_named = nettrace.windows(name.len()).any(|bytes| bytes == name);
        assert!(is_named || runtime.major() < 5);
        expect_same_details(&trace, &captured.nettrace(), EXCEPTION);
        expect_same_list(&trace);
        let listed = view(&trace, "events");
        assert!(
            !["", "Private", "Rundown"]
                .iter()
                .any(|of| listed.contains(&format!("DotNETRuntime{of}/Event")))
        );
        for shown in [
            "  ExceptionHRESULT=0x80131509  ",
            "/GCSuspendEEBegin  Reason=SuspendForGC  ",
            "|Jitted",
            "/ContentionStart  ContentionFlags=Managed  ",
        ] {
            assert!(listed.contains(shown), "{shown}");
        }
        let histories = listed
            .lines()
            .filter(|line| line.contains("/GCPerHeapHistory "));
        histories.for_each(|history| {
            assert!(history.contains("  Generations[") && !history.contains("[0]="))
        });
        let thrown_lines = listed.matches("/ExceptionThrown  ExceptionType=\"").count() as u64;
        assert_eq!(thrown_lines, thrown);
        expect_same_table_of_methods(&trace, &captured.nettrace());
        if let Some(jit) = captured.in_perfview("jit") {
            let command_line = jit["commandLine"].as_str().unwrap();
            assert!(command_line.contains("mixed.dll"), "{command_line}");
        }
        let events = &captured.summary()["quality"]["events"];
        assert_eq!(events[0]["dropped"], 0, "{events}");
        assert_eq!(events[0]["cut"], "", "{events}");
        // Methods of this program have symbols in its samples, too: both are in one trace.
        assert!(captured.summary()["samples"].as_u64().unwrap() > 100);
    }
}

#[test]
#[ignore = "slow"]
fn a_web_server_is_what_it_counts_itself() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    for runtime in one_of_each(|runtime| runtime.aspnet) {
        println!("on .NET {}", runtime.version);
        // On a busy machine, few requests of each kind complete.
        let mix = "throw,alloc,lock,json";
        let arguments = ["--load", "3", "--delay", "0.5", "--mix", mix];
        let captured = Captured::run(&runtime, &program, &arguments, &[]);
        let facts = &captured.done["facts"];
        let raw = raw_runtime_events(&captured.trace());
        // The shutdown of the server may throw one more, after its own count.
        let exceptions = facts["exceptions"].as_u64().unwrap();
        assert!((exceptions..=exceptions + 1).contains(&raw[&EXCEPTION]));
        expect_counted_by_then(&captured.trace(), facts);
        // The shutdown may need one more garbage collection, too.
        let started = collections_begun(&captured.trace()).to_vec().into();
        let table = expect_same_collections(&captured, &started);
        if let Some(table) = table {
            let counted = facts["gcPauseMs"].as_f64().unwrap();
            expect_pauses_of_runtime(&captured.trace(), &table, counted);
        }
        let listed = view(&captured.trace(), "events");
        assert!(
            !["", "Private", "Rundown"]
                .iter()
                .any(|of| listed.contains(&format!("DotNETRuntime{of}/Event")))
        );
        let thrown = expect_reported(&captured).exceptions.unwrap_or_default();
        assert!(!own(&thrown.rows[0].methods).is_empty(), "{thrown:#?}");
        expect_same_in_all_readers(&captured.trace());
        expect_same_in_nettrace(&captured, &started);
        expect_same_table_of_methods(&captured.trace(), &captured.nettrace());
    }
}

/// The options mean the same as in the perfcollect script: no samples, and only the named events.
#[test]
#[ignore = "slow"]
fn presets_of_the_original() {
    need_capture!();
    let program = need!(workloads::mixed());
    let runtime = need!(Runtime::newest());
    for (options, has_methods, has_ticks) in [
        (&["-gccollectonly"][..], false, false),
        (&["-gconly"], true, true),
        (&["-gcwithheap"], false, true),
        (&["-noperf", "-profile", "gc-collect"], false, false),
        (&["-noperf", "-clrevents", "gc+exception"], false, false),
    ] {
        println!("{options:?}");
        let captured = Captured::run(&runtime, &program, &["--cpu-seconds", "2"], options);
        let summary = captured.summary();
        assert_eq!(summary["samples"], 0);
        // The process has a name without a sample; in the archive, PerfView reads it from the
        // events.
        assert_eq!(summary["processes"][0]["name"], "dotnet");
        assert!(!captured.directory.path().join("x.flamegraph.svg").exists());
        assert!(view(&captured.trace(), "report").contains("no samples, only events"));
        let table = view(&captured.trace(), "gc");
        let heading = |line: &str| line.starts_with("process ") && line.contains(" dotnet - ");
        assert!(table.lines().any(heading), "{table}");
        if let Some(gc) = captured.in_perfview("gc") {
            let command_line = gc["commandLine"].as_str().unwrap();
            assert!(command_line.contains("mixed.dll"), "{command_line}");
        }
        let counted = &captured.done["runtime"];
        expect_same_collections(&captured, &counted["gcByGeneration"]);
        let raw = raw_runtime_events(&captured.trace());
        assert_eq!(raw.contains_key(&METHOD_LOADED), has_methods, "{raw:?}");
        assert_eq!(raw.contains_key(&ALLOCATION_TICK), has_ticks, "{raw:?}");
        if has_ticks {
            expect_allocated(&captured.trace(), counted);
        }
        assert!(!view(&captured.trace(), "events").contains("/DCEndComplete "));
        if !matches!(options, ["-gcwithheap"] | [.., "gc-collect"]) {
            let exceptions = exception_events(&runtime, &counted["exceptions"]);
            expect_exceptions(&runtime, raw[&EXCEPTION], exceptions);
        }
    }
}

#[test]
fn events_and_raw_streams_can_be_left_out() {
    need_capture!();
    let program = need!(workloads::mixed());
    let runtime = need!(Runtime::newest());
    let captured = Captured::run(&runtime, &program, &["--cpu-seconds", "1"], &["-nolttng"]);
    assert!(entries(&captured.trace(), "eventpipe").is_empty());
    assert!(entries(&captured.trace(), "lttngTrace").is_empty());
    assert_eq!(
        captured.summary()["quality"]["events"],
        Value::Array(Vec::new())
    );
    let captured = Captured::run(&runtime, &program, &["--cpu-seconds", "1"], &["-noraw"]);
    assert!(entries(&captured.trace(), "eventpipe").is_empty());
    assert_eq!(entries(&captured.trace(), "lttngTrace").len(), 2);
}

/// Activities that programs declare stay with their events.
#[test]
fn activities_are_in_both_files() {
    need_capture!();
    let program = need!(workloads::shared("webapi/webapi.dll"));
    let Some(runtime) = one_of_each(|runtime| runtime.aspnet).pop() else {
        skip!(Missing::AspNet(0));
    };
    // The first provider makes the runtime track activities.
    let providers = "System.Threading.Tasks.TplEventSource:0x80:4,System.Net.Http:0xffff:4";
    let arguments = ["--load", "1", "--delay", "0.1", "--mix", "json"];
    let options = ["-noperf", "-providers", providers];
    let captured = Captured::run(&runtime, &program, &arguments, &options);
    let request_start = 1;
    let parts = expect_same_details(&captured.trace(), &captured.nettrace(), request_start);
    let requests = captured.done["load"]["requests"].as_u64().unwrap();
    assert!(parts as u64 >= requests, "{parts} of {requests}");
    let listed = view(&captured.trace(), "events");
    assert!(listed.contains("RequestStart") && listed.contains("  activity=0000"));
}
