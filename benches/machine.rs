//! Time per record on a machine that is not at hand, 128 CPUs and 10 000 processes: `cargo bench --bench machine`.
//!
//! Synthesized from the recorded rings of `tests/rings`: 2 560 copies of the recorded program with its four processes, each
//! with pids of its own and on one of 64 pairs of CPUs, all at once. CPU numbers have holes. One pair of CPUs goes away in the
//! middle, another comes then: of its processes only the second half of the records is known.
#![allow(clippy::unwrap_used)]

#[path = "../tests/rings/corpus.rs"]
mod corpus;

use std::time::{Duration, Instant};

use perfcollect::capture::usage::peak_memory_kib;
use perfcollect::machine::Machine;
use perfcollect::perf::{Layout, Merge, Record, RecordSource, SampleRecord};
use perfcollect::trace::{CodeAddress, Nanos};
use perfcollect::unwind::{SampledProcess, Unwinder};

const PAIRS: usize = 64;
/// Copies of the program on each pair of CPUs.
const COPIES: usize = 40;
/// Ids that a copy takes.
const IDS: i32 = 16;
const GOES: usize = 0;
const COMES: usize = PAIRS - 1;
/// Like the kernel's rings, these are emptied in rounds.
const ROUND_NS: u64 = 25_000_000;

/// A ring that is made while it is read: the next recorded record, of one copy after the other.
struct Ring<'a> {
    records: &'a [&'a [u8]],
    pair: usize,
    cpu: u32,
    copy: usize,
    /// Records made so far; each is one nanosecond later for it, so that none has the time of another.
    count: u64,
    made: Vec<u8>,
}

impl<'a> Ring<'a> {
    fn new(records: &'a [&'a [u8]], index: usize) -> Self {
        let half = records.len() / 2;
        let pair = index / 2;
        let mut ring = Self {
            records: match pair {
                GOES => &records[..half],
                COMES => &records[half..],
                _ => records,
            },
            pair,
            cpu: index as u32 * 3 + 1,
            copy: 0,
            count: 0,
            made: Vec::new(),
        };
        ring.make();
        ring
    }

    fn make(&mut self) {
        self.made.clear();
        let Some(record) = self.records.first() else {
            return;
        };
        self.made.extend_from_slice(record);
        let shift = (self.pair * COPIES + self.copy) as i32 * IDS;
        corpus::map_ids(&mut self.made, |id| match id {
            corpus::FIRST_PID.. => id + shift,
            other => other,
        });
        corpus::move_to(&mut self.made, corpus::time(record) + self.count, self.cpu);
        self.count += 1;
    }
}

impl RecordSource for Ring<'_> {
    fn peek(&mut self) -> Option<&[u8]> {
        (!self.made.is_empty()).then_some(&self.made)
    }

    fn advance(&mut self) {
        self.copy += 1;
        if self.copy == COPIES {
            self.copy = 0;
            self.records = &self.records[1..];
        }
        self.make();
    }
}

/// What is done with a record.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Work {
    Make,
    Merge,
    Machine,
    Walk,
}

#[derive(Default)]
struct Seen {
    records: u64,
    samples: u64,
    late: u64,
    rows: usize,
}

#[inline(never)]
fn measured(recorded: &[Vec<&[u8]>], layout: &Layout, work: Work) -> Seen {
    let mut rings: Vec<_> = (0..2 * PAIRS)
        .map(|index| Ring::new(&recorded[index % 2], index))
        .collect();
    let mut seen = Seen::default();
    if work == Work::Make {
        for ring in &mut rings {
            while ring.peek().is_some() {
                seen.records += 1;
                ring.advance();
            }
        }
        return seen;
    }
    let (mut machine, mut unwinder) = (Machine::default(), Unwinder::default());
    let (mut merge, mut stack) = (Merge::default(), Vec::new());
    let times = || recorded.iter().flatten().map(|record| corpus::time(record));
    let (first, last) = (times().min().unwrap(), times().max().unwrap());
    let rounds = (first..last).step_by(ROUND_NS as usize);
    for horizon in rounds.chain([u64::MAX]) {
        merge.round(&mut rings, layout, Nanos(horizon), |time, bytes| {
            seen.records += 1;
            match layout.parse(bytes).unwrap() {
                Record::Sample(sample) => {
                    seen.samples += 1;
                    if work >= Work::Machine {
                        take(&mut machine, &mut unwinder, &mut stack, &sample, work);
                    }
                }
                record if work >= Work::Machine => machine.apply(time, &record),
                _ => {}
            }
        });
        machine.take_changes();
    }
    seen.late = merge.late();
    seen.rows = machine.process_rows().len();
    seen
}

fn take(
    machine: &mut Machine,
    unwinder: &mut Unwinder,
    stack: &mut Vec<CodeAddress>,
    sample: &SampleRecord<'_>,
    work: Work,
) {
    let (_, process) = machine.sampled(sample.pid, sample.tid);
    let maps = machine.maps(sample.pid).unwrap();
    if work == Work::Walk {
        let host = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps,
            files: machine.files(),
            is_preview: false,
        };
        unwinder.walk(sample, host, stack);
    }
}

fn main() {
    let layout = Layout::new(corpus::SAMPLE_TYPE, corpus::USER_REGS).unwrap();
    let rings = corpus::rings();
    let recorded: Vec<Vec<_>> = rings
        .iter()
        .map(|ring| corpus::records(ring).collect())
        .collect();
    let mut before = Duration::ZERO;
    for (what, work) in [
        ("making the records (not perfcollect's)", Work::Make),
        ("merge and parse", Work::Merge),
        ("processes, threads, mappings", Work::Machine),
        ("walk", Work::Walk),
    ] {
        let begin = Instant::now();
        let seen = measured(&recorded, &layout, work);
        let took = begin.elapsed();
        println!(
            "{what}: {:.0} ns per record; {} records, {} samples, {} late, {} processes",
            took.saturating_sub(before).as_nanos() as f64 / seen.records as f64,
            seen.records,
            seen.samples,
            seen.late,
            seen.rows,
        );
        before = took;
    }
    println!("peak memory: {} MiB", peak_memory_kib() / 1024);
}
