//! Reads event streams of real runtimes and compares the result with that of two other readers.
//!
//! The streams are complete, truncated, or rewritten in the newest version of the format.
#![allow(clippy::unwrap_used)]

#[macro_use]
mod support;
#[path = "nettrace/version6.rs"]
mod version6;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::PathBuf;
use std::process::Command;

use perfcollect::nettrace::{
    EventMetadata, Losses, NettraceError, NettraceErrorKind, Reader, Value,
};
use serde_json::Value as Json;
use support::Missing;

/// A recorded stream and the result of another reader.
struct Fixture {
    stream: Vec<u8>,
    oracle: Json,
}

fn fixtures() -> Vec<Fixture> {
    let directory = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/fixtures/nettrace"
    ));
    let fixture = |name: &str| {
        let oracle = std::fs::read(directory.join(format!("{name}.oracle.json"))).ok()?;
        let unpacked = Command::new("xz")
            .arg("-dc")
            .arg(directory.join(format!("{name}.nettrace.xz")))
            .output()
            .ok()?;
        Some(Fixture {
            stream: unpacked.stdout,
            oracle: serde_json::from_slice(&oracle).unwrap(),
        })
    };
    ["small-net8", "small-net10"]
        .into_iter()
        .filter_map(fixture)
        .collect()
}

macro_rules! need_fixtures {
    () => {{
        let fixtures = fixtures();
        if fixtures.is_empty() {
            skip!(Missing::Shared("fixtures/nettrace"));
        }
        fixtures
    }};
}

/// Totals of a stream.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    /// Event counts by provider, then by `id vVERSION`, the key of the other reader.
    events: BTreeMap<String, BTreeMap<String, u64>>,
    event_count: u64,
    payload_bytes: u64,
    capture_threads: BTreeSet<u64>,
    stack_addresses: u64,
    losses: Losses,
}

impl Contents {
    fn add(&mut self, kind: &EventMetadata) {
        let event = format!("{:03} v{}", kind.id, kind.version);
        let provider = self.events.entry(kind.provider.clone()).or_default();
        *provider.entry(event).or_default() += 1;
    }
}

