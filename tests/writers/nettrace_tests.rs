//! Reads `NAME.nettrace` with perfcollect's reader and with PerfView's.

use std::collections::{BTreeMap, BTreeSet};

use perfcollect::nettrace::{Event, Reader};
use perfcollect::output::nettrace;
use perfcollect::output::summary::Summary;
use perfcollect::trace::{StackId, Trace};

use crate::perfview_tests::{cpu_view, methods};
use crate::support::expect_totals;
use crate::{Written, build};

fn bytes(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    nettrace::write(trace, &mut bytes).unwrap();
    bytes
}

fn written(trace: &Trace) -> Written {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.nettrace");
    std::fs::write(&path, bytes(trace)).unwrap();
    Written {
        path,
        summary: Summary::new(trace),
        _dir: dir,
    }
}

fn for_each(bytes: &[u8], mut take: impl FnMut(&Event<'_>)) {
    let mut reader = Reader::open(bytes).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        take(&event);
    }
    assert_eq!(reader.losses(), Default::default());
}

fn varuint(payload: &mut &[u8]) -> u64 {
    let mut value = 0;
    for (place, byte) in payload.iter().enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            *payload = &payload[place + 1..];
            break;
        }
    }
    value
}

fn text(payload: &mut &[u8]) -> String {
    let (length, rest) = payload.split_first_chunk().unwrap();
    let (text, rest) = rest.split_at(u16::from_le_bytes(*length).into());
    *payload = rest;
    std::str::from_utf8(text).unwrap().to_owned()
}

/// A sample as read back: time, process, thread, milliseconds, functions with the leaf first.
type Row = (u64, u64, u64, u64, Vec<String>);

fn samples(bytes: &[u8]) -> Vec<Row> {
    let mut symbols: BTreeMap<(u64, u64), (u64, String)> = BTreeMap::new();
    let mut mappings: BTreeMap<(u64, u64), (u64, u64)> = BTreeMap::new();
    let mut rows = Vec::new();
    for_each(bytes, |event| {
        let process = event.thread.process.unwrap();
        let payload = &mut &*event.payload;
        match &*event.metadata.name {
            "ProcessMapping" => {
                let id = varuint(payload);
                mappings.insert((process, id), (varuint(payload), varuint(payload)));
            }
            "ProcessSymbol" => {
                let (_, mapping) = (varuint(payload), varuint(payload));
                let (start, last) = (varuint(payload), varuint(payload));
                let (first_byte, end) = mappings[&(process, mapping)];
                assert!(first_byte <= start && start < last && last < end);
                symbols.insert((process, start), (last, text(payload)));
            }
            "cpu" => {
                let functions = event.stack.addresses().map(|address| {
                    let until = (process, address);
                    let (_, (last, name)) = symbols.range(..=until).next_back().unwrap();
                    assert!(address < *last);
                    name.clone()
                });
                let functions = functions.collect();
                let (thread, weight) = (event.thread.id.unwrap(), varuint(payload));
                rows.push((event.time.0, process, thread, weight, functions));
            }
            _ => {}
        }
    });
    rows
}

fn expected(trace: &Trace) -> Vec<Row> {
    let names = |stack: StackId| {
        let frames = trace.stacks.leaf_first(stack);
        let names = frames.flat_map(|frame| {
            let offset = trace.frames[frame.index()].offset;
            trace.functions_leaf_first(frame).map(move |function| {
                let function = &trace.functions[function.index()];
                let address = function.start.unwrap_or(offset);
                let name = function.name.as_deref();
                let name = name.map_or_else(|| format!("{address:#x}"), str::to_owned);
                name.replace("[truncated]", "{truncated}")
            })
        });
        names.collect()
    };
    let rows = trace.samples.iter().map(|sample| {
        let thread = &trace.threads[sample.thread.index()];
        (
            sample.time.0,
            trace.process_of(sample.thread).pid.0 as u64,
            thread.tid.0 as u64,
            sample.weight.0 / build::MS,
            names(sample.stack),
        )
    });
    rows.collect()
}

