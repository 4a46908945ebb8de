//! The tables of collections and compiled methods, row by row against PerfView's.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use crate::captured::view;
use crate::readers::{ALLOCATION_TICK, is_of_runtime};
use crate::support::events::for_each_raw_event;
use crate::support::perfview_json;

/// Both print three decimals.
const ROUNDING: f64 = 0.0015;

/// The number of the event that tells what is there after a collection.
const HEAP_STATS: u32 = 4;

/// A table as `perfcollect view` prints it: what is above it, and its rows as words.
pub(crate) struct Table {
    pub(crate) above: String,
    pub(crate) rows: Vec<Vec<String>>,
}

impl Table {
    #[track_caller]
    fn read(trace: &Path, viewer: &str, first_column: &str) -> Self {
        let text = view(trace, viewer);
        let mut lines = text.lines();
        let is_head = |line: &&str| !line.trim_start().starts_with(first_column);
        let above: Vec<&str> = lines.by_ref().take_while(is_head).collect();
        let words = |line: &str| line.split_whitespace().map(str::to_owned).collect();
        Self {
            above: above.join("\n"),
            rows: lines.map(words).collect(),
        }
    }

    /// A number that stands before some words above the table; 0 if they do not stand there.
    pub(crate) fn stated(&self, before: &str) -> f64 {
        let number = self.above.split_once(before);
        let number = number.and_then(|(text, _)| text.rsplit([' ', '\n']).next());
        number.map_or(0.0, number_of)
    }
}

#[track_caller]
fn number_of(text: &str) -> f64 {
    text.parse()
        .unwrap_or_else(|_| panic!("{text:?} is no number"))
}

#[track_caller]
fn expect_near(ours: f64, theirs: &Value, rounding: f64, what: &str) {
    let theirs = theirs.as_f64().unwrap();
    assert!((ours - theirs).abs() <= rounding, "{ours} {theirs} {what}");
}

/// The process of a table of PerfView's.
fn in_perfview(nettrace: &Path, viewer: &str) -> Option<Value> {
    let all = perfview_json(viewer, nettrace, &["--all"])?;
    Some(all["processes"][0].clone())
}

/// What PerfView has too much of the bytes that were allocated before a collection, for each, where nothing but the ticks
/// tells of them: it takes those of large objects for those of pinned ones, too.
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
    // Those of several threads are mixed.
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

/// Fails unless the table of collections is PerfView's; none where there were none.
#[track_caller]
pub(crate) fn expect_same_table_of_collections(trace: &Path, nettrace: &Path) -> Option<Table> {
    let gc = in_perfview(nettrace, "gc")?;
    let table = Table::read(trace, "gc", "GC ");
    if gc["gcs"] == 0 {
        assert!(table.above.contains("\nno collections"), "{}", table.above);
        return None;
    }
    let counted = format!(
        "{} collections (gen0 {}, gen1 {}, gen2 {}), paused ",
        gc["gcs"], gc["gen0"], gc["gen1"], gc["gen2"]
    );
    assert!(table.above.contains(&counted), "{counted}\n{}", table.above);
    expect_near(
        table.stated(" ms in all"),
        &gc["totalPauseMs"],
        ROUNDING,
        "in all",
    );
    expect_near(
        table.stated(" ms at most"),
        &gc["maxPauseMs"],
        ROUNDING,
        "at most",
    );
    let rows = gc["list"].as_array().unwrap();
    assert_eq!(table.rows.len(), rows.len());
    let too_much = large_for_pinned(trace);
    let mut follows_background = false;
    for (row, theirs) in table.rows.iter().zip(rows) {
        let what = format!("{row:?}\n{theirs}");
        // Objects that are allocated while one goes on are told by heaps and ticks on either side of its end.
        let is_background = row[3].contains('B');
        let is_beside = is_background || follows_background;
        follows_background = is_background || follows_background && row[3].contains('F');
        assert_eq!(row[0], theirs["number"].to_string(), "{what}");
        assert_eq!(theirs["reason"], row[2], "{what}");
        assert_eq!(theirs["gen"], row[3], "{what}");
        let columns = [
            "suspendMs",
            "pauseMs",
            "durationMs",
            "allocatedMB",
            "heapPeakMB",
            "heapAfterMB",
            "promotedMB",
        ];
        for (column, ours) in columns.into_iter().zip(&row[4..]) {
            let ours = number_of(ours);
            let difference = theirs[column].as_f64().unwrap() - ours;
            let is_known = |more: &f64| (difference - more).abs() <= ROUNDING;
            let is_left_out = match column {
                "allocatedMB" => is_beside || too_much.iter().any(is_known),
                "heapPeakMB" => is_background,
                _ => false,
            };
            if !is_left_out {
                expect_near(ours, &theirs[column], ROUNDING, &what);
            }
        }
        expect_near(number_of(&row[1]), &theirs["startMs"], ROUNDING, &what);
    }
    Some(table)
}

/// Fails unless the pauses are what the runtime has counted: from the suspension to the end of a collection, so all of the
/// collection and not all of the pause.
#[track_caller]
pub(crate) fn expect_pauses_of_runtime(table: &Table, counted: f64) {
    let blocking = table.rows.iter().filter(|row| !row[3].contains('B'));
    let collecting: f64 = blocking.map(|row| number_of(&row[6])).sum();
    let paused = table.stated(" ms in all") + table.stated(" ms more of pauses");
    // It looks at the clock a little before or after the event, and may have to wait for a CPU in between.
    let slack = 20.0;
    let range = collecting - slack..=paused + slack;
    assert!(range.contains(&counted), "{counted} is not in {range:?}");
}

/// Fails unless the table of compiled methods is PerfView's.
#[track_caller]
pub(crate) fn expect_same_table_of_methods(trace: &Path, nettrace: &Path) -> Option<Table> {
    let jit = in_perfview(nettrace, "jit")?;
    let table = Table::read(trace, "jit", "start ");
    let methods = jit["methods"].as_u64().unwrap();
    assert_eq!(table.stated(" methods compiled"), methods as f64);
    assert_eq!(
        table.stated(" bytes of IL"),
        jit["ilBytes"].as_f64().unwrap()
    );
    assert_eq!(
        table.stated(" of native code"),
        jit["nativeBytes"].as_f64().unwrap()
    );
    expect_near(table.stated(" ms: "), &jit["jitMs"], ROUNDING, "compiling");
    assert_eq!(jit["withoutModule"], 0, "{}", table.above);
    // What begins at the same moment stands in any order: one is added for each row of ours, one taken off for theirs.
    let mut balance: BTreeMap<[String; 3], i64> = BTreeMap::new();
    for row in &table.rows {
        let key = [&row[2], &row[3], &row[4]].map(String::to_owned);
        *balance.entry(key).or_default() += 1;
    }
    // Of one that had not ended nothing is known.
    let ended = |row: &&Value| row["nativeBytes"] != 0;
    for row in jit["list"].as_array().unwrap().iter().filter(ended) {
        let tier = row["tier"].as_str().unwrap().to_owned();
        let key = [
            row["ilBytes"].to_string(),
            row["nativeBytes"].to_string(),
            tier,
        ];
        *balance.entry(key).or_default() -= 1;
    }
    balance.retain(|_, count| *count != 0);
    assert_eq!(balance, BTreeMap::new());
    Some(table)
}
