//! What the installed perf says of a recording.

use std::path::Path;
use std::process::Command;

use super::{Missing, grammar};

/// Whether perf can be run.
pub fn can_run_perf() -> Result<(), Missing> {
    let version = Command::new("perf").arg("--version").output();
    let runs = version.is_ok_and(|output| output.status.success());
    match runs {
        true => Ok(()),
        false => Err(Missing::Command("perf")),
    }
}

/// What a command of perf prints of a recording, without a word of complaint.
#[track_caller]
pub fn perf(words: &[&str], recording: &Path) -> String {
    let mut perf = Command::new("perf");
    let output = perf.args(words).arg("-i").arg(recording).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.is_empty(),
        "{words:?}: {said}"
    );
    String::from_utf8(output.stdout).unwrap()
}

/// A sample: process, thread, weight, frames as (module, symbol) from the leaf.
pub type Sample = (i32, i32, u64, Vec<(String, String)>);

/// The samples of a text of `perf script -F pid,tid,period,ip,sym,dso`.
pub fn script_samples(text: &str) -> Vec<Sample> {
    let mut samples: Vec<Sample> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(frame) = line.strip_prefix('\t') {
            let (symbol, file) = frame
                .trim_start()
                .split_once(' ')
                .and_then(|(_, rest)| rest.strip_suffix(')')?.rsplit_once(" ("))
                .unwrap_or_else(|| panic!("{line:?}"));
            let file = file.rsplit('/').next().unwrap();
            let module = file.strip_suffix(".ko").unwrap_or(file);
            let (_, _, _, frames) = samples.last_mut().unwrap();
            frames.push((module.to_owned(), symbol.to_owned()));
            continue;
        }
        let mut words = line.split_whitespace();
        let (pid, tid) = words.next().unwrap().split_once('/').unwrap();
        let weight = words.next().unwrap().parse().unwrap();
        samples.push((
            pid.parse().unwrap(),
            tid.parse().unwrap(),
            weight,
            Vec::new(),
        ));
    }
    samples
}

/// Fails unless the samples are those of a `perf.data.txt`.
#[track_caller]
pub fn expect_samples_of(samples: &[Sample], perf_text: &[u8]) {
    let expected = grammar::parse(perf_text).events;
    assert_eq!(samples.len(), expected.len());
    for ((pid, _, weight, frames), event) in samples.iter().zip(expected) {
        // Nothing is where there is no stack.
        let is_nowhere = |(module, _): &(String, String)| module == "[unknown]";
        let frames: Vec<_> = frames.iter().filter(|frame| !is_nowhere(frame)).collect();
        let expected_frames: Vec<_> = event.frames.iter().collect();
        assert_eq!(
            (*pid, *weight, frames),
            (event.pid, event.weight, expected_frames)
        );
    }
}
