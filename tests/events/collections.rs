//! Tables of garbage collections, row by row against PerfView's and against the runtime's events.

use std::path::Path;

use crate::readers::{ALLOCATION_TICK, is_of_runtime};
use crate::support::events::for_each_raw_event;
use crate::tables::{ROUNDING, Tables, expect_near, in_perfview, number_of};

/// Id of the event with the heap sizes after a collection.
const HEAP_STATS: u32 = 4;

/// The table of all collections, and some of its columns.
const COLLECTIONS: &str = "GC Events by Time";
const OF_SAMPLES: usize = 7;
const ALLOCATED: usize = 9;
const PEAK: usize = 10;
const AFTER: usize = 11;
const PROMOTED: usize = 13;
const DURATION: usize = 14;

/// Returns by how much PerfView overstates the bytes allocated before each collection if only
/// allocation ticks report them. It counts those of large objects as pinned ones, too.
fn large_for_pinned(trace: &Path) -> Vec<f64> {
    const LARGE: u32 = 1;
    const PINNED: u32 = 2;
    let mut events = Vec::new();
    for_each_raw_event(trace, |event| {
        if is_of_runtime(event, ALLOCATION_TICK) {
            let word =
                |at: usize| u32::from_le_bytes(event.payload[at..at + 4].try_into().unwrap());
            let megabytes = f64::from(word(0)) / 1e6;
            events.push((event.time, Some((word(4), megabytes))));
        } else if is_of_runtime(event, HEAP_STATS) {
            events.push((event.time, None));
        }
    });
    // Lines of several threads are mixed.
    events.sort_by_key(|(time, _)| *time);
    let collections = events.split(|(_, tick)| tick.is_none());
    let more = collections.map(|ticks| {
        let more = ticks.iter().map(|(_, tick)| match tick {
            Some((LARGE, megabytes)) => *megabytes,
            Some((PINNED, megabytes)) => -megabytes,
            _ => 0.0,
        });
        more.sum()
    });
    more.collect()
}

/// Returns the rows of a table of collections, without the share of CPU time, which needs samples.
#[track_caller]
fn collections(tables: &Tables, title: &str) -> Vec<Vec<String>> {
    let mut rows = tables.rows(title);
    let has_samples = tables.text.contains("\nTotal CPU Time: ");
    for row in rows.iter_mut().filter(|_| has_samples) {
        let share = row.remove(OF_SAMPLES);
        assert!(share == "-" || number_of(&share) >= 0.0, "{share}");
    }
    rows
}

/// Fails unless the table of collections equals PerfView's, also if there were none.
#[track_caller]
pub(crate) fn expect_same_table_of_collections(trace: &Path, nettrace: &Path) -> Option<Tables> {
    let gc = in_perfview(nettrace, "gc")?;
    let tables = Tables::read(trace, "gc");
    if gc["gcs"] == 0 {
        assert!(tables.text.contains("\nno collections"), "{}", tables.text);
        return None;
    }
    let plural = if gc["gcs"] == 1 { "" } else { "s" };
    let counted = format!(
        "{} collection{plural} (gen0 {}, gen1 {}, gen2 {}), paused ",
        gc["gcs"], gc["gen0"], gc["gen1"], gc["gen2"]
    );
    assert!(tables.text.contains(&counted), "{counted}\n{}", tables.text);
    expect_near(
        tables.stated(" ms in all"),
        gc["totalPauseMs"].as_f64().unwrap(),
        ROUNDING,
        "in all",
    );
    expect_near(
        tables.stated(" ms at most"),
        gc["maxPauseMs"].as_f64().unwrap(),
        ROUNDING,
        "at most",
    );
    let (_, paused) = tables.text.split_once("\n% Time paused").unwrap();
    let percent = number_of(paused.split_whitespace().nth(3).unwrap());
    assert!((0.0..=100.0).contains(&percent), "{}", tables.text);
    let rows = gc["list"].as_array().unwrap();
    let ours = collections(&tables, COLLECTIONS);
    assert_eq!(ours.len(), rows.len());
    let too_much = large_for_pinned(trace);
    let mut follows_background = false;
    for (row, theirs) in ours.iter().zip(rows) {
        let what = format!("{row:?}\n{theirs}");
        // A background collection of a server reports its heaps at its end. PerfView uses them if
        // it has seen a thread of such a heap, otherwise the ticks.
        let is_background = row[3].contains('B');
        let is_beside = is_background || follows_background;
        follows_background = is_background || follows_background && row[3].contains('F');
        assert_eq!(row[0], theirs["number"].to_string(), "{what}");
        assert_eq!(theirs["reason"], row[2], "{what}");
        assert_eq!(theirs["gen"], row[3], "{what}");
        for (at, column) in [
            (4, "suspendMs"),
            (5, "pauseMs"),
            (ALLOCATED, "allocatedMB"),
            (PEAK, "heapPeakMB"),
            (AFTER, "heapAfterMB"),
            (PROMOTED, "promotedMB"),
            (DURATION, "durationMs"),
        ] {
            let ours = number_of(&row[at]);
            let theirs = theirs[column].as_f64().unwrap();
            let difference = theirs - ours;
            let is_known = |more: &f64| (difference - more).abs() <= ROUNDING;
            let is_left_out = match column {
                "allocatedMB" => is_beside || too_much.iter().any(is_known),
                "heapPeakMB" => is_background,
                _ => false,
            };
            if !is_left_out {
                expect_near(ours, theirs, ROUNDING, &what);
            }
        }
        let start = theirs["startMs"].as_f64().unwrap();
        expect_near(number_of(&row[1]), start, ROUNDING, &what);
    }
    expect_sections_of(&ours, &tables);
    expect_sums_of(&ours, &tables);
    expect_told_sizes(trace, &ours, &tables);
    Some(tables)
}

