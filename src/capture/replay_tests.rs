//! The recorded ring buffers of `tests/rings`, from the bytes to the folded stacks.
//!
//! These tests need no right to sample.

use std::ffi::OsString;
use std::time::Duration;

use super::engine::Engine;
use super::finished::StoppedCapture;
use super::weight::Weight;
use super::*;
use crate::output::folded;
use crate::perf::Granted;
use crate::perf::recorded::{Replay, corpus, record};
use crate::symbolize;
use crate::trace::{CaptureInfo, Header, Losses, Nanos, Pid, Samples};

const RING_BYTES: usize = 256 << 10;
/// Reorder window of the merge, and interval between two reads.
const REORDER_WINDOW: Duration = Duration::from_millis(20);
const ROUND: Duration = Duration::from_millis(5);

/// Parameters of a replay.
#[derive(Clone, Copy)]
struct Parameters {
    ring_bytes: usize,
    reorder_window: Duration,
    /// Delay between the time of a record and its publication, by CPU.
    delays: [Duration; 2],
    /// Bytes that follow the last record of the first CPU.
    tail: &'static [u8],
}

const PLAIN: Parameters = Parameters {
    ring_bytes: RING_BYTES,
    reorder_window: REORDER_WINDOW,
    delays: [Duration::ZERO; 2],
    tail: &[],
};

/// Result of a replay.
struct Replayed {
    folded: String,
    losses: Losses,
}

impl Replayed {
    /// Returns the frames without the process, outermost first, and the samples of each stack.
    fn stacks(&self) -> impl Iterator<Item = (Vec<&str>, u64)> {
        self.folded.lines().map(|line| {
            let (stack, count) = line.rsplit_once(' ').unwrap();
            (stack.split(';').skip(1).collect(), count.parse().unwrap())
        })
    }
}

fn play(parameters: Parameters) -> Replayed {
    let mut replay = Replay::new(corpus::rings(), parameters.ring_bytes);
    let target = Target::Command(vec![OsString::from("program")]);
    let spool = tempfile::tempfile().unwrap();
    let mut engine = Engine::new(&target, Weight::Period, &spool, &Header::default());
    engine.start(Some(Pid(corpus::FIRST_PID))).unwrap();
    let (start, end) = replay.times();
    let before = |time: Nanos, span: Duration| Nanos(time.0.saturating_sub(span.as_nanos() as u64));
    let last = end.0 + parameters.delays[0].max(parameters.delays[1]).as_nanos() as u64 + 1;
    let rounds = (start.0..last).step_by(ROUND.as_nanos() as usize);
    for now in rounds.chain([last]).map(Nanos) {
        for (cpu, delay) in parameters.delays.into_iter().enumerate() {
            replay.publish(cpu, before(now, delay));
        }
        let flush_limit = before(now, parameters.reorder_window);
        replay.drain(flush_limit, |time, record| engine.record(time, &record));
        engine.tick(flush_limit, replay.malformed(), replay.late());
    }
    if !parameters.tail.is_empty() {
        replay.damage(0, parameters.tail);
    }
    replay.drain(Nanos(u64::MAX), |time, record| engine.record(time, &record));
    engine.tick(end, replay.malformed(), replay.late());
    let (spooled, machine) = engine.finish(end);
    let stopped = StoppedCapture {
        snapshot: None,
        spooled,
        machine,
        info: CaptureInfo::default(),
        end: End::Limit,
        notices: Vec::new(),
        granted: Granted::default(),
    };
    let mut capture = stopped.read(&spool, Samples::default()).unwrap();
    capture.kernel_mismatch = Some("recorded elsewhere".into());
    let losses = capture.raw_trace.losses.clone();
    let trace = symbolize::symbolize(capture, &symbolize::Options::default(), &|| false)
        .unwrap_or_else(|_| panic!("symbolization was cancelled"));
    let mut bytes = Vec::new();
    folded::write(&trace, &mut bytes).unwrap();
    Replayed {
        folded: String::from_utf8(bytes).unwrap(),
        losses,
    }
}

fn golden() -> String {
    std::fs::read_to_string(corpus::directory().join("stacks.folded")).unwrap()
}

fn golden_samples() -> u64 {
    let count = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    golden().lines().map(count).sum()
}

#[test]
fn recorded_rings_yield_the_golden_stacks() {
    let played = play(PLAIN);
    assert_eq!(played.folded, golden());
    let losses = played.losses;
    let by_cpu: u64 = losses.by_cpu.iter().map(|cpu| cpu.records).sum();
    assert!(losses.lost_records > 100 && losses.lost_records == by_cpu);
    assert_eq!((losses.malformed_records, losses.late_records), (0, 0));
    assert_eq!(losses.samples_seen, golden_samples());
}

