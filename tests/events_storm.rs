//! More events than any program should send, more runtimes than a machine should run, and a
//! runtime's first event.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use perfcollect::output::summary::Summary;
use serde_json::Value;
use support::events::{entries, for_each_raw_event, merged_runtime_events, raw_runtime_events};
use support::{Finished, Runtime, perfcollect, run, runtimes, workloads};
use tempfile::TempDir;

/// Much longer than any capture on a busy system.
const LIMIT: Duration = Duration::from_secs(900);
const ALLOCATION_TICK: u32 = 10;
const EXCEPTION: u32 = 80;
const JITTING: u32 = 145;

/// The provider by which the program detects a session.
const HEARD: &[&str] = &["-providers", "Storm"];

/// Captures a command in a new directory, as `x`.
fn collect(options: &[&str], command: &[&str]) -> (TempDir, Finished) {
    let directory = tempfile::tempdir().unwrap();
    let mut collect = Command::new(perfcollect());
    collect
        .args(["collect", "x", "-quiet"])
        .args(options)
        .arg("--")
        .args(command)
        .env("DOTNET_ROLL_FORWARD", "LatestMajor")
        .current_dir(&directory);
    let finished = run(&mut collect, LIMIT).expect_success();
    (directory, finished)
}

fn summary(directory: &TempDir) -> Summary {
    let trace = directory.path().join("x.trace.zip");
    serde_json::from_slice(&entries(&trace, "/summary.json")[0].1).unwrap()
}

/// Returns the final lines of programs.
fn done(finished: &Finished) -> Vec<Value> {
    let lines = finished.stdout.lines();
    lines
        .filter_map(|line| serde_json::from_str(line).ok())
        .filter(|line: &Value| line["event"] == "done")
        .collect()
}

/// Returns the newest `dotnet`, and the program.
fn newest_with_storm() -> Option<[String; 2]> {
    let program = need!(workloads::storm());
    let runtime = need!(Runtime::newest());
    let dotnet = runtime.dotnet.to_str().unwrap().to_owned();
    Some([dotnet, program.to_str().unwrap().to_owned()])
}

#[test]
fn a_storm_of_events_takes_nothing_from_the_samples() {
    const TICKS: u64 = 10_000;
    need_capture!();
    let Some([dotnet, program]) = newest_with_storm() else {
        return;
    };
    let ticks = TICKS.to_string();
    let options = ["-clrevents", "gc+exception", "-clreventlevel", "verbose"];
    let command = [&dotnet, &program, "--ticks", &ticks, "--heard", "600"];
    let (directory, finished) = collect(&[&options, HEARD].concat(), &command);
    let done = &done(&finished)[0];
    let trace = directory.path().join("x.trace.zip");
    let raw = raw_runtime_events(&trace);
    let summary = summary(&directory);
    let [events] = &summary.quality.events[..] else {
        panic!("{:?}", summary.quality.events);
    };
    println!("{done} {events:?} {} samples", summary.samples);
    let thrown = done["thrown"].as_u64().unwrap();
    assert!((thrown..=thrown + events.dropped).contains(&(raw[&EXCEPTION] + events.dropped)));
    assert!(raw[&ALLOCATION_TICK] + events.dropped >= TICKS);
    assert_eq!(
        merged_runtime_events(&directory.path().join("x.nettrace")),
        raw
    );
    // 1000 samples per second; losses are reported.
    let losses = &summary.quality.losses;
    let sampled = summary.cpu_ms + losses.lost() as f64 + losses.pauses.paused_ns() as f64 / 1e6;
    let ran = done["cpuMs"].as_f64().unwrap();
    assert!(sampled > ran - 5.0 * ran.sqrt(), "{sampled} of {ran} ms");
    let peak = summary.info.collector_peak_kib;
    assert!(peak < 64 << 10, "{peak} KiB");
}

/// Each process is observed from its start to its end.
#[test]
fn fifty_runtimes_at_once() {
    const RUNTIMES: usize = 50;
    need_capture!();
    let Some([dotnet, program]) = newest_with_storm() else {
        return;
    };
    let script = format!("for i in $(seq {RUNTIMES}); do \"$@\" & done; wait");
    let options = [&["-noperf", "-clrevents", "exception"], HEARD].concat();
    let storm = [&*dotnet, &program, "--ticks", "20", "--heard", "600"];
    let command = [&["sh", "-c", &script, "sh"], &storm[..]].concat();
    let (directory, finished) = collect(&options, &command);
    let thrown: BTreeMap<u64, u64> = done(&finished)
        .iter()
        .map(|done| {
            (
                done["pid"].as_u64().unwrap(),
                done["thrown"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(thrown.len(), RUNTIMES, "{}", finished.stdout);
    let summary = summary(&directory);
    let reported: BTreeMap<u64, u64> = summary
        .quality
        .events
        .iter()
        .map(|events| {
            assert_eq!((events.dropped, &*events.truncated), (0, ""), "{events:?}");
            (events.pid as u64, events.events)
        })
        .collect();
    let missing: Vec<_> = thrown
        .keys()
        .filter(|pid| !reported.contains_key(pid))
        .collect();
    assert_eq!(missing, [&0; 0], "{:?}", summary.quality.notices);
    let raw = raw_runtime_events(&directory.path().join("x.trace.zip"));
    assert_eq!(raw[&EXCEPTION], thrown.values().sum::<u64>());
    let peak = summary.info.collector_peak_kib;
    assert!(peak < 64 << 10, "{peak} KiB");
}

/// The session starts before the program's own code, or shortly after: .NET 9 and 10 start faster
/// and may be in `Main`.
#[test]
fn a_command_is_observed_from_its_start() {
    /// On a busy machine a program may occasionally be faster.
    const ATTEMPTS: usize = 5;
    need_capture!();
    let program = need!(workloads::cpu());
    let utf16 =
        |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    for runtime in runtimes() {
        // `Main`, or the first method that it calls, a lambda.
        let method = utf16(if runtime.major() < 9 {
            "\0Main\0"
        } else {
            "\0<Main>"
        });
        let dotnet = runtime.dotnet.to_str().unwrap();
        let command = [dotnet, program.to_str().unwrap(), "--seconds", "0.2"];
        let is_told = || {
            let (directory, _) = collect(&["-format", "zip"], &command);
            let mut is_told = false;
            for_each_raw_event(&directory.path().join("x.trace.zip"), |event| {
                let is_jitting =
                    event.metadata.id == JITTING && !event.metadata.provider.contains("Rundown");
                is_told |= is_jitting
                    && event
                        .payload
                        .windows(method.len())
                        .any(|text| text == method);
            });
            is_told
        };
        assert!(
            (0..ATTEMPTS).any(|_| is_told()),
            "on .NET {}",
            runtime.version
        );
    }
}
