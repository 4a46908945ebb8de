//! The memory of a process grows, of a capture that is for that (`-for memory-leak`).

use super::gc::allocates;
use super::scene::{Runtime, Scene, process_name};
use super::symptoms::no_runtime;
use crate::output::duration::duration;
use crate::output::summary::{Finding, HeapGrowth, TRACE};
use crate::trace::{ProcessMemory, Symptom};

const MB: f64 = 1e6;
/// Growth of the heap after full collections, as a part and in bytes, below which it is not remarkable.
const MIN_FULL: (f64, f64) = (0.1, 1e6);
/// The same after other collections, which leave garbage, and of the resident memory.
const MIN_OTHER: (f64, f64) = (0.25, 8e6);
/// Part of the growth of the resident memory that the heap must have, or else the rest is the answer, and that
/// allocated objects must have at least, or else it is native.
const MIN_HEAP_PART: f64 = 0.5;

/// What is not in a capture.
const NOT_RECORDED: &str =
    "what keeps the objects alive is not recorded: `dotnet-gcdump collect` shows that";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_for(Symptom::MemoryLeak) {
        return Vec::new();
    }
    let heaps = scene.runtimes().filter_map(|runtime| of_heap(&runtime));
    let mut findings: Vec<Finding> = heaps.collect();
    for memory in &scene.summary.info.memory {
        let mut heaps = findings.iter();
        let heap = heaps.find(|heap| heap.pid == Some(memory.pid));
        let heap_cost = heap.map(|heap| heap.cost_cpus);
        findings.extend(of_process(scene, memory, heap_cost));
    }
    findings
}

/// Returns the growth of the heap of a runtime, if it was reported.
fn growth<'a>(runtime: &Runtime<'a>) -> Option<&'a HeapGrowth> {
    runtime.summary.gc.as_ref()?.growth.as_ref()
}

/// Returns whether sizes grow by a part and by bytes at least.
fn grows(first: f64, last: f64, (part, bytes): (f64, f64)) -> bool {
    last - first >= bytes && last >= first * (1.0 + part)
}

fn of_heap(runtime: &Runtime<'_>) -> Option<Finding> {
    let growth = growth(runtime).filter(|growth| growth.seconds > 0.0)?;
    let [first, last] = [growth.first_bytes, growth.last_bytes].map(|bytes| bytes as f64);
    let least = match growth.is_full {
        true => MIN_FULL,
        false => MIN_OTHER,
    };
    if !grows(first, last, least) {
        return None;
    }
    let rate = (last - first) / MB / growth.seconds;
    let certainty = match growth.is_full {
        true => "that is what full collections leave",
        false => {
            "a part of it may be garbage, because there were no two full collections: capture for longer"
        }
    };
    let text = format!(
        "the heap of {} grew from {:.1} to {:.1} MB in {} ({rate:.1} MB/s): {certainty}{}; {NOT_RECORDED}",
        runtime.name(),
        first / MB,
        last / MB,
        duration(growth.seconds),
        allocates(runtime.summary)
    );
    Some(
        runtime
            .finding("memory-growth", text)
            .from("runtimes.gc.growth")
            .from("runtimes.allocations")
            .figure("first_mb", first / MB)
            .figure("last_mb", last / MB)
            .figure("growth_mb_per_s", rate)
            .more(&["report", TRACE, "-kind", "alloc"])
            // The fastest first. It costs no CPU time.
            .costing(((last - first) / 1e9).min(1.0)),
    )
}

/// Returns how much a heap grows in a capture of so many seconds, if it always grows as between two collections.
fn grown_in(heap: &HeapGrowth, seconds: f64) -> f64 {
    let grown = heap.last_bytes as f64 - heap.first_bytes as f64;
    match heap.seconds > 0.0 {
        true => grown * (seconds / heap.seconds).max(1.0),
        false => grown,
    }
}

