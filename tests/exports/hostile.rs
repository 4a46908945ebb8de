//! Traces whose names, threads or stacks are meant to break a reader.

use std::path::{Path, PathBuf};

use perfcollect::output::NameStyle;
use perfcollect::output::exports::Export;
use perfcollect::trace::{FunctionKind, Trace};
use tempfile::TempDir;

use crate::build::{Builder, MS, START, hostile, realistic};
use crate::readers::{self, Shown};
use crate::support::{is_installed, reader};

const SUFFIXES: [&str; 7] = [
    ".speedscope.json",
    ".pb.gz",
    ".firefox.json",
    ".folded",
    ".svg",
    ".chromium.json",
    ".csv",
];

fn write(trace: &Trace, directory: &TempDir, suffix: &str) -> PathBuf {
    let path = directory.path().join(format!("x{suffix}"));
    let (export, title) = Export::of(&path).unwrap();
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    export
        .write(trace, NameStyle::Full, &title, &mut file)
        .unwrap();
    path
}

/// A stack of a thousand functions.
fn deep() -> Trace {
    let mut b = Builder::new();
    let thread = b.thread(7, "deep", 7);
    let frames: Vec<_> = (0..1000)
        .map(|level| b.named(FunctionKind::Jit, "App", &format!("f{level}")))
        .collect();
    for sample in 0..50 {
        b.sample(
            START + sample * MS,
            MS,
            thread,
            &frames[..1000 - sample as usize],
        );
    }
    b.trace
}

/// 100 000 threads with a sample each.
fn crowded() -> Trace {
    let mut b = Builder::new();
    let main = b.named(FunctionKind::Native, "app", "main");
    for tid in 1..=100_000 {
        let thread = b.thread(1, "crowd", tid);
        b.sample(START + u64::from(tid as u32) * 1000, MS, thread, &[main]);
    }
    b.trace
}

fn samples(shown: &Shown) -> u64 {
    shown.values().sum()
}

/// Has the readers that are there read all exports of a trace.
fn expect_readable(trace: &Trace) {
    let directory = tempfile::tempdir().unwrap();
    let all = trace.samples.len() as u64;
    let paths = SUFFIXES.map(|suffix| write(trace, &directory, suffix));
    let [speedscope, pprof, firefox, folded, svg, chromium, csv] = &paths;
    for json in [speedscope, firefox, chromium] {
        let text = std::fs::read(json).unwrap();
        serde_json::from_slice::<serde_json::Value>(&text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let is_harmful = |c: char| c.is_control() && c != '\n' || c == '\u{202e}';
        assert!(!text.contains(is_harmful), "{}", json.display());
    }
    readers::expect_nested(chromium);
    assert_eq!(samples(&readers::csv(csv)), all);
    let folded = std::fs::read_to_string(folded).unwrap();
    let counts = folded.lines().map(|line| line.rsplit_once(' ').unwrap().1);
    assert_eq!(
        counts
            .map(|count| count.parse::<u64>().unwrap())
            .sum::<u64>(),
        all
    );
    assert!(std::fs::read_to_string(svg).unwrap().ends_with("</svg>"));
    let weight: u64 = trace.samples.iter().map(|sample| sample.weight.0).sum();
    read_speedscope(speedscope, weight);
    match reader("node", "firefox-profiler/dist/profiler-cli.js") {
        // It takes a command for each thread.
        Ok(cli) if trace.threads.len() < 100 => {
            assert_eq!(samples(&readers::firefox(cli, firefox).0), all);
        }
        Ok(_) => {}
        Err(missing) => test_skip::skip(missing),
    }
    if is_installed("go") {
        assert_eq!(samples(&readers::pprof(pprof).own), all);
    }
}

fn read_speedscope(path: &Path, weight: u64) {
    let release = need!(reader("node", "speedscope/dist/release"));
    let profiles = readers::speedscope(&release, path);
    assert_eq!(profiles[0].busy(), weight as f64);
}

#[test]
fn readers_accept_all_kinds_of_frames() {
    expect_readable(&realistic());
}

#[test]
fn readers_accept_hostile_names() {
    expect_readable(&hostile());
}

#[test]
fn readers_accept_deep_stacks() {
    expect_readable(&deep());
}

#[test]
fn readers_accept_100_000_threads() {
    expect_readable(&crowded());
}
