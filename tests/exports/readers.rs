//! What readers show of an export: own samples of each function, as `module!name`.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use serde_json::Value;

use crate::LIMIT;
use crate::support::{FirefoxProfiler, run};

/// Own samples by function.
pub(crate) type Shown = BTreeMap<String, u64>;

/// A profile of speedscope.
#[derive(Deserialize)]
pub(crate) struct Profile {
    pub(crate) name: String,
    stacks: Vec<Vec<String>>,
    weights: Vec<f64>,
}

impl Profile {
    fn weighed(&self) -> impl Iterator<Item = (&String, f64)> {
        let rows = self.stacks.iter().zip(&self.weights);
        rows.filter_map(|(stack, weight)| Some((stack.last()?, *weight)))
    }

    /// Own samples with this weight each.
    pub(crate) fn own(&self, weight: f64) -> Shown {
        let mut own: BTreeMap<&String, f64> = BTreeMap::new();
        for (name, weight) in self.weighed() {
            *own.entry(name).or_default() += weight;
        }
        own.into_iter()
            .map(|(name, sum)| (name.clone(), (sum / weight).round() as u64))
            .collect()
    }

    /// Weight of what is no gap.
    pub(crate) fn busy(&self) -> f64 {
        self.weighed().map(|(_, weight)| weight).sum()
    }
}

pub(crate) fn speedscope(release: &Path, file: &Path) -> Vec<Profile> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/perf_text_readers/speedscope.js"
    );
    let mut node = Command::new("node");
    node.arg(script).arg(release).arg(file);
    let done = run(&mut node, LIMIT).expect_success();
    serde_json::from_str(&done.stdout).unwrap()
}

/// Own samples by function, and the number of markers.
pub(crate) fn firefox(cli: PathBuf, file: &Path) -> (Shown, u64) {
    let profile = FirefoxProfiler::load(cli, file);
    let functions = profile.functions().into_iter();
    let mut shown = Shown::new();
    for (name, samples) in functions.filter(|(_, samples)| *samples > 0) {
        let name = match name
            .strip_suffix(')')
            .and_then(|name| name.split_once(" (in "))
        {
            // It shows the module of an address so.
            Some((offset, module)) => format!("{module}!{offset}"),
            None => name,
        };
        *shown.entry(name).or_default() += samples;
    }
    (shown, profile.markers())
}

/// What `pprof -raw` prints.
pub(crate) struct Pprof {
    pub(crate) text: String,
    pub(crate) own: Shown,
}

pub(crate) fn pprof(file: &Path) -> Pprof {
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-raw"]).arg(file);
    let text = run(&mut go, LIMIT).expect_success().stdout;
    let (head, mappings) = text.split_once("\nMappings\n").unwrap();
    let (samples, locations) = head.split_once("\nLocations\n").unwrap();
    let modules: HashMap<&str, &str> = mappings
        .lines()
        .map(|line| {
            let (id, rest) = line.trim().split_once(": 0x0/0x0/0x0 ").unwrap();
            let rest = rest.strip_suffix(" [FN]").unwrap();
            let path = rest.rsplit_once(' ').unwrap().0.trim();
            (id, path.rsplit('/').next().unwrap())
        })
        .collect();
    let names: HashMap<&str, String> = locations
        .lines()
        .map(|line| {
            let (id, rest) = line.trim().split_once(": 0x0 ").unwrap();
            let (module, rest) = match rest.strip_prefix("M=") {
                Some(rest) => rest.split_once(' ').unwrap(),
                None => ("", rest),
            };
            // Then come the place and the name with the module, in parentheses.
            let name = rest.split(" :0:0 s=0").next().unwrap();
            let name = name.split(" :0 s=0").next().unwrap();
            (id, full_name(modules.get(module).copied(), name))
        })
        .collect();
    let mut own = Shown::new();
    for line in samples.lines() {
        let Some((values, stack)) = line.split_once(": ") else {
            continue;
        };
        let mut values = values.split_whitespace().map(str::parse::<u64>);
        if let (Some(Ok(count)), Some(Ok(_))) = (values.next(), values.next()) {
            let leaf = stack.split_whitespace().next().unwrap();
            *own.entry(names[leaf].clone()).or_default() += count;
        }
    }
    Pprof { text, own }
}

fn full_name(module: Option<&str>, name: &str) -> String {
    let Some(module) = module else {
        return name.to_owned();
    };
    // A function without a name.
    let name = match name
        .strip_prefix(module)
        .and_then(|rest| rest.strip_prefix('+'))
    {
        Some(offset) => offset,
        None => name,
    };
    format!("{module}!{name}")
}

/// The first functions of `pprof -top` by samples, without their modules.
pub(crate) fn pprof_top(file: &Path, count: usize) -> Vec<(String, u64)> {
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-top", "-sample_index=samples"])
        .arg(format!("-nodecount={count}"))
        .arg(file);
    let text = run(&mut go, LIMIT).expect_success().stdout;
    let rows = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("flat "));
    let row = |line: &str| {
        let mut rest = line.trim_start();
        let mut columns = Vec::new();
        for _ in 0..5 {
            let (column, after) = rest.split_once(' ').unwrap();
            columns.push(column);
            rest = after.trim_start();
        }
        (rest.to_owned(), columns[0].parse().unwrap())
    };
    rows.skip(1).map(row).collect()
}

pub(crate) fn csv(file: &Path) -> Shown {
    let mut rows = csv::Reader::from_path(file).unwrap();
    let mut shown = Shown::new();
    for row in rows.deserialize::<HashMap<String, String>>() {
        let row = row.unwrap();
        let name = match &*row["module"] {
            "" => row["function"].clone(),
            module => format!("{module}!{}", row["function"]),
        };
        let (own, total) = (&row["self_samples"], &row["total_samples"]);
        let (own, total): (u64, u64) = (own.parse().unwrap(), total.parse().unwrap());
        assert!(own <= total && total > 0);
        *shown.entry(name).or_default() += own;
    }
    shown
}

/// Checks that events of each thread are in order of time, and that each end has a begin.
pub(crate) fn expect_nested(file: &Path) {
    let json: Value = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    let mut threads: HashMap<(i64, i64), (usize, f64)> = HashMap::new();
    for event in json["traceEvents"].as_array().unwrap() {
        let id = |key: &str| event[key].as_i64().unwrap();
        let (depth, last) = threads.entry((id("pid"), id("tid"))).or_default();
        match event["ph"].as_str().unwrap() {
            "B" => *depth += 1,
            "E" => *depth = depth.checked_sub(1).unwrap(),
            _ => continue,
        }
        let time = event["ts"].as_f64().unwrap();
        assert!(time >= *last, "{event}");
        *last = time;
    }
    assert!(threads.values().all(|(depth, _)| *depth == 0));
    assert!(!json["otherData"]["quality"].as_str().unwrap().is_empty());
}
