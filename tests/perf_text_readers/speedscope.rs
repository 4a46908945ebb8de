//! speedscope. It charges a sample with the time from the middle to the last sample of its thread to the middle to the next.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;

use crate::support::run;
use crate::{LIMIT, Sample, Text, reader, texts, without_tier};

/// Seconds by stack.
type Stacks = BTreeMap<Vec<String>, f64>;

#[derive(Deserialize)]
struct Profile {
    name: String,
    stacks: Vec<Vec<String>>,
    weights: Vec<f64>,
}

#[test]
fn speedscope_finds_each_sample() {
    let release = need!(reader("node", "speedscope/dist/release"));
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/perf_text_readers/speedscope.js"
    );
    for text in texts() {
        let file = text.file();
        let mut node = Command::new("node");
        node.arg(script).arg(&release).arg(file.path());
        let done = run(&mut node, LIMIT).expect_success();
        let profiles: Vec<Profile> = serde_json::from_str(&done.stdout).unwrap();
        let mut expected = threads(&text);
        for profile in profiles {
            let samples = expected.remove(&profile.name).unwrap();
            compare(&profile, &samples);
        }
        assert!(expected.is_empty(), "{:?}", expected.keys());
    }
}

/// The samples of each thread by the name speedscope gives it.
fn threads(text: &Text) -> BTreeMap<String, Vec<&Sample>> {
    let mut threads: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for sample in &text.samples {
        // It takes the second space after a name of one letter for a part of it.
        let space = if sample.process.len() == 1 { " " } else { "" };
        let Sample {
            process, pid, tid, ..
        } = sample;
        let name = format!("{process}{space} pid: {pid} tid: {tid}");
        threads.entry(name).or_default().push(sample);
    }
    threads
}

fn compare(profile: &Profile, samples: &[&Sample]) {
    let mut shown = Stacks::new();
    for (stack, weight) in profile.stacks.iter().zip(&profile.weights) {
        let stack = stack.iter().map(|name| without_tier(name).to_owned());
        *shown.entry(stack.collect()).or_default() += weight;
    }
    let mut expected = Stacks::new();
    for (at, sample) in samples.iter().enumerate() {
        let seconds = |at: usize| samples[at].time as f64 / 1e9;
        let last = seconds(at.saturating_sub(1));
        let next = seconds((at + 1).min(samples.len() - 1));
        let weight = match samples {
            [_] => 1.0,
            _ => (next - last) / 2.0,
        };
        // A sample without a weight is left out.
        if weight > 0.0 {
            let stack = sample.stack.iter().map(|frame| frame.name.clone());
            *expected.entry(stack.collect()).or_default() += weight;
        }
    }
    assert!(
        shown.keys().eq(expected.keys()),
        "{shown:#?}\n{expected:#?}"
    );
    for (stack, weight) in &expected {
        assert!((shown[stack] - weight).abs() < 1e-6, "{stack:?}");
    }
}
