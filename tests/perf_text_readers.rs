//! `perf.data.txt` in readers of perf script text: each finds the samples of the trace, with their stacks, and nothing else.
//! `scripts/readers` prepares them.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

#[allow(dead_code)]
#[path = "writers/build.rs"]
mod build;
#[path = "perf_text_readers/firefox.rs"]
mod firefox;
#[path = "perf_text_readers/folded.rs"]
mod folded;
#[path = "perf_text_readers/own.rs"]
mod own;
#[path = "perf_text_readers/speedscope.rs"]
mod speedscope;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::OnceLock;
use std::time::Duration;

use perfcollect::output::perf_text;
use perfcollect::trace::Trace;
use support::{grammar, reader};

const LIMIT: Duration = Duration::from_secs(120);

/// A text with the samples that are in it, by a strict reader that `tests/writers` compares with the traces.
struct Text {
    bytes: Vec<u8>,
    samples: Vec<Sample>,
}

/// A sample as the readers show it.
struct Sample {
    process: String,
    pid: i32,
    tid: i32,
    /// Nanoseconds.
    time: u64,
    weight: u64,
    /// From the root.
    stack: Vec<Frame>,
}

struct Frame {
    module: String,
    /// Without the tier.
    name: String,
}

impl Text {
    fn new(bytes: Vec<u8>) -> Self {
        let samples = grammar::parse(&bytes).events.into_iter().map(|event| {
            let frames = event.frames.into_iter().rev();
            let mut stack: Vec<_> = frames
                .map(|(module, name)| Frame { module, name })
                .collect();
            if stack.is_empty() {
                stack.push(Frame {
                    module: "perfcollect".into(),
                    name: "{no stack}".into(),
                });
            }
            Sample {
                process: event.process,
                pid: event.pid,
                tid: event.tid,
                time: event.time,
                weight: event.weight,
                stack,
            }
        });
        let samples = samples.collect();
        Self { bytes, samples }
    }

    fn of(trace: &Trace) -> Self {
        let mut bytes = Vec::new();
        perf_text::write(trace, &mut bytes).unwrap();
        let text = Self::new(bytes);
        assert_eq!(text.samples.len(), trace.samples.len());
        text
    }

    /// In a separate file.
    fn file(&self) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, &self.bytes).unwrap();
        file
    }
}

/// Texts of traces made by hand, and of a capture where samples can be taken.
fn texts() -> Vec<Text> {
    let mut texts = vec![Text::of(&build::realistic()), Text::of(&build::hostile())];
    texts.extend(captured().map(|bytes| Text::new(bytes.clone())));
    texts
}

/// The text of a capture of the C program.
fn captured() -> Option<&'static Vec<u8>> {
    static TEXT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    let capture = || {
        need_capture!();
        let program = need!(support::workloads::native("native-fp"));
        let saved = support::captured(["--", program.to_str().unwrap(), "--seconds", "1"]);
        assert!(saved.summary.samples > 100);
        Some(saved.perf_text.clone())
    };
    TEXT.get_or_init(capture).as_ref()
}

/// Fails with what differs, as far as it can be read: names may be long.
#[track_caller]
fn expect_same<K: Ord + Debug, V: PartialEq + Debug>(
    shown: &BTreeMap<K, V>,
    expected: &BTreeMap<K, V>,
) {
    let missing = expected
        .iter()
        .filter(|(key, value)| shown.get(key) != Some(value));
    let wrong = shown
        .iter()
        .filter(|(key, value)| expected.get(key) != Some(value));
    let differences = missing
        .map(|row| ("not", row))
        .chain(wrong.map(|row| ("but", row)));
    let shortened = |difference| {
        let text = format!("{difference:?}");
        let end = text.chars().rev().take(200).collect::<Vec<_>>();
        format!("{}\n", end.iter().rev().collect::<String>())
    };
    let differences: Vec<_> = differences.map(shortened).take(4).collect();
    assert!(differences.is_empty(), "{}", differences.concat());
}

/// A name without the tier that `perf.data.txt` shows.
fn without_tier(name: &str) -> &str {
    let tiers = grammar::TIERS.iter();
    let mut stripped = tiers.filter_map(|tier| name.strip_suffix(tier));
    stripped.next().unwrap_or(name)
}
