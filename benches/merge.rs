//! Time per record to merge the ring buffers of many CPUs and to parse the records.
//!
//! Run with `cargo bench --bench merge`.
#![allow(clippy::unwrap_used)]

use std::hint::black_box;
use std::ops::ControlFlow;
use std::time::Instant;

use perfcollect::perf::{Layout, Merge, Record, RecordSource};
use perfcollect::trace::Nanos;

const RECORDS_PER_CPU: u64 = 2_000;
const ROUNDS: u64 = 20;
/// IP, TID, TIME, CALLCHAIN, CPU, PERIOD, REGS_USER, STACK_USER.
const SAMPLE_TYPE: u64 = 0x31a7;
const USER_REGS: u64 = 0x1c0;
const STACK_BYTES: usize = 8192;

fn main() {
    for cpus in [1, 2, 16, 128] {
        let layout = Layout::new(SAMPLE_TYPE, USER_REGS).unwrap();
        let records: Vec<_> = (0..cpus).map(sample).collect();
        let start = Instant::now();
        let stack_bytes = measured(&records, &layout);
        let merged = ROUNDS * RECORDS_PER_CPU * cpus;
        assert_eq!(stack_bytes as u64, merged * STACK_BYTES as u64);
        let ns = start.elapsed().as_nanos() as f64 / merged as f64;
        println!("{cpus:>4} CPUs: {ns:.1} ns per record, {merged} records");
    }
}

/// Merges and parses all records: `scripts/instructions` finds this function by its name.
#[inline(never)]
fn measured(records: &[Vec<u8>], layout: &Layout) -> usize {
    let mut stack_bytes = 0;
    for _ in 0..ROUNDS {
        let mut rings: Vec<_> = records.iter().map(|bytes| Ring::new(bytes)).collect();
        Merge::default().round(&mut rings, layout, Nanos(u64::MAX), |_, bytes| {
            if let Ok(Record::Sample(sample)) = layout.parse(bytes) {
                stack_bytes += black_box(sample).stack.len();
            }
            ControlFlow::Continue(())
        });
    }
    stack_bytes
}

/// Returns a sample record of one CPU.
fn sample(cpu: u64) -> Vec<u8> {
    let mut body: Vec<u64> = vec![0x1000, 42 | 42 << 32, cpu, cpu, 1_001_001, 0];
    body.extend([2, 1, 2, 3, STACK_BYTES as u64]);
    body.extend([0; STACK_BYTES / 8]);
    body.push(STACK_BYTES as u64);
    let mut bytes = vec![9, 0, 0, 0, 2, 0];
    bytes.extend((body.len() as u16 * 8 + 8).to_le_bytes());
    bytes.extend(body.iter().flat_map(|word| word.to_le_bytes()));
    bytes
}

/// Repeats one sample, each a millisecond later.
struct Ring {
    record: Vec<u8>,
    remaining: u64,
}

impl Ring {
    const TIME_AT: usize = 24;

    fn new(record: &[u8]) -> Self {
        Self {
            record: record.to_vec(),
            remaining: RECORDS_PER_CPU,
        }
    }
}

impl RecordSource for Ring {
    fn peek(&mut self) -> Option<&[u8]> {
        (self.remaining > 0).then_some(&self.record)
    }

    fn advance(&mut self) {
        let time = &mut self.record[Self::TIME_AT..Self::TIME_AT + 8];
        let next = u64::from_le_bytes(time.try_into().unwrap()) + 1_000_000;
        time.copy_from_slice(&next.to_le_bytes());
        self.remaining -= 1;
    }
}