fn read(stream: impl Read) -> (Contents, Option<NettraceError>) {
    let mut contents = Contents::default();
    let mut reader = match Reader::open(stream) {
        Ok(reader) => reader,
        Err(error) => return (contents, Some(error)),
    };
    let error = loop {
        match reader.next_event() {
            Ok(Some(event)) => {
                contents.add(event.metadata);
                contents.event_count += 1;
                contents.payload_bytes += event.payload.len() as u64;
                contents.capture_threads.insert(event.capture_thread);
                contents.stack_addresses += event.stack.addresses().count() as u64;
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(
        reader.next_event().unwrap().is_none(),
        "an event after the end"
    );
    contents.losses = reader.losses();
    (contents, error)
}

#[test]
fn reads_the_same_events_as_other_readers() {
    for Fixture { stream, oracle } in need_fixtures!() {
        let (contents, error) = read(stream.as_slice());
        assert!(error.is_none(), "{error:?}");
        let blocks = &oracle["blocks"];
        let events = serde_json::to_value(&contents.events).unwrap();
        assert_eq!(events, blocks["events_by_provider"]);
        assert_eq!(contents.event_count, blocks["events"]);
        assert_eq!(contents.payload_bytes, blocks["payload_bytes"]);
        let threads = contents.capture_threads.len() as u64;
        assert_eq!(threads, blocks["capture_threads"]);
        assert_eq!(contents.losses, Losses::default());

        let info = Reader::open(stream.as_slice()).unwrap().info().clone();
        let trace = &blocks["trace_object"];
        assert_eq!(info.version, 4);
        assert_eq!(
            serde_json::to_value(info.start_time).unwrap(),
            trace["systemtime"]
        );
        assert_eq!(info.start_ticks, trace["sync_time"]);
        assert_eq!(info.ticks_per_second, trace["frequency"]);
        assert_eq!(info.pointer_bytes, trace["pointer_size"]);
        assert_eq!(info.process, trace["pid"].as_u64().map(|pid| pid as u32));
    }
}

/// Source that returns one byte at a time, as a slow sender may.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let len = buffer.len().min(1);
        self.0.read(&mut buffer[..len])
    }
}

#[test]
fn reads_a_stream_byte_by_byte() {
    for Fixture { stream, .. } in need_fixtures!() {
        let (slow, error) = read(Slow(&stream));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(slow, read(stream.as_slice()).0);
    }
}

#[test]
fn returns_all_complete_events_of_a_truncated_stream() {
    const STEPS: usize = 80;
    for Fixture { stream, oracle } in need_fixtures!() {
        let mut counts = BTreeSet::new();
        for len in (0..STEPS)
            .map(|n| stream.len() / STEPS * n)
            .chain([stream.len() - 1])
        {
            let (contents, error) = read(&stream[..len]);
            let error = error.unwrap_or_else(|| panic!("truncated to {len}: no error"));
            assert!(
                matches!(error.kind, NettraceErrorKind::Truncated),
                "{error}"
            );
            assert!(error.offset <= len as u64, "{error}, truncated to {len}");
            assert!(
                counts
                    .last()
                    .is_none_or(|&last| contents.event_count >= last)
            );
            counts.insert(contents.event_count);
            // Events after the truncation do not count as lost.
            assert_eq!(contents.losses, Losses::default(), "truncated to {len}");
        }
        // Only the end marker is missing.
        assert_eq!(counts.last(), oracle["blocks"]["events"].as_u64().as_ref());
        // The stream has 37 event blocks. More counts show that partial blocks return events too.
        assert!(counts.len() > 50, "{}", counts.len());
    }
}

#[test]
fn counts_dropped_events() {
    for Fixture { stream, .. } in need_fixtures!() {
        let original = read(stream.as_slice()).0;
        let rewritten = version6::write(&stream, |index| index % 10 != 3);
        let (contents, error) = read(rewritten.as_slice());
        assert!(error.is_none(), "{error:?}");
        let missing = original.event_count - contents.event_count;
        assert!(missing > 3000);
        assert_eq!(contents.losses.dropped_events, missing);
    }
}

#[test]
fn reads_the_same_events_from_version_6() {
    for Fixture { stream, .. } in need_fixtures!() {
        let rewritten = version6::write(&stream, |_| true);
        let (contents, error) = read(rewritten.as_slice());
        assert!(error.is_none(), "{error:?}");
        let mut original = read(stream.as_slice()).0;
        // The rewritten stream has thread indexes, which count from 1.
        original.capture_threads = (1..=original.capture_threads.len() as u64).collect();
        assert_eq!(contents, original);
        let mut reader = Reader::open(rewritten.as_slice()).unwrap();
        let (process, thread) = (reader.info().process, {
            let event = reader.next_event().unwrap().unwrap();
            event.thread
        });
        assert_eq!(thread.process, process.map(u64::from));
        assert!(thread.id.is_some_and(|id| id > 1));
    }
}

/// The program's own events are `Tick(int, string)` with consecutive integers. The runtime's
/// counters are nested records.
#[test]
fn parses_payloads_by_their_fields() {
    for Fixture { stream, oracle } in need_fixtures!() {
        let expected_ticks = &oracle["blocks"]["events_by_provider"]["Dtload-Source"]["001 v0"];
        for stream in [version6::write(&stream, |_| true), stream] {
            let mut reader = Reader::open(stream.as_slice()).unwrap();
            let (mut ticks, mut counters) = (0, BTreeSet::new());
            while let Some(event) = reader.next_event().unwrap() {
                let fields = event.metadata.fields.as_deref().unwrap();
                let value = Value::parse(fields, event.payload).unwrap();
                match (event.metadata.provider.as_str(), value) {
                    ("Dtload-Source", Value::Record(values)) => {
                        assert!(
                            matches!(
                                values.as_slice(),
                                [(_, Value::Signed(index)), (_, Value::Text(text))]
                                    if *index == ticks && !text.is_empty()
                            ),
                            "{values:?}"
                        );
                        ticks += 1;
                    }
                    ("System.Runtime", Value::Record(values)) => {
                        let name = values[0]
                            .1
                            .get("Payload")
                            .and_then(|counter| counter.get("Name"));
                        let Some(Value::Text(name)) = name else {
                            panic!("{values:?}")
                        };
                        counters.insert(name.clone());
                    }
                    _ => {}
                }
            }
            assert_eq!(ticks, expected_ticks.as_i64().unwrap());
            for expected in ["cpu-usage", "gc-heap-size", "working-set", "alloc-rate"] {
                assert!(counters.contains(expected), "{counters:?}");
            }
        }
    }
}

/// The sorted flags are correct, and frequent enough to sort the events with a small buffer.
#[test]
fn events_after_a_sorted_event_are_not_older() {
    for Fixture { stream, .. } in need_fixtures!() {
        let mut reader = Reader::open(stream.as_slice()).unwrap();
        let (mut sorted, mut newest, mut inversions) = (0, 0, 0);
        let (mut buffered, mut max_buffered) = (0, 0);
        while let Some(event) = reader.next_event().unwrap() {
            let time = event.time.0;
            assert!(time >= sorted, "{time} after {sorted}");
            inversions += u64::from(time < newest);
            newest = newest.max(time);
            buffered += event.payload.len();
            if event.is_sorted {
                sorted = time;
                buffered = 0;
            }
            max_buffered = max_buffered.max(buffered);
        }
        println!("{inversions} inversions, at most {max_buffered} bytes to buffer");
        assert!(
            inversions > 0 && max_buffered > 0 && max_buffered < 2 << 20,
            "{max_buffered}"
        );
    }
}
