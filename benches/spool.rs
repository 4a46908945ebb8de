//! Time and bytes per sample for writing and reading a spool: `cargo bench --bench spool`.

#[path = "../tests/support/random.rs"]
mod random;

use std::io::Write;
use std::time::Instant;

use perfcollect::trace::spool::{FileRow, SpoolRow};
use perfcollect::trace::{
    CodeAddress, Cpu, Header, Losses, ModuleId, Nanos, Pid, ProcessId, RawTrace, Recorder,
    RowSource, Sample, StackId, ThreadId, Tid,
};
use random::Random;

const SAMPLES: u64 = 1_000_000;
const CPUS: u64 = 8;
const THREADS: u32 = 40;
/// Number of different stacks, which repeat.
const STACKS: u64 = 2000;
const PERIOD_NS: u64 = 1_001_001;

struct NoFiles;

impl RowSource for NoFiles {
    fn write_rows<W: Write>(&mut self, _: &mut Recorder<W>) {}

    fn file_row(&self, _: ModuleId) -> FileRow<'_> {
        FileRow {
            path: b"/lib/some.so".into(),
            pid: Pid(1),
            identity: None,
            build_id: b"".into(),
        }
    }
}

fn stack(recorder: &mut Recorder<&mut Vec<u8>>, number: u64) -> StackId {
    let frame = |depth: u64| {
        let address = 0x40_0000 + number % (1 + depth * depth) * 4096 + depth * 64;
        CodeAddress::Elf(ModuleId(0), address)
    };
    let leaf_first: Vec<_> = (0..25).rev().map(frame).collect();
    let mut source = NoFiles;
    let mut writer = recorder.sample_writer(&mut source);
    writer.stack(ThreadId(0), &leaf_first, None)
}

fn main() {
    let mut spool = Vec::with_capacity(64 << 20);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut recorder = Recorder::new(&mut spool, &Header::default());
    recorder.put(&SpoolRow::Process {
        pid: Pid(1),
        name: b"bench",
        command_line: b"",
    });
    for tid in 0..THREADS {
        recorder.put(&SpoolRow::Thread {
            process: ProcessId(0),
            tid: Tid(tid as i32),
            name: b"thread",
        });
    }
    let stacks: Vec<_> = (0..STACKS)
        .map(|number| stack(&mut recorder, number))
        .collect();
    let samples: Vec<_> = (0..SAMPLES)
        .map(|number| Sample {
            time: Nanos(number / CPUS * PERIOD_NS + number % CPUS * 9000 + random.below(4000)),
            weight: Nanos(PERIOD_NS),
            thread: ThreadId(random.below(THREADS.into()) as u32),
            cpu: Cpu((number % CPUS) as u32),
            stack: stacks[random.below(STACKS) as usize],
        })
        .collect();
    let start = Instant::now();
    measured(|| {
        for (number, sample) in samples.iter().enumerate() {
            recorder.sample_writer(&mut NoFiles).push(*sample);
            if number % 256 == 0 {
                recorder.tick(sample.time, &Losses::default());
            }
        }
    });
    let written = start.elapsed();
    let (end, _) = recorder.finish(Nanos(0), &Losses::default());
    let start = Instant::now();
    let raw_trace = measured(|| RawTrace::read(&spool[..]));
    let read = start.elapsed();
    assert_eq!(
        raw_trace.map_or(0, |raw_trace| raw_trace.samples.len() as u64),
        SAMPLES
    );
    let each = |time: std::time::Duration| time.as_nanos() as f64 / SAMPLES as f64;
    println!(
        "written: {:.0} ns per sample, {:.1} bytes each, {SAMPLES} samples",
        each(written),
        end.written as f64 / SAMPLES as f64
    );
    println!("read: {:.0} ns per sample, {SAMPLES} samples", each(read));
}

/// Runs the measured work: `scripts/instructions` finds this function by its name.
#[inline(never)]
fn measured<T>(work: impl FnOnce() -> T) -> T {
    work()
}
