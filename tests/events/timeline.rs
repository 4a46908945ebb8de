//! Samples and events of `NAME.nettrace` on one timeline.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use perfcollect::nettrace::{Activity, Event, Reader};

use crate::readers::{JITTING, METHOD_LOADED, RUNTIME_PROVIDER, is_of_runtime};
use crate::support::events::for_each_raw_event;

const MILLISECOND: u64 = 1_000_000;

fn for_each(nettrace: &Path, mut take: impl FnMut(&Event<'_>)) {
    let bytes = std::fs::read(nettrace).unwrap();
    let mut reader = Reader::open(&*bytes).unwrap();
    while let Some(event) = reader.next_event().unwrap() {
        take(&event);
    }
}

fn varuint(payload: &mut &[u8]) -> u64 {
    let mut value = 0;
    for place in 0.. {
        let (byte, rest) = payload.split_first().unwrap();
        *payload = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            break;
        }
    }
    value
}

/// Returns the addresses of a mapping, if it is of this file.
fn mapped(mut payload: &[u8], file: &str) -> Option<Range<u64>> {
    let [_, start, end, _] = [(); 4].map(|()| varuint(&mut payload));
    let name = &payload[2..];
    let length = usize::from(u16::from_le_bytes([payload[0], payload[1]]));
    name[..length]
        .ends_with(file.as_bytes())
        .then_some(start..end)
}

/// Returns the threads with events of this id, and those with samples.
pub(crate) fn threads_in(nettrace: &Path, id: u32) -> (BTreeSet<u64>, BTreeSet<u64>) {
    let (mut events, mut sampled) = (BTreeSet::new(), BTreeSet::new());
    for_each(nettrace, |event| {
        if is_of_runtime(event, id) {
            events.extend(event.thread.id);
        } else if event.metadata.name == "cpu" {
            sampled.extend(event.thread.id);
        }
    });
    (events, sampled)
}

/// Fails unless a thread's samples in the JIT compiler are within its compilations, by the events
/// and with a tolerance of 1 ms. Only the compiler's own startup is in none.
#[track_caller]
pub(crate) fn expect_samples_line_up(nettrace: &Path) {
    let mut compiler: Vec<Range<u64>> = Vec::new();
    // By thread: the times of its compilations, and of its samples in the compiler.
    let mut compiling: BTreeMap<Option<u64>, Vec<(u64, Range<u64>)>> = BTreeMap::new();
    let (mut samples, mut last_event) = (Vec::new(), 0);
    for_each(nettrace, |event| {
        let (thread, time) = (event.thread.id, event.time.0);
        if event.metadata.provider == RUNTIME_PROVIDER {
            last_event = time;
        }
        let method = || u64::from_le_bytes(event.payload[..8].try_into().unwrap());
        if event.metadata.name == "ProcessMapping" {
            compiler.extend(mapped(event.payload, "libclrjit.so"));
        } else if event.metadata.name == "cpu" {
            let in_compiler = |address| compiler.iter().any(|range| range.contains(&address));
            if event.stack.addresses().any(in_compiler) {
                samples.push((thread, time));
            }
        } else if is_of_runtime(event, JITTING) {
            let of_thread = compiling.entry(thread).or_default();
            of_thread.push((method(), time..u64::MAX));
        } else if is_of_runtime(event, METHOD_LOADED) {
            let of_thread = compiling.entry(thread).or_default().iter_mut().rev();
            if let Some((_, range)) = of_thread.into_iter().find(|(id, _)| *id == method()) {
                range.end = range.end.min(time);
            }
        }
    });
    // Compilations that were running when the events started or ended are not reported.
    samples.retain(|(thread, time)| {
        let of_thread = compiling.get(thread).and_then(|ranges| ranges.first());
        *time <= last_event && of_thread.is_none_or(|(_, range)| *time >= range.start)
    });
    let outside_if_later_by = |shift: i64| {
        let is_outside = |(thread, time): &&(Option<u64>, u64)| {
            let ranges = compiling.get(thread).into_iter().flatten();
            let mut wider = ranges
                .map(|(_, range)| range.start - MILLISECOND..range.end.saturating_add(MILLISECOND));
            !wider.any(|range| range.contains(&time.saturating_add_signed(shift)))
        };
        samples.iter().filter(is_outside).count()
    };
    // A thread may lose its CPU between the reported moment and the event, on a busy system often.
    let outside = outside_if_later_by(0);
    let shifted = [-5, 5].map(|ms| outside_if_later_by(ms * MILLISECOND as i64));
    println!(
        "{outside} of {} outside, {shifted:?} with another clock",
        samples.len()
    );
    assert!(samples.len() >= 20 && shifted.iter().all(|other| outside * 3 < *other));
}

/// Fails unless both files have the same times and activities for the events of this id. Returns
/// how many have an activity.
#[track_caller]
pub(crate) fn expect_same_details(trace: &Path, nettrace: &Path, id: u32) -> usize {
    let (mut raw, mut merged): (Vec<Details>, Vec<Details>) = (Vec::new(), Vec::new());
    for_each_raw_event(trace, |event| raw.extend(details(event, id)));
    for_each(nettrace, |event| merged.extend(details(event, id)));
    for list in [&mut raw, &mut merged] {
        list.sort_unstable();
        let first = list.first().unwrap().0;
        // They count from different times.
        list.iter_mut().for_each(|(time, ..)| *time -= first);
    }
    assert!(raw == merged);
    let is_part = |(_, id, _): &&Details| *id != [0; 16];
    raw.iter().filter(is_part).count()
}

/// Time, activity and related activity.
type Details = (u64, [u8; 16], [u8; 16]);

fn details(event: &Event<'_>, number: u32) -> Option<Details> {
    let Activity { id, related } = event.activity;
    // Process information is in the records of the process.
    let is_of_process = ["Universal", "Microsoft-DotNETCore-EventPipe"]
        .iter()
        .any(|provider| event.metadata.provider.starts_with(provider));
    (event.metadata.id == number && !is_of_process).then_some((event.time.0, id, related))
}
