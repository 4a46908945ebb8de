//! Samples per minute and peak memory of each export: `cargo bench --bench exports [SAMPLES]`.
//!
//! 64 threads, 100 000 stacks of 30 functions, of 20 000 functions in all.

#[path = "../tests/support/random.rs"]
mod random;

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Instant;

use perfcollect::output::NameStyle;
use perfcollect::output::exports::Export;
use perfcollect::trace::{
    Cpu, Frame, FrameId, Function, FunctionId, FunctionKind, Nanos, Pid, Process, ProcessId,
    Sample, Samples, StackId, Thread, ThreadId, Tid, Trace,
};
use random::Random;

const SAMPLES: u64 = 1_000_000;
const THREADS: u32 = 64;
const STACKS: u64 = 100_000;
const FUNCTIONS: u64 = 20_000;
const DEPTH: u64 = 30;
/// Number of outermost frames, which have 500 variants.
const SHARED: u64 = 18;
const PERIOD_NS: u64 = 1_000_000;

const SUFFIXES: [&str; 8] = [
    "speedscope.json",
    "pb.gz",
    "firefox.json",
    "firefox.json.gz",
    "folded",
    "svg",
    "chromium.json",
    "csv",
];

/// Counts the bytes that are written.
struct Counter(u64);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn trace(samples: u64) -> Trace {
    let mut trace = Trace {
        samples: Samples::in_file(tempfile::tempfile().ok()),
        ..Trace::default()
    };
    trace.info.event = "cpu-clock".to_owned();
    trace.info.period_ns = PERIOD_NS;
    trace.info.end_ns = samples * PERIOD_NS / 4;
    trace.processes.push(Process {
        pid: Pid(1),
        name: "bench".into(),
        command_line: "".into(),
        ended: None,
    });
    for tid in 1..=THREADS {
        trace.threads.push(Thread {
            process: ProcessId(0),
            tid: Tid(tid as i32),
            name: format!("worker {tid}").into(),
        });
    }
    for number in 0..FUNCTIONS {
        let name = format!(
            "Company.Product.Area{}.Type{number}.Run(string, int)",
            number % 97
        );
        trace.functions.push(Function {
            name: Some(name.into()),
            start: None,
            module: format!("App{}", number % 40).into(),
            tier: None,
            kind: FunctionKind::Jit,
            inlined: false,
        });
        trace.frame_functions.push(FunctionId(number as u32));
        trace.frames.push(Frame {
            offset: number * 64,
            functions: number as u32..number as u32 + 1,
        });
    }
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let stacks: Vec<StackId> = (0..STACKS)
        .map(|number| {
            let mut outer = Random(1 + number % 500);
            let frames = (0..DEPTH).map(|depth| match depth < SHARED {
                true => outer.below(FUNCTIONS),
                false => random.below(FUNCTIONS),
            });
            let frames: Vec<_> = frames.map(|frame| FrameId(frame as u32)).collect();
            trace.stacks.intern(frames)
        })
        .collect();
    for number in 0..samples {
        trace.samples.push(Sample {
            time: Nanos(number * PERIOD_NS / 4),
            weight: Nanos(PERIOD_NS),
            thread: ThreadId(random.below(THREADS.into()) as u32),
            cpu: Cpu((number % 4) as u32),
            stack: stacks[random.below(STACKS) as usize],
        });
    }
    trace
}

/// Returns this process's memory, or its peak, in MiB.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() >> 10
}

fn main() {
    let samples = std::env::args().find_map(|word| word.parse().ok());
    let samples = samples.unwrap_or(SAMPLES);
    let trace = trace(samples);
    let begin = Instant::now();
    let count = trace.samples.iter().count();
    let per_minute = |begin: Instant| samples as f64 / begin.elapsed().as_secs_f64() * 60.0 / 1e6;
    println!(
        "reading alone: {count} samples, {:.0} M a minute, {} MiB",
        per_minute(begin),
        memory("VmRSS:")
    );
    for suffix in SUFFIXES {
        // Resets the peak.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let Some((export, title)) = Export::of(Path::new(&format!("x.{suffix}"))) else {
            continue;
        };
        let mut out = io::BufWriter::new(Counter(0));
        let begin = Instant::now();
        let written = export.write(&trace, NameStyle::Full, &title, &mut out);
        if let Err(error) = written.and_then(|()| out.flush()) {
            println!("{suffix}: {error}");
            continue;
        }
        println!(
            "{suffix}: {:.1} M samples a minute, {:.1} MB, peak {} MiB",
            per_minute(begin),
            out.get_ref().0 as f64 / 1e6,
            memory("VmHWM:")
        );
    }
}