/// Long pauses and full collections are shown a second time.
#[track_caller]
fn expect_sections_of(rows: &[Vec<String>], tables: &Tables) {
    let those = |is_one: fn(&Vec<String>) -> bool| -> Vec<_> {
        rows.iter().filter(|row| is_one(row)).cloned().collect()
    };
    let long = those(|row| number_of(&row[5]) > 200.0);
    assert_eq!(collections(tables, "Pause > 200 Msec GC Events"), long);
    let full = those(|row| row[3].starts_with('2'));
    assert_eq!(collections(tables, "Gen 2 GC Events"), full);
}

/// The rows add up to the totals of all collections and of each generation.
#[track_caller]
fn expect_sums_of(rows: &[Vec<String>], tables: &Tables) {
    let sums = tables.rows("GC Rollup By Generation (times in msec)");
    let names: Vec<&str> = sums.iter().map(|sum| sum[0].as_str()).collect();
    assert_eq!(names, ["ALL", "0", "1", "2"]);
    for sum in sums {
        let of = rows
            .iter()
            .filter(|row| sum[0] == "ALL" || row[3].starts_with(&sum[0]));
        let of: Vec<_> = of.collect();
        let column = |at: usize| of.iter().map(move |row| number_of(&row[at]));
        let what = format!("{sum:?}");
        let rounding = ROUNDING * (1.0 + of.len() as f64);
        let near = |at: usize, ours| expect_near(number_of(&sum[at]), ours, rounding, &what);
        near(1, of.len() as f64);
        near(2, column(5).fold(0.0, f64::max));
        near(3, column(PEAK).fold(0.0, f64::max));
        near(5, column(5).sum());
        near(6, column(ALLOCATED).sum());
        let induced = of.iter().filter(|row| row[3].ends_with(['I', 'i']));
        near(10, induced.count() as f64);
    }
}

/// The CPU time of all collections is positive and at most that of the process.
#[track_caller]
pub(crate) fn expect_cpu_time_of_collections(tables: &Tables) {
    let after = |words: &str| {
        let (_, rest) = tables.text.split_once(words).unwrap();
        number_of(rest.split_whitespace().next().unwrap())
    };
    let (all, own) = (after("Total CPU Time: "), after("Total GC CPU Time: "));
    assert!(own <= all, "{}", tables.text);
    let share = tables.stated(" % CPU Time spent Garbage Collecting");
    // Both are whole milliseconds.
    let rounding = 0.1 + 100.0 * (own + all) / (all * all);
    expect_near(share, 100.0 * own / all, rounding, &tables.text);
}

/// Generation sizes equal the runtime's and add up; shares are between 0 and 1.
#[track_caller]
fn expect_told_sizes(trace: &Path, rows: &[Vec<String>], tables: &Tables) {
    let mut reported = Vec::new();
    for_each_raw_event(trace, |event| {
        if is_of_runtime(event, HEAP_STATS) {
            let bytes = |at: usize| event.payload.get(at..).and_then(|rest| rest.first_chunk());
            let long = |at| bytes(at).map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let int = |at: usize| u32::from_le_bytes(event.payload[at..at + 4].try_into().unwrap());
            let [sizes @ .., finalizable] =
                [0, 16, 32, 48, 94, 64].map(|at| format!("{:.3}", long(at) as f64 / 1e6));
            let counts = [int(80), int(88)].map(|count| count.to_string());
            reported.push((sizes, finalizable, counts));
        }
    });
    let generations = tables.rows("Generations after each GC");
    let shown = generations.iter().map(|row| {
        let sizes = [2, 5, 8, 11, 14].map(|at| row[at].clone());
        let counts = [row[18].clone(), row[19].clone()];
        (sizes, row[17].clone(), counts)
    });
    let mut shown: Vec<_> = shown.collect();
    reported.sort();
    shown.sort();
    assert_eq!(shown, reported);
    for (row, generations) in rows.iter().zip(&generations) {
        let what = format!("{row:?}\n{generations:?}");
        assert_eq!([&row[0], &row[3]], [&generations[0], &generations[1]]);
        let sizes = [2, 5, 8, 11, 14].map(|at| number_of(&generations[at]));
        let after = number_of(&row[AFTER]);
        expect_near(after, sizes.iter().sum(), 5.0 * ROUNDING, &what);
        let ratio = number_of(&row[PEAK]) / after;
        expect_near(
            number_of(&row[12]),
            ratio,
            0.01 + ratio * ROUNDING / after,
            &what,
        );
        // The heap sizes of a background collection are those of its end.
        let most = if row[3].contains('B') {
            f64::MAX
        } else {
            100.0
        };
        let shares = [3, 4, 6, 7, 9, 10, 12, 13, 15, 16].map(|at| &generations[at]);
        let mut shares = shares.into_iter().filter(|share| *share != "-");
        assert!(
            shares.all(|share| (0.0..=most).contains(&number_of(share))),
            "{what}"
        );
        assert!((0.0..=100.0).contains(&number_of(&row[6])), "{what}");
        // Only the collected generations are reported, except in background collections of a
        // server.
        if !row[3].contains('B') {
            let collected: usize = row[3][..1].parse().unwrap();
            let is_told = [3, 6, 9].map(|at| generations[at] != "-");
            assert!(
                is_told == [0, 1, 2].map(|at| at <= collected) || is_told == [false; 3],
                "{what}"
            );
        }
    }
}
