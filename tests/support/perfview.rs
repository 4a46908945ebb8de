//! PerfView's own reader, if it is there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Summary;
use serde_json::Value;

use super::saved::Stacks;
use super::{Missing, Runtime, Saved, existing, run};

const READER: &str = "tools/perfview-check/perfview-check";

/// `$PERFVIEW_CHECK`, or the one beside the repository.
fn reader() -> Result<PathBuf, Missing> {
    let beside = || {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared")
            .join(READER)
    };
    existing(std::env::var_os("PERFVIEW_CHECK").map_or_else(beside, PathBuf::from))
        .ok_or(Missing::Shared(READER))
}

/// What PerfView's reader says of a trace in a mode such as `cpu`, with options such as `["--top", "0"]`; none where it
/// cannot run, which it says.
#[track_caller]
pub fn perfview_text(mode: &str, trace: &Path, options: &[&str]) -> Option<String> {
    let reader = need!(reader());
    let runtime = need!(Runtime::at_least(8));
    let mut command = Command::new(reader);
    command
        .arg(mode)
        .arg(trace)
        .args(options)
        .env("DOTNET", runtime.dotnet);
    Some(
        run(&mut command, Duration::from_secs(300))
            .expect_success()
            .stdout,
    )
}

/// The same, where it answers in JSON.
#[track_caller]
pub fn perfview_json(mode: &str, trace: &Path, options: &[&str]) -> Option<Value> {
    perfview_text(mode, trace, options).map(|text| serde_json::from_str(&text).expect("JSON"))
}

/// What stands for a missing stack where other readers need a frame. `stacks.folded` has none.
pub const NO_STACK: &str = "perfcollect!{no stack}";

/// A stack as PerfView shows it, in the words of `stacks.folded`.
pub fn as_folded(stack: &str) -> String {
    let frames = stack
        .split(';')
        .filter(|frame| !frame.starts_with("Thread (") && *frame != NO_STACK);
    frames.map(frame_as_folded).collect::<Vec<_>>().join(";")
}

fn frame_as_folded(frame: &str) -> String {
    match frame.split_once('!') {
        None => frame.trim_start_matches("Process ").to_owned(),
        // A mark, such as that of a cut stack; PerfView takes square brackets for something else.
        Some(("perfcollect", mark)) => mark.replace('{', "[").replace('}', "]"),
        Some((module, offset)) if offset.starts_with("0x") => format!("{module}+{offset}"),
        Some((_, name)) => match name.strip_prefix("{stub}") {
            Some(kind) => format!("[stub]{kind}"),
            None => name.to_owned(),
        },
    }
}

/// A folded stack whose process has no name. PerfView shows the name that the kernel has (`dotnet`),
/// the folded stacks the program (`webapi`).
fn without_process_name(stack: &str) -> &str {
    let process = stack.split(';').next().expect("a process");
    &stack[process.rfind(" (").map_or(0, |space| space + 1)..]
}

/// The stacks without the marks of their kinds, which PerfView does not have.
fn without_kinds(stacks: &Stacks) -> BTreeMap<String, u64> {
    let mut plain: BTreeMap<String, u64> = BTreeMap::new();
    for (frames, samples) in stacks {
        let frames: Vec<&str> = frames
            .iter()
            .map(|frame| {
                ["_[k]", "_[j]", "_[i]"]
                    .iter()
                    .find_map(|kind| frame.strip_suffix(kind))
                    .unwrap_or(frame)
            })
            .collect();
        let stack = frames.join(";");
        *plain
            .entry(without_process_name(&stack).to_owned())
            .or_default() += samples;
    }
    plain
}

/// Self and total samples of each name.
fn methods(stacks: &BTreeMap<String, u64>) -> BTreeMap<&str, (u64, u64)> {
    let mut methods: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (stack, samples) in stacks {
        let frames: Vec<&str> = stack.split(';').skip(1).collect();
        if let Some(leaf) = frames.last() {
            methods.entry(leaf).or_default().0 += samples;
        }
        for frame in frames.into_iter().collect::<BTreeSet<_>>() {
            methods.entry(frame).or_default().1 += samples;
        }
    }
    methods
}

