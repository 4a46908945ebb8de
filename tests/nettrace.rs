//! Event streams of real runtimes, read as two other readers have read them: whole, cut off, and rewritten in the newest
//! version of the format.
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

/// A recorded stream, and what another reader says of it.
struct Fixture {
    stream: Vec<u8>,
    oracle: Json,
}

fn fixtures() -> Vec<Fixture> {
    let folder = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shared/fixtures/nettrace"
    ));
    let fixture = |name: &str| {
        let oracle = std::fs::read(folder.join(format!("{name}.oracle.json"))).ok()?;
        let unpacked = Command::new("xz")
            .arg("-dc")
            .arg(folder.join(format!("{name}.nettrace.xz")))
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

/// What is in a stream.
#[derive(Debug, Default, PartialEq)]
struct Contents {
    /// By provider, then `id vVERSION` as the oracle spells it.
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
        let of_provider = self.events.entry(kind.provider.clone()).or_default();
        *of_provider.entry(event).or_default() += 1;
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
                contents.add(event.kind);
                contents.event_count += 1;
                contents.payload_bytes += event.payload.len() as u64;
                contents.capture_threads.insert(event.capture_thread);
                contents.stack_addresses += event.stack.addresses().count() as u64;
            }
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    assert!(reader.next_event().unwrap().is_none(), "the end is the end");
    contents.losses = reader.losses();
    (contents, error)
}

#[test]
fn whole_streams_hold_what_other_readers_found() {
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

        let info = *Reader::open(stream.as_slice()).unwrap().info();
        let trace = &blocks["trace_object"];
        assert_eq!(info.version, 4);
        assert_eq!(
            serde_json::to_value(info.began).unwrap(),
            trace["systemtime"]
        );
        assert_eq!(info.began_ticks, trace["sync_time"]);
        assert_eq!(info.ticks_per_second, trace["frequency"]);
        assert_eq!(info.pointer_bytes, trace["pointer_size"]);
        assert_eq!(info.process, trace["pid"].as_u64().map(|pid| pid as u32));
    }
}

/// Gives one byte at a time, as a slow sender may.
struct Slow<'a>(&'a [u8]);

impl Read for Slow<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let most = buffer.len().min(1);
        self.0.read(&mut buffer[..most])
    }
}

#[test]
fn pieces_make_no_difference() {
    for Fixture { stream, .. } in need_fixtures!() {
        let (slow, error) = read(Slow(&stream));
        assert!(error.is_none(), "{error:?}");
        assert_eq!(slow, read(stream.as_slice()).0);
    }
}

#[test]
fn a_stream_that_is_cut_off_gives_all_before() {
    const CUTS: usize = 80;
    for Fixture { stream, oracle } in need_fixtures!() {
        let mut counts = BTreeSet::new();
        for cut in (0..CUTS)
            .map(|n| stream.len() / CUTS * n)
            .chain([stream.len() - 1])
        {
            let (contents, error) = read(&stream[..cut]);
            let error = error.unwrap_or_else(|| panic!("cut at {cut}: no error"));
            assert!(
                matches!(error.problem, NettraceErrorKind::Truncated),
                "{error}"
            );
            assert!(error.offset <= cut as u64, "{error} of {cut}");
            assert!(
                counts
                    .last()
                    .is_none_or(|&last| contents.event_count >= last)
            );
            counts.insert(contents.event_count);
            // Nothing is taken for lost that merely has not come yet.
            assert_eq!(contents.losses, Losses::default(), "cut at {cut}");
        }
        // Only the end mark is missing.
        assert_eq!(counts.last(), oracle["blocks"]["events"].as_u64().as_ref());
        // There are 37 blocks with events: those in a part of a block came too.
        assert!(counts.len() > 50, "{}", counts.len());
    }
}

#[test]
fn dropped_events_are_counted() {
    for Fixture { stream, .. } in need_fixtures!() {
        let whole = read(stream.as_slice()).0;
        let rewritten = version6::write(&stream, |number| number % 10 != 3);
        let (contents, error) = read(rewritten.as_slice());
        assert!(error.is_none(), "{error:?}");
        let missing = whole.event_count - contents.event_count;
        assert!(missing > 3000);
        assert_eq!(contents.losses.dropped_events, missing);
    }
}

#[test]
fn version_6_holds_the_same() {
    for Fixture { stream, .. } in need_fixtures!() {
        let rewritten = version6::write(&stream, |_| true);
        let (contents, error) = read(rewritten.as_slice());
        assert!(error.is_none(), "{error:?}");
        let mut whole = read(stream.as_slice()).0;
        // Threads are numbered from 1 there.
        whole.capture_threads = (1..=whole.capture_threads.len() as u64).collect();
        assert_eq!(contents, whole);
        let mut reader = Reader::open(rewritten.as_slice()).unwrap();
        let (process, thread) = (reader.info().process, {
            let event = reader.next_event().unwrap().unwrap();
            event.thread
        });
        assert_eq!(thread.process, process.map(u64::from));
        assert!(thread.id.is_some_and(|id| id > 1));
    }
}

/// The program's own events are `Tick(int, string)`, numbered; the runtime's counters are records in records.
#[test]
fn payloads_have_the_values_of_their_fields() {
    for Fixture { stream, oracle } in need_fixtures!() {
        let own = &oracle["blocks"]["events_by_provider"]["Dtload-Source"]["001 v0"];
        for stream in [version6::write(&stream, |_| true), stream] {
            let mut reader = Reader::open(stream.as_slice()).unwrap();
            let (mut ticks, mut counters) = (0, BTreeSet::new());
            while let Some(event) = reader.next_event().unwrap() {
                let fields = event.kind.fields.as_deref().unwrap();
                let value = Value::parse(fields, event.payload).unwrap();
                match (event.kind.provider.as_str(), value) {
                    ("Dtload-Source", Value::Record(values)) => {
                        assert!(
                            matches!(
                                values.as_slice(),
                                [(_, Value::Signed(number)), (_, Value::Text(text))]
                                    if *number == ticks && !text.is_empty()
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
            assert_eq!(ticks, own.as_i64().unwrap());
            for expected in ["cpu-usage", "gc-heap-size", "working-set", "alloc-rate"] {
                assert!(counters.contains(expected), "{counters:?}");
            }
        }
    }
}

/// What the sender says of the order is true, and says enough: nobody has to hold back much.
#[test]
fn no_event_is_older_than_a_sorted_one_before_it() {
    for Fixture { stream, .. } in need_fixtures!() {
        let mut reader = Reader::open(stream.as_slice()).unwrap();
        let (mut sorted, mut newest, mut inversions) = (0, 0, 0);
        let (mut held, mut most_held) = (0, 0);
        while let Some(event) = reader.next_event().unwrap() {
            let time = event.time.0;
            assert!(time >= sorted, "{time} after {sorted}");
            inversions += u64::from(time < newest);
            newest = newest.max(time);
            held += event.payload.len();
            if event.is_sorted {
                sorted = time;
                held = 0;
            }
            most_held = most_held.max(held);
        }
        println!("{inversions} inversions, {most_held} bytes held back at most");
        assert!(
            inversions > 0 && most_held > 0 && most_held < 2 << 20,
            "{most_held}"
        );
    }
}
