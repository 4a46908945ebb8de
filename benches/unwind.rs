//! Time per sample to walk a stack: `cargo bench --bench unwind`.
//!
//! First the recorded native stacks of `tests/rings`. Then stacks of .NET programs as they run, JIT-compiled and
//! precompiled, if the runtimes are there and the machine may be sampled (not with the argument `recorded`).
#![allow(clippy::unwrap_used)]

#[path = "../tests/rings/corpus.rs"]
mod corpus;
#[path = "../tests/support/mod.rs"]
mod support;

use std::hint::black_box;
use std::process::Command;
use std::time::{Duration, Instant};

use perfcollect::machine::Machine;
use perfcollect::perf::{
    CallGraph, Layout, PerfSession, Record, SampleRecord, SamplingRequest, Scope,
};
use perfcollect::trace::{CodeAddress, Nanos, Pid};
use perfcollect::unwind::{SampledProcess, Unwinder, Walked};
use support::{Workload, can_capture, runtimes, workloads};

/// Walks of each recorded sample.
const ROUNDS: u64 = 200;
/// Walks of each sample of a live program, besides the first.
const REPEATS: u32 = 50;
/// Until the methods that burn CPU have been compiled for good.
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
            let what = format!("JIT-compiled, .NET {}", runtime.version);
            live(&what, &mut runtime.command(&program));
        }
        _ => println!("JIT-compiled: skipped: there is no .NET 8 to 10, or no workload `split`"),
    }
    match workloads::shared("split-composite/split-composite") {
        // With no tiers the precompiled code is all that runs.
        Ok(program) => live(
            "precompiled",
            Command::new(program).env("DOTNET_TieredCompilation", "0"),
        ),
        Err(missing) => println!("precompiled: skipped: needs {missing}"),
    }
}

/// What a walk needs, and what it gave so far.
#[derive(Default)]
struct Walker {
    machine: Machine,
    unwinder: Unwinder,
    leaf_first: Vec<CodeAddress>,
    frames: usize,
}

impl Walker {
    fn walk(&mut self, sample: &SampleRecord<'_>) -> Walked {
        let (_, process) = self.machine.sampled(sample.pid, sample.tid);
        let host = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps: self.machine.maps(sample.pid).unwrap(),
            files: self.machine.files(),
            is_preview: false,
        };
        let walked = self.unwinder.walk(sample, host, &mut self.leaf_first);
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
    for (what, rounds) in [
        ("recorded, for the first time", 1),
        ("recorded, again", ROUNDS),
    ] {
        walker.frames = 0;
        let begin = Instant::now();
        measured(&mut walker, &samples, rounds);
        let walks = samples.len() as u64 * rounds;
        println!(
            "{what}: {:.0} ns per sample of {:.1} frames, {walks} samples",
            begin.elapsed().as_nanos() as f64 / walks as f64,
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

/// Walks the stacks of a workload's methods without a frame pointer, with stack copies of the usual size.
fn live(what: &str, command: &mut Command) {
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
    let (mut samples, mut guessed) = (0, 0);
    let (mut once, mut again) = (Duration::ZERO, Duration::ZERO);
    let begin = Instant::now();
    while begin.elapsed() < LIVE {
        std::thread::sleep(Duration::from_millis(25));
        session.drain(|time, record| match record {
            Record::Sample(sample) if sample.pid == pid => {
                let begin = Instant::now();
                guessed += u64::from(walker.walk(&sample).fp_fallback);
                once += begin.elapsed();
                let begin = Instant::now();
                for _ in 0..REPEATS {
                    walker.walk(&sample);
                }
                again += begin.elapsed();
                samples += 1;
            }
            Record::Sample(_) => {}
            record if record.process() == Some(pid) => walker.machine.apply(time, &record),
            _ => {}
        });
    }
    assert!(samples > 0, "no samples of process {pid}");
    let each = |time: Duration, walks: u32| time.as_nanos() as f64 / f64::from(walks);
    println!(
        "{what}: {:.0} ns per sample of {:.1} frames as it comes, {:.0} ns again; {samples} samples, {guessed} guessed",
        each(once, samples),
        walker.frames as f64 / f64::from(samples * (1 + REPEATS)),
        each(again, samples * REPEATS),
    );
}
