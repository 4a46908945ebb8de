//! What PerfView's own reader finds in our archives.

use std::collections::BTreeMap;
use std::path::Path;

use perfcollect::output::folded;
use serde_json::Value;

use crate::support::{NO_STACK, as_folded, expect_totals, perfview_json, perfview_text};
use crate::{build, write};

pub(crate) fn cpu_view(path: &Path) -> Option<Value> {
    perfview_json("cpu", path, &["--top", "0"])
}

/// (self, total) samples by what PerfView shows.
pub(crate) fn methods(cpu: &Value) -> BTreeMap<String, (u64, u64)> {
    let lists = [&cpu["topExclusive"], &cpu["topInclusive"]];
    let rows = lists.into_iter().flat_map(|list| list.as_array().unwrap());
    rows.map(|row| {
        let count = |key: &str| row[key].as_u64().unwrap();
        let counts = (count("exclusiveSamples"), count("inclusiveSamples"));
        (row["name"].as_str().unwrap().to_owned(), counts)
    })
    .collect()
}

#[test]
fn perfview_counts_what_the_summary_counts() {
    let written = write(&build::realistic());
    let Some(cpu) = cpu_view(&written.path) else {
        return;
    };
    expect_totals(&cpu, &written.summary);
    let methods = methods(&cpu);
    assert!(written.summary.methods.len() >= 9);
    for method in &written.summary.methods {
        let shown = format!("{}!{}", method.module, method.name);
        let counts = (method.self_samples, method.total_samples);
        assert_eq!(methods.get(&shown), Some(&counts), "{shown}");
    }
    // All there is beside the summary's methods are the marks of a cut stack and of a missing one.
    let markers = ["perfcollect!{truncated}", NO_STACK];
    assert!(markers.iter().all(|marker| methods.contains_key(*marker)));
    assert_eq!(methods.len(), written.summary.methods.len() + markers.len());
}

#[test]
fn perfview_shows_the_stacks_of_the_folded_file() {
    let trace = build::realistic();
    let written = write(&trace);
    let Some(shown) = perfview_text("cpu", &written.path, &["--folded=samples"]) else {
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
    expect_totals(&cpu, &written.summary);
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
    let Some(view) = perfview_json("threadtime", &written.path, &[]) else {
        return;
    };
    assert_eq!(view["samples"], written.summary.samples);
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
    expect_totals(&cpu, &written.summary);
    assert_eq!(methods(&cpu)["m!Recurse()"], (3, 3));
}
