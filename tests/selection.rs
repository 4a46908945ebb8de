//! Parts of a trace: by time, process, thread and patterns for frames, as `view` and `report` select them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Summary;
use serde_json::Value;
use support::{Finished, Runtime, Saved, Workload, captured_for, perfcollect, run, workloads};

const LIMIT: Duration = Duration::from_secs(300);

fn perfcollect_of(command: &str, saved: &Saved, options: &[&str]) -> Finished {
    let mut run_it = Command::new(perfcollect());
    run_it.arg(command).arg(&saved.path).args(options);
    run(&mut run_it, LIMIT)
}

/// The rows of a report.
fn rows(saved: &Saved, kind: &str, options: &[&str]) -> Vec<Value> {
    let options = [&["-kind", kind, "-json"], options].concat();
    let json = perfcollect_of("report", saved, &options)
        .expect_success()
        .stdout;
    let table: Value = serde_json::from_str(&json).unwrap();
    table["rows"].as_array().unwrap().clone()
}

/// The samples of a selection.
fn samples(saved: &Saved, options: &[&str]) -> u64 {
    let processes = rows(saved, "processes", options);
    let samples = processes.iter().map(|row| row["samples"].as_u64().unwrap());
    samples.sum()
}

#[test]
fn selections_add_up_to_the_trace() {
    need_capture!();
    let runtime = need!(Runtime::newest());
    let program = need!(workloads::mixed());
    let mut command = runtime.command(&program);
    let workload = Workload::start(command.args(["--seconds", "6000"]));
    let saved = captured_for(Duration::from_secs(3), workload.pid(), &[]);
    drop(workload);
    expect_times(&saved);
    expect_threads(&saved);
    expect_patterns(&saved);
    expect_groups(&saved);
    expect_call_tree(&saved);
    expect_refusals(&saved);
}

fn expect_times(saved: &Saved) {
    let info = &saved.summary.info;
    let half = (info.end_ns - info.start_ns) as f64 / 2e9;
    let half = format!("{half:.4}");
    let parts = [["-to", &half], ["-from", &half]].map(|options| samples(saved, &options));
    assert_eq!(parts.iter().sum::<u64>(), saved.summary.samples);
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
    let stacks = parts_of_stacks(saved, &[&["-to", &half], &["-from", &half]]);
    let whole = &saved.summary.quality.stacks;
    assert_eq!(stacks, (whole.rooted, whole.truncated()));
    let json = perfcollect_of(
        "report",
        saved,
        &["-kind", "summary", "-format", "json", "-from", &half],
    );
    let selected: Value = serde_json::from_str(&json.expect_success().stdout).unwrap();
    let start = selected["info"]["start_ns"].as_u64().unwrap();
    assert!(start > info.start_ns && start < info.end_ns);
    assert_eq!(selected["info"]["end_ns"], info.end_ns);
    // What the runtime reported is of the whole capture.
    assert_eq!(selected["runtimes"], Value::Array(Vec::new()));
}

/// The sums of complete and truncated stacks of selections.
fn parts_of_stacks(saved: &Saved, selections: &[&[&str]]) -> (u64, u64) {
    let parts = selections.iter().map(|options| {
        let options = [&["-kind", "summary", "-format", "json"], *options].concat();
        let json = perfcollect_of("report", saved, &options);
        let selected = serde_json::from_str(&json.expect_success().stdout);
        let selected: Summary = selected.unwrap();
        let stacks = &selected.quality.stacks;
        assert_eq!(stacks.samples(), selected.samples);
        (stacks.rooted, stacks.truncated())
    });
    parts.fold((0, 0), |all, part| (all.0 + part.0, all.1 + part.1))
}

fn expect_threads(saved: &Saved) {
    let process = &saved.summary.processes[0];
    assert_eq!(samples(saved, &["-process", "mixed.dll"]), process.samples);
    let pid = process.pid.to_string();
    assert_eq!(samples(saved, &["-process", &pid]), process.samples);
    let runtime = &saved.summary.runtimes[0];
    let of_process = rows(saved, "exceptions", &["-process", &pid]);
    let count: u64 = of_process
        .iter()
        .map(|row| row["exceptions"].as_u64().unwrap())
        .sum();
    assert_eq!(
        Some(count),
        runtime.exceptions.as_ref().map(|all| all.count)
    );

    let threads = rows(saved, "threads", &["-full"]);
    assert_eq!(
        threads
            .iter()
            .map(|row| row["samples"].as_u64().unwrap())
            .sum::<u64>(),
        saved.summary.samples
    );
    for row in threads.iter().take(4) {
        let tid = row["tid"].as_u64().unwrap().to_string();
        assert_eq!(samples(saved, &["-thread", &tid]), row["samples"], "{row}");
    }
    let workers = threads.iter().filter(|row| row["name"] == ".NET TP Worker");
    let workers: u64 = workers.map(|row| row["samples"].as_u64().unwrap()).sum();
    assert!(workers > 0, "{threads:#?}");
    assert_eq!(samples(saved, &["-thread", ".net tp worker"]), workers);
}

