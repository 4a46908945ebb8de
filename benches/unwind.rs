//! Time per sample to unwind a stack: `cargo bench --bench unwind`.
//!
//! Measures the recorded native stacks of `tests/rings`, then stacks of running .NET programs: JIT
//! code and ReadyToRun code. The programs are skipped without runtimes, without permission to
//! sample, or with the argument `recorded`.
#![allow(clippy::unwrap_used)]

#[path = "../tests/rings/corpus.rs"]
mod corpus;
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::machine::Machine;
use perfcollect::perf::{
    CallGraph, Layout, PerfSession, Record, SampleRecord, SamplingRequest, Scope,
};
use perfcollect::trace::{CodeAddress, Nanos, Pid};
use perfcollect::unwind::{Epoch, SampledProcess, Unwinder, WalkOutcome};
use support::{Workload, can_capture, runtimes, workloads};

/// Number of walks of each recorded sample.
const ROUNDS: u64 = 200;
/// Number of walks of each sample of a live program after the first walk.
const REPEATS: u32 = 50;
/// Time until the hot methods have reached their final tier.
const WARM_UP: Duration = Duration::from_secs(2);
const LIVE: Duration = Duration::from_secs(3);

fn main() {
    recorded();
    if std::env::args().any(|argument| argument == "recorded") {
        return;
    }
    if let Err(missing) = can_capture() {
        println!(".NET: skipped: needs {missing}");
        return;
    }
    let mut runtimes = runtimes().into_iter().rev();
    let runtime = runtimes.find(|runtime| (8..=10).contains(&runtime.major()));
    match (runtime, workloads::shared("split/split.dll")) {
        (Some(runtime), Ok(program)) => {
            let name = format!("JIT code, .NET {}", runtime.version);
            live(&name, &mut runtime.command(&program));
        }
        _ => println!("JIT code: skipped: .NET 8 to 10 or the workload `split` is missing"),
    }
    match workloads::shared("split-composite/split-composite") {
        // Without tiered compilation the runtime executes only the ReadyToRun code.
        Ok(program) => live(
            "ReadyToRun code",
            Command::new(program).env("DOTNET_TieredCompilation", "0"),
        ),
        Err(missing) => println!("ReadyToRun code: skipped: needs {missing}"),
    }
}

/// State of the walks, and the number of frames so far.
#[derive(Default)]
struct Walker {
    machine: Machine,
    unwinder: Unwinder,
    leaf_first: Vec<CodeAddress>,
    frames: usize,
}

impl Walker {
    fn walk(&mut self, sample: &SampleRecord<'_>) -> WalkOutcome {
        let (_, process) = self.machine.sampled(sample.pid, sample.tid);
        let process = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            epoch: Epoch::of(sample.time),
            maps: self.machine.maps(sample.pid).unwrap(),
            files: self.machine.files(),
            is_preview: false,
        };
        let walked = self.unwinder.walk(sample, process, &mut self.leaf_first);
        self.frames += self.leaf_first.len();
        black_box(walked)
    }
}

fn recorded() {
    let layout = Layout::new(corpus::SAMPLE_TYPE, corpus::USER_REGS).unwrap();
    let rings = corpus::rings();
    let mut records: Vec<_> = rings
        .iter()
        .flat_map(|ring| corpus::records(ring))
        .collect();
    records.sort_by_key(|record| corpus::time(record));
    let mut walker = Walker::default();
    let mut samples = Vec::new();
    for record in records {
        match layout.parse(record).unwrap() {
            Record::Sample(sample) => samples.push(sample),
            record => walker.machine.apply(Nanos(0), &record),
        }
    }
    for (name, rounds) in [("recorded, first walk", 1), ("recorded, repeated", ROUNDS)] {
        walker.frames = 0;
        let start = Instant::now();
        measured(&mut walker, &samples, rounds);
        let walks = samples.len() as u64 * rounds;
        println!(
            "{name}: {:.0} ns per sample of {:.1} frames, {walks} samples",
            start.elapsed().as_nanos() as f64 / walks as f64,
            walker.frames as f64 / walks as f64,
        );
    }
}

#[inline(never)]
fn measured(walker: &mut Walker, samples: &[SampleRecord<'_>], rounds: u64) {
    for _ in 0..rounds {
        for sample in samples {
            walker.walk(sample);
        }
    }
}

/// Measures a workload whose methods keep no frame pointer, with stack copies of the default size.
fn live(name: &str, command: &mut Command) {
    let workload = Workload::start(command.args(["--mode", "frameless", "--seconds", "10"]));
    std::thread::sleep(WARM_UP);
    let pid = Pid(workload.pid() as i32);
    let cpus = std::thread::available_parallelism().unwrap().get();
    let request = SamplingRequest::new(999, CallGraph::Auto, cpus);
    let mut session = PerfSession::open(&request, Scope::SystemWide).unwrap();
    session.start_tracking().unwrap();
    let mut walker = Walker::default();
    walker.machine.read_running([pid]);
    session.start_sampling().unwrap();
    let (mut samples, mut doubtful) = (0, 0);
    let (mut first, mut repeated) = (Duration::ZERO, Duration::ZERO);
    let start = Instant::now();
    while start.elapsed() < LIVE {
        std::thread::sleep(Duration::from_millis(25));
        session.drain(|time, record| {
            match record {
                Record::Sample(sample) if sample.pid == pid => {
                    let start = Instant::now();
                    doubtful += u64::from(walker.walk(&sample).doubt.is_some());
                    first += start.elapsed();
                    let start = Instant::now();
                    for _ in 0..REPEATS {
                        walker.walk(&sample);
                    }
                    repeated += start.elapsed();
                    samples += 1;
                }
                Record::Sample(_) => {}
                record if record.process() == Some(pid) => walker.machine.apply(time, &record),
                _ => {}
            }
            ControlFlow::Continue(())
        });
    }
    assert!(samples > 0, "process {pid} has no samples");
    let per_walk = |time: Duration, walks: u32| time.as_nanos() as f64 / f64::from(walks);
    println!(
        "{name}: {:.0} ns per sample of {:.1} frames in the first walk, {:.0} ns repeated; \
         {samples} samples, {doubtful} with a doubtful caller",
        per_walk(first, samples),
        walker.frames as f64 / f64::from(samples * (1 + REPEATS)),
        per_walk(repeated, samples * REPEATS),
    );
}
