use super::*;
use crate::history::test_events::each_event;
use crate::output::summary::Summary;
use crate::trace::Trace;

/// Ids of the GC events.
const START: u32 = 1;
const END: u32 = 2;
const RESTARTED: u32 = 3;
const HEAP_STATS: u32 = 4;
const SUSPEND: u32 = 9;
const TICK: u32 = 10;

fn heap(events: &[(u32, u64, i32, &[u32])]) -> GcHistory {
    let mut heap = GcHistory::default();
    each_event(events, |event| heap.take(event));
    heap
}

/// Returns the printed tables of a process.
fn printed(heap: &GcHistory) -> String {
    let processes = Processes::new(&Summary::new(&Trace::default()));
    let mut text = Vec::new();
    print_heap(heap, None, &processes, usize::MAX, &mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// PerfView has no row for such a collection, and does not add it to its totals.
#[test]
fn incomplete_collection_is_counted_but_in_no_table() {
    let mut heap = heap(&[
        (SUSPEND, 2, 1, &[1, 0]),
        (START, 3, 1, &[71, 2, 0, 1]),
        (RESTARTED, 4, 1, &[]),
    ]);
    let text = printed(&heap);
    assert_eq!(
        text,
        "no complete collections, 1 had started when the events end\n"
    );
    let later: &[(u32, u64, i32, &[u32])] = &[
        (SUSPEND, 12, 2, &[1, 0]),
        (START, 13, 2, &[72, 1, 0, 0]),
        (END, 14, 2, &[72, 1]),
        (HEAP_STATS, 15, 2, &[0; 27]),
        (RESTARTED, 16, 2, &[]),
    ];
    each_event(later, |event| heap.take(event));
    let text = printed(&heap);
    let counted = "1 collection (gen0 0, gen1 1, gen2 0), paused 0.003 ms";
    assert!(text.starts_with(counted), "{text}");
    assert!(text.contains("\n1 more had not ended "), "{text}");
    assert!(text.contains("\n    72 ") && !text.contains("\n    71 "));
    assert!(text.contains("\nno allocation ticks: "), "{text}");
}

/// Uses events of a busy system: its threads resumed long after the heap stats event.
#[test]
fn pauses_do_not_exceed_the_whole_time() {
    let heap = heap(&[
        (TICK, 1, 1, &[70, 0, 70 << 16, 0, 0]),
        (SUSPEND, 10, 1, &[1, 0]),
        (START, 20, 1, &[1, 0, 0, 0]),
        (END, 30, 1, &[1, 0]),
        (HEAP_STATS, 35, 1, &[0; 27]),
        (RESTARTED, 90, 1, &[]),
    ]);
    assert_eq!(heap.span_ns(), Some(80_000));
    let text = printed(&heap);
    assert!(
        text.contains("\n% Time paused for Garbage Collection: 100.0 of the "),
        "{text}"
    );
    assert!(!text.contains("no allocation ticks"), "{text}");
}
