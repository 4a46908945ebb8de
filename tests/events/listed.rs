//! The list of events, its filters, and the counts of the report, which are those of the list.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::LIMIT;
use crate::support::{perfcollect, run};

/// Lines of the list with these options, without the heading.
#[track_caller]
fn lines(trace: &Path, options: &[&str]) -> Vec<String> {
    let mut command = Command::new(perfcollect());
    command.arg("view").arg(trace).args(["-viewer", "events"]);
    let listed = run(command.args(options), LIMIT).expect_success().stdout;
    listed.lines().skip(1).map(str::to_owned).collect()
}

/// Rows of `report`.
#[track_caller]
fn rows(trace: &Path, kind: &str) -> Vec<Value> {
    let mut command = Command::new(perfcollect());
    command.arg("report").arg(trace).args(["-format", "json"]);
    let json = run(command.args(["-kind", kind]), LIMIT).expect_success();
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    json["rows"].as_array().unwrap().clone()
}

/// Milliseconds of a line since the start of the capture.
fn ms(line: &str) -> f64 {
    line.split_whitespace().next().unwrap().parse().unwrap()
}

/// The report counts what the list shows, and each filter shows its part of the list.
#[track_caller]
pub(crate) fn expect_same_list(trace: &Path) {
    let all = lines(trace, &[]);
    let mut listed: BTreeMap<String, u64> = BTreeMap::new();
    for line in &all {
        let name = line.split_whitespace().nth(3).unwrap();
        *listed.entry(name.to_owned()).or_default() += 1;
    }
    let counted = rows(trace, "events");
    let (others, kinds): (Vec<_>, Vec<_>) = counted
        .iter()
        .partition(|row| row["event"] == "(other kinds)");
    assert_eq!(kinds.len(), listed.len().min(50));
    for row in &kinds {
        let [provider, event] =
            [&row["provider"], &row["event"]].map(|name| name.as_str().unwrap());
        assert_eq!(
            row["count"],
            listed[&format!("{provider}/{event}")],
            "{row}"
        );
        assert!(row["per_second"].as_f64().unwrap() > 0.0, "{row}");
    }
    let counts = kinds.iter().chain(&others);
    let sum: u64 = counts.map(|row| row["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, all.len() as u64);
    let losses = rows(trace, "event-losses");
    assert_eq!(losses[0]["events"], sum);

    let of = |parts: &[&str]| -> Vec<String> {
        let has_all = |line: &&String| parts.iter().all(|part| line.contains(part));
        all.iter().filter(has_all).cloned().collect()
    };
    let collections = of(&["/GCStart "]);
    assert!(!collections.is_empty());
    assert_eq!(lines(trace, &["-filter", "/gcstart"]), collections);
    let full = of(&["/GCStart ", "  Depth=2  "]);
    let filters = ["-filter", "GCStart", "-filter", "depth=2"];
    assert_eq!(lines(trace, &filters), full);
    let thrown = of(&["/ExceptionThrown  "]);
    let named = lines(trace, &["-filter", "ExceptionType=InvalidOperation"]);
    assert_eq!(named, thrown);
    let top = lines(
        trace,
        &["-filter", "ExceptionType=InvalidOperation", "-top", "2"],
    );
    let more = format!("... and {} more: -top N, or -full", thrown.len() - 2);
    assert_eq!(top, [thrown[0].clone(), thrown[1].clone(), more]);
    assert!(lines(trace, &["-filter", "no such event"]).is_empty());

    let early = lines(trace, &["-to", "1"]);
    let late = lines(trace, &["-from", "1"]);
    assert_eq!(early.len() + late.len(), all.len());
    // The list shows microseconds.
    assert!(early.iter().all(|line| ms(line) <= 1000.001));
    assert!(late.iter().all(|line| ms(line) >= 999.999));
    assert!(!early.is_empty() && !late.is_empty());
}
