use super::*;
use crate::history::test_events::each_event;

fn heap(events: &[(u32, u64, i32, &[u32])]) -> GcHistory {
    let mut heap = GcHistory::default();
    each_event(events, |event| heap.take(event));
    heap
}

/// Returns number, suspension and pause in microseconds, and completeness of each collection.
fn rows(heap: &GcHistory) -> Vec<(u64, u64, u64, bool)> {
    let rows = heap.rows.iter();
    rows.map(|row| {
        let (suspend, pause) = (row.suspend_ns / 1000, row.pause_ns / 1000);
        (row.number, suspend, pause, row.is_complete)
    })
    .collect()
}

/// Uses events that .NET 10 sent with server GC, whose own threads start and end collections.
#[test]
fn background_collection_starts_with_a_small_one() {
    let heap = heap(&[
        (SUSPEND, 11_826, 62, &[1, 19]),
        (SUSPENDED, 11_835, 62, &[]),
        (START, 14_344, 63, &[20, 2, 0, 1]),
        (START, 14_776, 62, &[21, 0, 0, 0]),
        (END, 15_362, 63, &[21, 0]),
        (HEAP_STATS, 15_363, 63, &[]),
        (RESTARTED, 15_631, 62, &[]),
        (SUSPEND, 19_543, 66, &[6, 20]),
        (SUSPENDED, 19_781, 66, &[]),
        (RESTARTED, 20_919, 66, &[]),
        (SUSPEND, 35_176, 62, &[1, 20]),
        (SUSPENDED, 35_202, 62, &[]),
        (START, 35_375, 63, &[22, 0, 0, 2]),
        (END, 43_172, 62, &[22, 0]),
        (HEAP_STATS, 43_173, 62, &[]),
        (RESTARTED, 73_060, 62, &[]),
        (END, 73_726, 66, &[20, 2]),
        (HEAP_STATS, 73_728, 66, &[]),
    ]);
    assert_eq!(
        rows(&heap),
        [
            (20, 9 + 238, 9 + 1376, true),
            (21, 0, 855, true),
            (22, 26, 37_884, true)
        ]
    );
    assert_eq!(heap.rows[0].duration_ns, Some(59_382_000));
    assert_eq!(heap.unassigned_ns() / 1000, 3805 - 9 - 855);
}

#[test]
fn background_collection_ends_within_its_first_pause() {
    let heap = heap(&[
        (SUSPEND, 95_206, 62, &[1, 4]),
        (SUSPENDED, 95_231, 62, &[]),
        (START, 95_318, 62, &[5, 2, 0, 1]),
        (END, 110_993, 62, &[5, 2]),
        (HEAP_STATS, 110_996, 62, &[]),
        (RESTARTED, 111_018, 62, &[]),
    ]);
    assert_eq!(rows(&heap), [(5, 25, 25, true)]);
    assert_eq!(heap.unassigned_ns() / 1000, 15_812 - 25);
}

/// A thread may request the next suspension during that of another thread.
#[test]
fn distinguishes_overlapping_suspensions() {
    let heap = heap(&[
        (SUSPEND, 0, 1, &[1, 0]),
        (START, 10, 1, &[1, 2, 0, 1]),
        (RESTARTED, 20, 1, &[]),
        (SUSPEND, 100, 2, &[6, 1]),
        (SUSPEND, 110, 3, &[1, 1]),
        (RESTARTED, 130, 2, &[]),
        (SUSPENDED, 140, 3, &[]),
        (START, 150, 3, &[2, 0, 0, 2]),
        (END, 160, 3, &[2, 0]),
        (HEAP_STATS, 170, 3, &[]),
        (RESTARTED, 180, 3, &[]),
    ]);
    assert_eq!(rows(&heap), [(1, 10, 20 + 30, false), (2, 30, 70, true)]);
    assert_eq!(heap.complete().count(), 1);
}

#[test]
fn estimates_sizes_without_heap_events() {
    let stats = |sizes: [u32; 4]| -> Vec<u32> {
        let promoted = 0;
        let words = sizes.into_iter().flat_map(|size| [size, 0, promoted, 0]);
        words.chain([0; 16]).collect()
    };
    let tick = |kind, bytes| [bytes, kind, bytes << 16, 0, 0];
    let heap = heap(&[
        (TICK, 1, 1, &tick(0, 70)),
        (SUSPEND, 2, 1, &[1, 0]),
        (START, 3, 1, &[1, 0, 0, 0]),
        (END, 4, 1, &[1, 0]),
        (HEAP_STATS, 5, 1, &stats([1, 2, 3, 4])),
        (RESTARTED, 6, 1, &[]),
        (SUSPEND, 12, 1, &[1, 0]),
        (START, 13, 1, &[2, 0, 0, 0]),
        (END, 14, 1, &[2, 0]),
        (HEAP_STATS, 15, 1, &stats([10, 20, 30, 40])),
        (RESTARTED, 16, 1, &[]),
        (TICK, 17, 1, &tick(0, 50)),
        (TICK, 18, 1, &tick(1, 7)),
        (SUSPEND, 22, 1, &[1, 0]),
        (START, 23, 1, &[3, 2, 0, 1]),
        (RESTARTED, 24, 1, &[]),
        (END, 25, 1, &[3, 2]),
        (HEAP_STATS, 26, 1, &stats([5, 5, 5, 45])),
    ]);
    assert_eq!(heap.peaks(), [70, 0, 50 + 20 + 30 + 45]);
    assert_eq!([0, 1, 2].map(|row| heap.allocated(row).all()), [70, 0, 57]);
}

/// The heaps of server GC do this.
#[test]
fn heaps_report_a_background_collection_after_its_end() {
    let heap = heap(&[
        (SUSPEND, 2, 1, &[1, 0]),
        (START, 3, 1, &[1, 2, 0, 1]),
        (RESTARTED, 4, 1, &[]),
        (PER_HEAP, 5, 1, &[9; 100]),
        (END, 6, 2, &[1, 2]),
        (HEAP_STATS, 7, 2, &[0; 27]),
        (PER_HEAP, 8, 2, &[9; 100]),
        (PER_HEAP, 8, 2, &[9; 20]),
        (SUSPEND, 10, 1, &[1, 0]),
        (START, 11, 1, &[2, 0, 0, 0]),
        (PER_HEAP, 12, 1, &[9; 100]),
    ]);
    assert_eq!([0, 1].map(|row| heap.rows[row].heaps.len()), [3, 1]);
}