fn expect_patterns(saved: &Saved) {
    let method = "Sorting.Round";
    let under = saved.samples_under(&[method]);
    assert!(under > 0);
    assert_eq!(samples(saved, &["-include", "sorting.round"]), under);
    assert_eq!(
        samples(saved, &["-exclude", "mixed!Sorting%Round"]),
        saved.summary.samples - under
    );
    let both = saved.samples_under(&[method, "CompareText"]);
    let include = "Sorting.Round;CompareText";
    assert_eq!(samples(saved, &["-include", include]), both);
    let pid = saved.summary.processes[0].pid;
    let process = format!("^Process64 dotnet ({pid});Sorting.Round");
    assert_eq!(samples(saved, &["-include", &process]), under);

    let library = "System.Private.CoreLib!";
    let module = |row: &&Value| row["method"].as_str().unwrap().starts_with(library);
    assert!(rows(saved, "cpu", &[]).iter().any(|row| module(&row)));
    let folded = rows(saved, "cpu", &["-fold", "^system.private.corelib!"]);
    assert!(!folded.iter().any(|row| module(&row)));
    let sorting = |rows: &[Value], column: &str| {
        let mut rows = rows.iter();
        let row = rows
            .find(|row| row["method"].as_str().unwrap().contains(method))
            .unwrap();
        row[column].as_f64().unwrap()
    };
    let whole = rows(saved, "cpu", &[]);
    let total = "total_percent";
    assert_eq!(sorting(&folded, total), sorting(&whole, total));
    assert!(sorting(&folded, "self_samples") > sorting(&whole, "self_samples"));
}

fn expect_groups(saved: &Saved) {
    // A group per module has the samples of the module.
    let groups = rows(saved, "cpu", &["-group", "@^([^!]*)!.*->$1"]);
    let modules = rows(saved, "modules", &[]);
    assert!(modules.len() > 3);
    for module in &modules {
        let mut groups = groups.iter();
        let group = groups
            .find(|group| group["method"] == module["name"])
            .unwrap();
        assert_eq!(group["self_samples"], module["samples"], "{module}");
        assert_eq!(group["kind"], "group");
    }
    let entries = rows(saved, "cpu", &["-group", "mixed!->;!=>OTHER"]);
    let is_known = |row: &Value| {
        let name = row["method"].as_str().unwrap();
        name.starts_with("mixed!") || name.starts_with("OTHER <<")
    };
    assert!(entries.iter().all(is_known), "{entries:#?}");

    let own: Vec<_> = rows(saved, "cpu", &["-justmycode"]);
    assert!(own.iter().all(is_known), "{own:#?}");
    let whole = rows(saved, "own", &[]);
    assert_eq!(rows(saved, "own", &["-justmycode"]), whole);
}

fn expect_call_tree(saved: &Saved) {
    let tree = rows(saved, "calltree", &["-include", "Sorting.Round"]);
    let under = saved.samples_under(&["Sorting.Round"]);
    assert_eq!(tree[0]["samples"], under);
    assert_eq!(tree[0]["depth"], 0);
    let methods = |row: &&Value| row["frame"].as_str().unwrap().contains("Sorting.Round()");
    let method = tree.iter().find(methods).unwrap();
    assert_eq!(method["samples"], under);
    for pair in tree.windows(2) {
        let [caller, callee] = [0, 1].map(|at| pair[at]["depth"].as_u64().unwrap());
        assert!(callee <= caller + 1, "{pair:#?}");
    }
    let text = perfcollect_of("view", saved, &["-viewer", "calltree", "-top", "30"]);
    let text = text.expect_success().stdout;
    assert!(text.lines().count() <= 32, "{text}");
    assert!(
        text.contains("callers]") && text.contains("Sorting.Round()"),
        "{text}"
    );
}

fn expect_refusals(saved: &Saved) {
    let nobody = perfcollect_of("view", saved, &["-process", "nobody"]);
    assert_eq!(nobody.status.code(), Some(1));
    let error = nobody.stderr;
    assert!(
        error.contains("none of the") && error.contains("mixed"),
        "{error}"
    );
    let malformed = perfcollect_of("report", saved, &["-group", "{a"]);
    assert!(
        malformed.stderr.contains("'{a' is not a pattern"),
        "{}",
        malformed.stderr
    );
    let of_runtime = ["-kind", "exceptions", "-from", "0.5"];
    let of_runtime = perfcollect_of("report", saved, &of_runtime);
    assert_eq!(of_runtime.status.code(), Some(1));
    assert!(
        of_runtime
            .stderr
            .contains("exceptions is of the whole capture"),
        "{}",
        of_runtime.stderr
    );
    let events = perfcollect_of("view", saved, &["-viewer", "gc", "-thread", "main"]);
    assert!(events.stderr.contains("only -process"), "{}", events.stderr);
}
