//! What PerfView's own reader finds in our archives.

use std::collections::BTreeMap;
use std::path::Path;

use perfcollect::output::folded;
use perfcollect::output::summary::Summary;
use serde_json::Value;

use crate::{build, perfview, write};

fn cpu_view(path: &Path) -> Option<Value> {
    perfview::json("cpu", path, &["--top", "0"])
}

/// (self, total) samples by what PerfView shows.
fn methods(cpu: &Value) -> BTreeMap<String, (u64, u64)> {
    let lists = [&cpu["topExclusive"], &cpu["topInclusive"]];
    let rows = lists.into_iter().flat_map(|list| list.as_array().unwrap());
    rows.map(|row| {
        let count = |key: &str| row[key].as_u64().unwrap();
        let counts = (count("exclusiveSamples"), count("inclusiveSamples"));
        (row["name"].as_str().unwrap().to_owned(), counts)
    })
    .collect()
}

fn assert_totals(cpu: &Value, summary: &Summary) {
    assert_eq!(cpu["samples"].as_u64(), Some(summary.samples));
    assert_eq!(cpu["negativeSamples"], 0);
    let ms = cpu["totalMs"].as_f64().unwrap();
    assert!((ms - summary.cpu_ms).abs() < 0.001, "{ms}");
    let rows = cpu["processes"].as_array().unwrap();
    assert_eq!(rows.len(), summary.processes.len());
    for process in &summary.processes {
        let row = rows.iter().find(|row| row["pid"] == process.pid).unwrap();
        assert_eq!(row["samples"].as_u64(), Some(process.samples));
        assert!(
            (row["ms"].as_f64().unwrap() - process.cpu_ms).abs() < 0.001,
            "{row}"
        );
    }
}

fn assert_names_known(cpu: &Value) {
    for (kind, count) in cpu["unknown"]["any"].as_object().unwrap() {
        // Addresses are what we write for code without a name.
        assert!(kind == "address" || count == 0, "{kind}: {count}");
    }
}

#[test]
fn perfview_counts_what_the_summary_counts() {
    let written = write(&build::realistic());
    let Some(cpu) = cpu_view(&written.path) else {
        return;
    };
    assert_totals(&cpu, &written.summary);
    assert_names_known(&cpu);
    let methods = methods(&cpu);
    assert!(written.summary.methods.len() >= 9);
    for method in &written.summary.methods {
        let shown = format!("{}!{}", method.module, method.name);
        let counts = (method.self_samples, method.total_samples);
        assert_eq!(methods.get(&shown), Some(&counts), "{shown}");
    }
    // All there is beside the summary's methods is the mark of a cut stack.
    let marker = "perfcollect!{truncated}";
    assert!(methods.contains_key(marker));
    assert_eq!(methods.len(), written.summary.methods.len() + 1);
}

/// A stack PerfView shows, in the words of `stacks.folded`.
fn as_folded(stack: &str) -> String {
    let frames = stack
        .split(';')
        .filter(|frame| !frame.starts_with("Thread ("));
    let frames = frames.map(|frame| match frame.split_once('!') {
        None => frame.trim_start_matches("Process ").to_owned(),
        Some((_, "{truncated}")) => "[truncated]".to_owned(),
        Some((module, offset)) if offset.starts_with("0x") => format!("{module}+{offset}"),
        Some((_, name)) => name.to_owned(),
    });
    frames.collect::<Vec<_>>().join(";")
}

#[test]
fn perfview_shows_the_stacks_of_the_folded_file() {
    let trace = build::realistic();
    let written = write(&trace);
    let Some(shown) = perfview::run("cpu", &written.path, &["--folded=samples"]) else {
        return;
    };
    let mut theirs: BTreeMap<String, u64> = BTreeMap::new();
    for line in shown.lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        *theirs.entry(as_folded(stack)).or_default() += count.parse::<u64>().unwrap();
    }
    let mut folded = Vec::new();
    folded::write(&trace, &mut folded).unwrap();
    let mut ours: BTreeMap<String, u64> = BTreeMap::new();
    for line in String::from_utf8(folded).unwrap().lines() {
        let (stack, count) = line.rsplit_once(' ').unwrap();
        let stack = ["_[k]", "_[j]", "_[i]"]
            .iter()
            .fold(stack.to_owned(), |s, suffix| s.replace(suffix, ""));
        *ours.entry(stack).or_default() += count.parse::<u64>().unwrap();
    }
    assert_eq!(theirs, ours);
}

#[test]
fn perfview_survives_hostile_names() {
    let written = write(&build::hostile());
    let Some(cpu) = cpu_view(&written.path) else {
        return;
    };
    assert_totals(&cpu, &written.summary);
    assert_names_known(&cpu);
    let methods = methods(&cpu);
    let each = build::HOSTILE_COMMS.len() as u64;
    for (module, name, shown) in build::HOSTILE_FUNCTIONS {
        // `()` and `[]` of one module become one name.
        let alike = build::HOSTILE_FUNCTIONS
            .iter()
            .filter(|(.., other)| *other == shown);
        let counts = each * alike.count() as u64;
        assert_eq!(
            methods.get(shown),
            Some(&(counts, counts)),
            "{module:?} {name:?}"
        );
    }
    let processes = cpu["processes"].as_array().unwrap();
    for (number, (name, shown)) in build::HOSTILE_COMMS.iter().enumerate() {
        let pid = 1000 + number;
        let row = processes.iter().find(|row| row["pid"] == pid).unwrap();
        assert_eq!(
            row["process"],
            format!("Process {shown} ({pid})"),
            "{name:?}"
        );
    }
}

#[test]
fn thread_time_has_no_idle_threads() {
    let written = write(&build::realistic());
    let Some(view) = perfview::json("threadtime", &written.path, &[]) else {
        return;
    };
    let cpu_ms = view["ms"]["CPU_TIME"].as_f64().unwrap();
    assert!((cpu_ms - written.summary.cpu_ms).abs() < 0.001, "{view:#}");
    assert!(
        view["ms"].get("BLOCKED_TIME").is_none_or(|ms| ms == 0.0),
        "{view:#}"
    );
}

#[test]
fn perfview_opens_very_deep_stacks() {
    let mut b = build::Builder::new();
    let thread = b.thread(1, "deep", 1);
    let f = b.named(perfcollect::trace::FunctionKind::Jit, "m", "Recurse()");
    for sample in 0..3 {
        b.sample(build::START + sample, build::MS, thread, &vec![f; 50_000]);
    }
    let written = write(&b.trace);
    let Some(cpu) = cpu_view(&written.path) else {
        return;
    };
    assert_totals(&cpu, &written.summary);
    assert_eq!(methods(&cpu)["m!Recurse()"], (3, 3));
}