/// Fails unless PerfView shows the same: samples, time, processes, methods and stacks.
#[track_caller]
pub fn expect_same_in_perfview(saved: &Saved) {
    let Some(cpu) = perfview_json("cpu", &saved.path, &["--top", "0"]) else {
        return;
    };
    expect_totals(&cpu, &saved.summary);
    let ours = without_kinds(&saved.stacks);
    let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
    let shown = perfview_text("cpu", &saved.path, &["--folded=samples"]).expect("it ran before");
    for line in shown.lines() {
        let (stack, samples) = line.rsplit_once(' ').expect("a count");
        let stack = as_folded(stack);
        *theirs
            .entry(without_process_name(&stack).to_owned())
            .or_default() += samples.parse::<u64>().expect("a count");
    }
    assert_eq!(theirs, ours);

    // One name can be in several modules, which the folded stacks do not tell apart: then only self samples add up.
    let mut rows: BTreeMap<String, (u64, u64, BTreeSet<&str>)> = BTreeMap::new();
    for row in [&cpu["topExclusive"], &cpu["topInclusive"]]
        .into_iter()
        .flat_map(|list| list.as_array().expect("a list"))
    {
        let count = |key: &str| row[key].as_u64().expect("a count");
        let name = row["name"].as_str().expect("a name");
        if name == NO_STACK {
            continue;
        }
        let sums = rows.entry(frame_as_folded(name)).or_default();
        if sums.2.insert(name) {
            sums.0 += count("exclusiveSamples");
            sums.1 += count("inclusiveSamples");
        }
    }
    let methods = methods(&ours);
    assert!(rows.keys().eq(methods.keys()));
    for (name, (own, total, modules)) in &rows {
        let (our_own, our_total) = methods[name.as_str()];
        assert_eq!(*own, our_own, "{name}");
        assert!(*total == our_total || modules.len() > 1, "{name}");
    }
}

/// Fails unless PerfView counts the samples and the time of the summary, in all and for each process.
#[track_caller]
pub fn expect_totals(cpu: &Value, summary: &Summary) {
    // PerfView keeps three decimals of each sample's milliseconds.
    let same_ms = |ms: &Value, samples: u64, ours: f64| {
        let rounding = samples as f64 * 0.000_5 + 0.001;
        (ms.as_f64().expect("a number") - ours).abs() < rounding
    };
    assert_eq!(cpu["samples"].as_u64(), Some(summary.samples));
    assert_eq!(cpu["negativeSamples"], 0);
    assert!(
        same_ms(&cpu["totalMs"], summary.samples, summary.cpu_ms),
        "{} instead of {}",
        cpu["totalMs"],
        summary.cpu_ms
    );
    // In an archive, the programs that a process executed are processes to PerfView. The summary keeps the
    // busiest processes only.
    let rows = cpu["processes"].as_array().expect("a list");
    let pids: BTreeSet<i64> = rows.iter().filter_map(|row| row["pid"].as_i64()).collect();
    assert!(pids.len() as u64 <= summary.process_count);
    let all_are_kept = summary.processes.len() as u64 == summary.process_count;
    for pid in summary.processes.iter().map(|process| process.pid) {
        let lives = summary.processes.iter().filter(|life| life.pid == pid);
        let (samples, ms) = lives.fold((0, 0.0), |(samples, ms), life| {
            (samples + life.samples, ms + life.cpu_ms)
        });
        let rows: Vec<&Value> = rows.iter().filter(|row| row["pid"] == pid).collect();
        let counts = rows
            .iter()
            .map(|row| row["samples"].as_u64().expect("a count"));
        let shown: u64 = counts.sum();
        assert!(
            shown == samples || (!all_are_kept && shown > samples),
            "{rows:?} instead of {samples} samples"
        );
        if shown == samples {
            let shown_ms = rows.iter().map(|row| row["ms"].as_f64().expect("a number"));
            let sum = Value::from(shown_ms.sum::<f64>());
            assert!(same_ms(&sum, samples, ms), "{rows:?} instead of {ms} ms");
        }
    }
    for (kind, count) in cpu["unknown"]["any"].as_object().expect("counts") {
        // Addresses are what we write for code without a name.
        assert!(kind == "address" || *count == 0, "{kind}: {count}");
    }
}