#[test]
fn reader_returns_every_sample() {
    let trace = build::realistic();
    assert_eq!(samples(&bytes(&trace)), expected(&trace));
}

/// Stacks are declared again after each sequence point.
#[test]
#[ignore = "slow"]
fn reader_returns_samples_of_many_chunks() {
    let mut trace = build::realistic();
    let once: Vec<_> = trace.samples.iter().collect();
    let length = once.last().unwrap().time.0 - build::START + build::MS;
    for round in 1..1200 {
        for sample in &once {
            let mut sample = *sample;
            sample.time.0 += round * length;
            trace.samples.push(sample);
        }
    }
    let bytes = bytes(&trace);
    assert!(bytes.len() > 2 << 20);
    assert!(samples(&bytes) == expected(&trace));
}

/// The total of a thread is accurate to half a millisecond, for each sampling period.
#[test]
fn keeps_total_cpu_time_of_threads() {
    for period in [50_000, 333_333, 1_001_001, 7_700_000] {
        let mut trace = build::realistic();
        let all: Vec<_> = trace.samples.iter().collect();
        trace.samples = Default::default();
        let mut totals: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
        for mut sample in all {
            sample.weight.0 = period;
            trace.samples.push(sample);
            let tid = trace.threads[sample.thread.index()].tid.0 as u64;
            totals.entry(tid).or_default().0 += period;
        }
        for (_, _, thread, weight, _) in samples(&bytes(&trace)) {
            totals.entry(thread).or_default().1 += weight * build::MS;
        }
        for (sampled, written) in totals.values() {
            assert!(
                sampled.abs_diff(*written) <= build::MS / 2,
                "{sampled} {written}"
            );
        }
    }
}

#[test]
fn perfview_counts_match_summary() {
    let trace = build::realistic();
    let written = written(&trace);
    let Some(mut cpu) = cpu_view(&written.path) else {
        return;
    };
    // PerfView reports exactly the truncated stacks as broken.
    let is_truncated = |row: &&Row| row.4.last().is_some_and(|root| root == "{truncated}");
    let truncated = expected(&trace).iter().filter(is_truncated).count();
    let broken = cpu["unknown"]["any"]["broken"].take();
    assert_eq!(broken, truncated as u64);
    cpu["unknown"]["any"]["broken"] = 0.into();
    expect_totals(&cpu, &written.summary);
    let methods = methods(&cpu);
    for method in &written.summary.methods {
        // PerfView shows modules of this format in lower case.
        let shown = format!("{}!{}", method.module.to_lowercase(), method.name);
        let counts = (method.self_samples, method.total_samples);
        assert_eq!(methods.get(&shown), Some(&counts), "{shown}");
    }
    // The only other rows are the markers of truncated stacks: perfcollect's and PerfView's.
    let markers = ["perfcollect!{truncated}", "BROKEN"];
    assert!(markers.iter().all(|marker| methods.contains_key(*marker)));
    assert_eq!(methods.len(), written.summary.methods.len() + markers.len());
}

#[test]
fn perfview_reads_problematic_names() {
    let trace = build::hostile();
    let written = written(&trace);
    let Some(cpu) = cpu_view(&written.path) else {
        return;
    };
    assert_eq!(cpu["samples"], trace.samples.len() as u64);
    let methods = methods(&cpu);
    for (_, _, shown) in build::HOSTILE_FUNCTIONS {
        assert!(methods.contains_key(shown), "{shown}: {methods:?}");
    }
    let processes = cpu["processes"].as_array().unwrap();
    let shown: BTreeSet<&str> = processes
        .iter()
        .map(|process| process["process"].as_str().unwrap())
        .collect();
    for (_, name) in build::HOSTILE_COMMS {
        assert!(
            shown.iter().any(|shown| {
                let name = name.replace(' ', "_");
                shown.starts_with(&format!("Process32 {name} ("))
            }),
            "{name}: {shown:?}"
        );
    }
}
