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
/// Part of the growth of the resident memory that the heap must have, or else the rest is the answer.
const MIN_HEAP_PART: f64 = 0.5;

/// What is not in a capture.
const NOT_RECORDED: &str =
    "what keeps the objects alive is not recorded: `dotnet-gcdump collect` shows that";
const NATIVE: &str =
    "what allocates native memory is not recorded, but the code that first uses it is sampled";

pub(super) fn find(scene: &Scene<'_>) -> Vec<Finding> {
    if !scene.is_for(Symptom::MemoryLeak) {
        return Vec::new();
    }
    let heaps = scene.runtimes().filter_map(|runtime| of_heap(&runtime));
    let mut findings: Vec<Finding> = heaps.collect();
    for memory in &scene.summary.info.memory {
        findings.extend(of_process(scene, memory));
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

/// Returns the finding about memory that is not in the heap of the runtime.
fn of_process(scene: &Scene<'_>, memory: &ProcessMemory) -> Option<Finding> {
    let [first, last] = [memory.first_kib, memory.last_kib].map(|kib| kib as f64 * 1024.0);
    let runtime = scene.runtimes().find(|row| row.summary.pid == memory.pid);
    let heap = runtime.as_ref().and_then(growth);
    let of_heap = heap.map_or(0.0, |heap| heap.last_bytes as f64 - heap.first_bytes as f64);
    if !grows(first, last, MIN_OTHER) || of_heap >= (last - first) * MIN_HEAP_PART {
        return None;
    }
    let program = scene.program_of(memory.pid);
    let heap = match (&runtime, heap) {
        (_, Some(heap)) => format!(
            ", and the heap of its runtime from {:.1} to {:.1} MB: the rest is native memory, or heap that is not used yet; {NATIVE}",
            heap.first_bytes as f64 / MB,
            heap.last_bytes as f64 / MB
        ),
        (Some(runtime), None) => format!(
            ", but there were no two collections, so that all of it may be garbage: capture for longer{}",
            allocates(runtime.summary)
        ),
        (None, _) => {
            format!(", without a .NET runtime that sent events: it is native memory; {NATIVE}")
        }
    };
    let text = format!(
        "the resident memory of {} grew from {:.1} to {:.1} MB{heap}",
        process_name(program, memory.pid),
        first / MB,
        last / MB,
    );
    let pid = memory.pid.to_string();
    Some(
        Finding::new("memory-growth", text)
            .about(memory.pid, program)
            .from("info.memory")
            .figure("first_mb", first / MB)
            .figure("last_mb", last / MB)
            .more(&["report", TRACE, "-kind", "own", "-process", &pid])
            .costing(((last - first) / 1e9).min(1.0)),
    )
}

/// Describes the resident memory of the process with most.
fn resident(scene: &Scene<'_>) -> String {
    let Some(memory) = scene.summary.info.memory.first() else {
        return no_runtime();
    };
    format!(
        "the resident memory of {} was {:.1} MB at the start and {:.1} MB at the end",
        process_name(scene.program_of(memory.pid), memory.pid),
        memory.first_kib as f64 * 1024.0 / MB,
        memory.last_kib as f64 * 1024.0 / MB
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
