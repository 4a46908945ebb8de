//! Time per record on a simulated system with 128 CPUs and 10 000 processes:
//! `cargo bench --bench machine`.
//!
//! The records are synthesized from the recorded ring buffers of `tests/rings`: 2 560 copies of the
//! recorded program with its four processes run concurrently. Each copy has separate pids and runs
//! on one of 64 pairs of CPUs. CPU ids have gaps. One pair of CPUs goes offline in the middle, and
//! another comes online. The online pair contributes only the second half of its records.
#![allow(clippy::unwrap_used)]

#[path = "../tests/rings/corpus.rs"]
mod corpus;

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use perfcollect::capture::usage::peak_memory_kib;
use perfcollect::machine::Machine;
use perfcollect::perf::{Layout, Merge, Record, RecordSource, SampleRecord};
use perfcollect::trace::{CodeAddress, Nanos};
use perfcollect::unwind::{Epoch, SampledProcess, Unwinder};

/// Pairs of CPUs.
const PAIRS: usize = 64;
/// Copies of the program on each pair of CPUs.
const COPIES: usize = 40;
/// Process and thread ids reserved for each copy.
const IDS: i32 = 16;
/// Pair of CPUs that goes offline.
const OFFLINE_PAIR: usize = 0;
/// Pair of CPUs that comes online.
const ONLINE_PAIR: usize = PAIRS - 1;
/// Interval of the rounds that drain the ring buffers.
const ROUND_NS: u64 = 25_000_000;

/// A ring buffer synthesized while it is read. Repeats each recorded record for every copy.
struct SyntheticRing<'a> {
    records: &'a [&'a [u8]],
    pair: usize,
    cpu: u32,
    copy: usize,
    /// Number of records so far. It is added to the time in nanoseconds, so that all times differ.
    count: u64,
    record: Vec<u8>,
}

impl<'a> SyntheticRing<'a> {
    fn new(records: &'a [&'a [u8]], index: usize) -> Self {
        let half = records.len() / 2;
        let pair = index / 2;
        let mut ring = Self {
            records: match pair {
                OFFLINE_PAIR => &records[..half],
                ONLINE_PAIR => &records[half..],
                _ => records,
            },
            pair,
            cpu: index as u32 * 3 + 1,
            copy: 0,
            count: 0,
            record: Vec::new(),
        };
        ring.synthesize();
        ring
    }

    fn synthesize(&mut self) {
        self.record.clear();
        let Some(record) = self.records.first() else {
            return;
        };
        self.record.extend_from_slice(record);
        let shift = (self.pair * COPIES + self.copy) as i32 * IDS;
        corpus::map_ids(&mut self.record, |id| match id {
            corpus::FIRST_PID.. => id + shift,
            id => id,
        });
        corpus::move_to(
            &mut self.record,
            corpus::time(record) + self.count,
            self.cpu,
        );
        self.count += 1;
    }
}

impl RecordSource for SyntheticRing<'_> {
    fn peek(&mut self) -> Option<&[u8]> {
        (!self.record.is_empty()).then_some(&self.record)
    }

    fn advance(&mut self) {
        self.copy += 1;
        if self.copy == COPIES {
            self.copy = 0;
            self.records = &self.records[1..];
        }
        self.synthesize();
    }
}

/// Stages of processing a record. Each includes the previous ones.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Stage {
    Synthesize,
    Merge,
    Machine,
    Unwind,
}

#[derive(Default)]
struct Totals {
    records: u64,
    samples: u64,
    late: u64,
    processes: usize,
}

#[inline(never)]
fn measured(recorded: &[Vec<&[u8]>], layout: &Layout, stage: Stage) -> Totals {
    let mut rings: Vec<_> = (0..2 * PAIRS)
        .map(|index| SyntheticRing::new(&recorded[index % 2], index))
        .collect();
    let mut totals = Totals::default();
    if stage == Stage::Synthesize {
        for ring in &mut rings {
            while ring.peek().is_some() {
                totals.records += 1;
                ring.advance();
            }
        }
        return totals;
    }
    let (mut machine, mut unwinder) = (Machine::default(), Unwinder::default());
    let (mut merge, mut stack) = (Merge::default(), Vec::new());
    let times = || recorded.iter().flatten().map(|record| corpus::time(record));
    let (first, last) = (times().min().unwrap(), times().max().unwrap());
    let rounds = (first..last).step_by(ROUND_NS as usize);
    for flush_limit in rounds.chain([u64::MAX]) {
        merge.round(&mut rings, layout, Nanos(flush_limit), |time, bytes| {
            totals.records += 1;
            match layout.parse(bytes).unwrap() {
                Record::Sample(sample) => {
                    totals.samples += 1;
                    if stage >= Stage::Machine {
                        process_sample(&mut machine, &mut unwinder, &mut stack, &sample, stage);
                    }
                }
                record if stage >= Stage::Machine => machine.apply(time, &record),
                _ => {}
            }
            ControlFlow::Continue(())
        });
        machine.take_new_rows(|_| ());
    }
    totals.late = merge.late();
    totals.processes = machine.known_pids().count();
    totals
}

fn process_sample(
    machine: &mut Machine,
    unwinder: &mut Unwinder,
    stack: &mut Vec<CodeAddress>,
    sample: &SampleRecord<'_>,
    stage: Stage,
) {
    let (_, process) = machine.sampled(sample.pid, sample.tid);
    let maps = machine.maps(sample.pid).unwrap();
    if stage == Stage::Unwind {
        let process = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            epoch: Epoch::of(sample.time),
            maps,
            files: machine.files(),
            is_preview: false,
        };
        unwinder.walk(sample, process, stack);
    }
}

fn main() {
    let layout = Layout::new(corpus::SAMPLE_TYPE, corpus::USER_REGS).unwrap();
    let rings = corpus::rings();
    let recorded: Vec<Vec<_>> = rings
        .iter()
        .map(|ring| corpus::records(ring).collect())
        .collect();
    let mut previous = Duration::ZERO;
    for (name, stage) in [
        (
            "synthesis of records (benchmark overhead)",
            Stage::Synthesize,
        ),
        ("merge and parse", Stage::Merge),
        ("processes, threads, mappings", Stage::Machine),
        ("unwind", Stage::Unwind),
    ] {
        let start = Instant::now();
        let totals = measured(&recorded, &layout, stage);
        let elapsed = start.elapsed();
        println!(
            "{name}: {:.0} ns per record; {} records, {} samples, {} late, {} processes",
            elapsed.saturating_sub(previous).as_nanos() as f64 / totals.records as f64,
            totals.records,
            totals.samples,
            totals.late,
            totals.processes,
        );
        previous = elapsed;
    }
    println!("peak memory: {} MiB", peak_memory_kib() / 1024);
}
