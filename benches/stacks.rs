//! Time per sample to turn code addresses into a stack id, for stacks known and new: `cargo bench --bench stacks`.

use std::hint::black_box;
use std::time::Instant;

use perfcollect::trace::{CodeAddress, ModuleId, Recorder};

const DEPTH: u64 = 25;
const SAMPLES: u64 = 400_000;

fn main() {
    for (name, leaves) in [
        ("one stack", 1),
        ("500 leaves", 500),
        ("all different", SAMPLES),
    ] {
        let mut recorder = Recorder::default();
        let mut stack: Vec<_> = (0..DEPTH)
            .map(|frame| CodeAddress::Elf(ModuleId(1), 0x1000 * frame))
            .collect();
        let begin = Instant::now();
        for sample in 0..SAMPLES {
            stack[0] = CodeAddress::Elf(ModuleId(2), 16 * (sample % leaves));
            black_box(recorder.stack(&stack, None));
        }
        let ns = begin.elapsed().as_nanos() as f64 / SAMPLES as f64;
        let frames = recorder.finish().frames.len();
        println!("{name:>14}: {ns:.0} ns per stack of {DEPTH} frames, {frames} unique frames");
    }
}