/// Returns the finding about memory that is not in the heap of the runtime. `heap_cost` is that of the finding
/// about the heap, if there is one.
fn of_process(
    scene: &Scene<'_>,
    memory: &ProcessMemory,
    heap_cost: Option<f64>,
) -> Option<Finding> {
    let [first, last] = [memory.first_kib, memory.last_kib].map(|kib| kib as f64 * 1024.0);
    if !grows(first, last, MIN_OTHER) {
        return None;
    }
    let grown = last - first;
    let runtime = scene.runtimes().find(|row| row.summary.pid == memory.pid);
    let heap = runtime.as_ref().and_then(growth);
    let allocated = runtime.as_ref().and_then(|runtime| {
        let allocations = runtime.summary.allocations.as_ref()?;
        Some(allocations.bytes as f64)
    });
    let of_objects = allocated.filter(|bytes| *bytes < grown * MIN_HEAP_PART);
    // The heap is measured for a part of the capture only, the resident memory for all of it.
    let of_heap = heap.map_or(0.0, |heap| grown_in(heap, scene.seconds));
    let is_of_heap = heap_cost.is_some() && of_heap >= grown * MIN_HEAP_PART;
    if is_of_heap && of_objects.is_none() {
        return None;
    }
    let program = scene.program_of(memory.pid);
    let native = native(scene);
    let rest = match (&runtime, heap, of_objects) {
        (None, ..) => {
            format!(", without a .NET runtime that sent events: it is native memory; {native}")
        }
        (_, _, Some(bytes)) => format!(
            ", and all objects that it allocated meanwhile took {:.1} MB: it is native memory; {native}",
            bytes / MB
        ),
        (_, Some(heap), _) => format!(
            ", and the heap of its runtime from {:.1} to {:.1} MB in {}: the rest is native memory, or heap that is not used yet; {native}",
            heap.first_bytes as f64 / MB,
            heap.last_bytes as f64 / MB,
            duration(heap.seconds)
        ),
        (Some(runtime), None, None) => format!(
            ", but there were no two collections, so that all of it may be garbage: capture for longer{}",
            allocates(runtime.summary)
        ),
    };
    let text = format!(
        "the resident memory of {} grew from {:.1} to {:.1} MB{}{rest}",
        process_name(program, memory.pid),
        first / MB,
        last / MB,
        match memory.has_ended {
            true => " before it ended",
            false => "",
        }
    );
    let pid = memory.pid.to_string();
    let table = match scene.summary.faults {
        Some(_) => "faults",
        None => "own",
    };
    let cost = (grown / 1e9).min(1.0);
    let cost = match heap_cost.filter(|_| of_objects.is_none()) {
        // What the heap has is known, and precedes what the rest may be.
        Some(heap_cost) => cost.min(heap_cost / 2.0),
        None => cost,
    };
    Some(
        Finding::new("memory-growth", text)
            .about(memory.pid, program)
            .from("info.memory")
            .figure("first_mb", first / MB)
            .figure("last_mb", last / MB)
            .more(&["report", TRACE, "-kind", table, "-process", &pid])
            .costing(cost),
    )
}

/// Says where the code is that uses native memory: page faults are where it is used first.
fn native(scene: &Scene<'_>) -> &'static str {
    match scene.summary.faults {
        Some(_) => {
            "what allocates it is not recorded, but `report -kind faults` shows the code that first uses it"
        }
        None => {
            "what allocates it is not recorded, but a capture with -faults shows the code that first uses it"
        }
    }
}

/// Describes the resident memory of the process with most.
fn resident(scene: &Scene<'_>) -> String {
    let Some(memory) = scene.summary.info.memory.first() else {
        return match scene.summary.info.system_wide {
            true => format!(
                "{}, and resident memory is read in a capture with -pid, -n or a command",
                no_runtime()
            ),
            false => no_runtime(),
        };
    };
    format!(
        "the resident memory of {} was {:.1} MB at the start and {:.1} MB {}",
        process_name(scene.program_of(memory.pid), memory.pid),
        memory.first_kib as f64 * 1024.0 / MB,
        memory.last_kib as f64 * 1024.0 / MB,
        match memory.has_ended {
            true => "before it ended",
            false => "at the end",
        }
    )
}

/// Describes memory that does not grow.
pub(super) fn measured(scene: &Scene<'_>) -> String {
    let heaps = scene.runtimes();
    let heaps = heaps.filter_map(|runtime| Some((runtime.name(), growth(&runtime)?)));
    let largest = heaps.max_by_key(|(_, growth)| growth.last_bytes);
    match largest {
        Some((name, growth)) => format!(
            "the heap of {name} had {:.1} MB after the first and {:.1} MB after the last of {} {}collections",
            growth.first_bytes as f64 / MB,
            growth.last_bytes as f64 / MB,
            growth.collections,
            if growth.is_full { "full " } else { "" },
        ),
        None => resident(scene),
    }
}