/// Checks the golden file itself against the source of the program, which defines who calls whom.
#[test]
fn stacks_are_call_paths_of_the_source() {
    let paths: [&[&str]; 10] = [
        &["_start", "program_main", "outer", "middle", "inner"],
        &["_start", "program_main", "read_zeros"],
        &["thread_entry", "thread_of_number", "thread", "left"],
        &["thread_entry", "thread_of_number", "thread", "right"],
        &["_start", "program_main", "run_made", "jit+0x2000000d_[j]"],
        &["_start", "program_main", "run_made", "mapped_leaf"],
        &["_start", "program_main", "fork_only", "in_child"],
        &["_start", "program_main", "after_exec"],
        &["[truncated: stack copy ended]", "descend", "descend"],
        &["[truncated: stack copy ended]", "deep"],
    ];
    let mut samples = [0; 10];
    let played = play(PLAIN);
    for (stack, count) in played.stacks() {
        // The stack without its kernel frames.
        let user: Vec<_> = stack
            .iter()
            .copied()
            .filter(|frame| !frame.ends_with("_[k]"))
            .collect();
        if let Some(path) = paths.iter().position(|path| user.starts_with(path)) {
            samples[path] += count;
            let rest = &user[paths[path].len()..];
            assert!(rest.iter().all(|frame| *frame == "descend"), "{stack:?}");
        } else {
            // Between two phases: in the entry of a system call, or before the first instruction.
            let whole = user.is_empty() || user[0] == "_start" || user[0] == "thread_entry";
            assert!(
                whole && stack.len() > user.len() && count <= 3,
                "{stack:?} {count}"
            );
        }
    }
    let [burning @ .., deep] = samples;
    assert!(burning.iter().all(|&count| count >= 10), "{samples:?}");
    assert!(deep == 0, "the user stack copy is shorter: {samples:?}");
}

/// The forked process and those that executed the program again have separate samples.
#[test]
fn children_are_separate_processes() {
    let folded = play(PLAIN).folded;
    let mut names = std::collections::BTreeMap::<&str, &str>::new();
    for line in folded
        .lines()
        .filter(|line| line.contains("in_child") || line.contains("after_exec"))
    {
        let (process, pid) = line.split_once(" (").unwrap();
        names.insert(pid.split_once(')').unwrap().0, process);
    }
    let mut names: Vec<_> = names.into_values().collect();
    names.sort_unstable();
    assert_eq!(names, ["forked", "program", "vforked"]);
}

/// Small ring buffers wrap many times, a large one never does.
#[test]
fn result_does_not_depend_on_ring_buffer_size() {
    assert!(corpus::rings().iter().all(|ring| ring.len() > RING_BYTES));
    for ring_bytes in [32 << 10, 64 << 10, 4 << 20] {
        let reorder_window = Duration::ZERO;
        let played = play(Parameters {
            ring_bytes,
            reorder_window,
            ..PLAIN
        });
        assert_eq!(played.folded, golden(), "{ring_bytes}");
        assert_eq!(played.losses.late_records, 0);
    }
}

/// Tests a CPU that publishes later than the reorder window.
#[test]
fn uses_and_counts_late_records() {
    for late in [0, 1] {
        let mut delays = [Duration::ZERO; 2];
        delays[late] = REORDER_WINDOW * 2;
        let played = play(Parameters { delays, ..PLAIN });
        assert!(played.losses.late_records > 10, "{:#?}", played.losses);
        assert_eq!(played.losses.samples_seen, golden_samples());
    }
    // A delay within the reorder window is not late.
    let played = play(Parameters {
        delays: [Duration::ZERO, REORDER_WINDOW - ROUND],
        ..PLAIN
    });
    assert_eq!(played.losses.late_records, 0);
    assert_eq!(played.folded, golden());
}

/// A malformed record ends the reading of its ring buffer, is counted, and loses no record before
/// it.
#[test]
fn counts_malformed_record_at_the_end() {
    for tail in [
        &[9, 0, 0, 0, 0, 0, 0, 0][..],
        &[9, 0, 0, 0, 0, 0, 64, 0],
        &[0xff; 8],
    ] {
        let played = play(Parameters { tail, ..PLAIN });
        assert_eq!(played.losses.malformed_records, 1);
        assert_eq!(played.folded, golden());
    }
    // The size is valid, but too small for the type.
    let played = play(Parameters {
        tail: &[9, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ..PLAIN
    });
    assert_eq!(played.losses.malformed_records, 1);
    assert_eq!(played.folded, golden());
}

#[test]
#[ignore = "records the ring buffers again: see tests/rings/README.md"]
fn manual_record_ring_buffers() {
    let directory = tempfile::tempdir_in("/tmp").unwrap();
    let program = directory.path().join("program");
    std::fs::copy(corpus::program(), &program).unwrap();
    for (cpu, ring) in record(&program).iter().enumerate() {
        let packed = lz4_flex::block::compress_prepend_size(ring);
        println!("CPU {cpu}: {} bytes, {} packed", ring.len(), packed.len());
        std::fs::write(corpus::directory().join(format!("cpu{cpu}.lz4")), packed).unwrap();
    }
    let played = play(PLAIN);
    println!("{}\n{:#?}", played.folded, played.losses);
    std::fs::write(corpus::directory().join("stacks.folded"), played.folded).unwrap();
}
