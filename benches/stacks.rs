//! Time per sample to intern a stack, for repeated and new stacks: `cargo bench --bench stacks`.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use perfcollect::trace::spool::FileRow;
use perfcollect::trace::{
    CodeAddress, Header, Losses, ModuleId, Nanos, Pid, Recorder, RowSource, ThreadId,
};

const DEPTH: u64 = 25;
const SAMPLES: u64 = 400_000;

struct StubFiles;

impl RowSource for StubFiles {
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

fn main() {
    for (name, leaves) in [
        ("one stack", 1),
        ("500 leaves", 500),
        ("all different", SAMPLES),
    ] {
        let mut recorder = Recorder::new(std::io::sink(), &Header::default());
        let start = Instant::now();
        measured(&mut recorder, leaves);
        let ns = start.elapsed().as_nanos() as f64 / SAMPLES as f64;
        let (end, _) = recorder.finish(Nanos(0), &Losses::default());
        let bytes = end.written as f64 / SAMPLES as f64;
        println!(
            "{name:>14}: {ns:.0} ns per stack of {DEPTH} frames, {bytes:.2} spool bytes, {SAMPLES} stacks"
        );
    }
}

#[inline(never)]
fn measured(recorder: &mut Recorder<std::io::Sink>, leaves: u64) {
    let mut stack: Vec<_> = (0..DEPTH)
        .map(|frame| CodeAddress::Elf(ModuleId(1), 0x1000 * frame))
        .collect();
    for sample in 0..SAMPLES {
        stack[0] = CodeAddress::Elf(ModuleId(2), 16 * (sample % leaves));
        let mut source = StubFiles;
        let mut writer = recorder.sample_writer(&mut source);
        black_box(writer.stack(ThreadId(0), &stack, None));
    }
}
