//! `perf.data.txt`: the trace as `perf script` would print it, in the dialect PerfView reads without loss.
//!
//! # Weights
//!
//! PerfView ignores the period. It charges a sample with the time to the next one *on the same CPU number*, and never
//! shows the last one of a CPU. With the real numbers a sample before a pause would be charged with the pause, and two
//! threads that take turns on a CPU, each with its own timer, would be charged with the time between their ticks.
//!
//! ```text
//! cpu 3, weight 1 ms:  a at 0, b at 0.4, c at 9       PerfView charges a 0.4, b 8.6, c nothing
//!
//! as cpu 1:            a at 0, idle at 1
//! as cpu 2:            b at 0.4, idle at 1.4          PerfView charges a 1, b 1, c 1, and no idle line:
//! as cpu 3:            c at 9, idle at 10             each is the last of its CPU
//! ```
//! So each sample gets a CPU number of its own and an idle line that ends it after exactly its weight. Samples, their
//! times and their sum in PerfView are those of the trace, and no idle process shows. The price is the real CPU number,
//! which PerfView shows nowhere, and one short line per sample. Filling gaps on the real CPUs, as `perf record` of an
//! idle machine does, cannot express overlapping samples and adds a process `swapper` with samples nobody took.
//!
//! The lines must be in order of time, so the idle lines wait in a heap. The first line fixes time zero where that of the
//! events is (`time_zero`) and, by declaring tid 0 dead, keeps the idle lines out of PerfView's Thread Time.

mod names;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use super::time_zero::TimeZero;
use crate::bytes::put_digits;
use crate::trace::{Nanos, Sample, StackId, Trace};
use names::Names;

const SECOND_NS: u64 = 1_000_000_000;

/// PerfView interns stacks by recursion on threads with 1 MB of stack.
const MAX_FRAMES: usize = 1000;
/// Replaces the callers of a stack that has more than [`MAX_FRAMES`].
const TRUNCATED_FRAME: &[u8] = b"\t0 {truncated} (perfcollect)\n";

/// Writes the samples of `trace`.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let times = TimeZero::of(trace);
    let names = Names::new(trace);
    let mut now = Nanos(times.monotonic());
    let mut text = Vec::new();
    if let Some(mark) = trace.quality.losses.mark() {
        // Readers take comments at the top, and nowhere else.
        text.extend_from_slice(format!("# {mark}\n").as_bytes());
    }
    text.extend_from_slice(b"swapper 0/0 ");
    put_moment(0, now, &mut text);
    text.extend_from_slice(b"1 sched:sched_process_exit: comm=swapper pid=0 prio=120\n\n");
    let mut idle: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    for (row, sample) in trace.samples.iter().enumerate() {
        // Late samples are moved, as one line out of order makes PerfView's weights negative.
        now = now.max(Nanos(times.moved(sample.time)));
        while let Some(&Reverse((end, cpu))) = idle.peek()
            && end <= now
        {
            idle.pop();
            put_idle(cpu, end, &mut text);
        }
        let cpu = row + 1;
        put_sample(
            &names,
            &Sample {
                time: now,
                ..sample
            },
            cpu,
            &mut text,
        );
        idle.push(Reverse((Nanos(now.0.saturating_add(sample.weight.0)), cpu)));
        out.write_all(&text)?;
        text.clear();
    }
    while let Some(Reverse((end, cpu))) = idle.pop() {
        put_idle(cpu, end, &mut text);
    }
    out.write_all(&text)
}

fn put_sample(names: &Names<'_>, sample: &Sample, cpu: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(names.thread(sample.thread));
    put_moment(cpu, sample.time, out);
    put_digits::<10>(out, sample.weight.0, 1, b'0');
    out.push(b' ');
    out.extend_from_slice(names.event.as_bytes());
    put_stack(names, sample.stack, out);
    out.push(b'\n');
}

fn put_stack(names: &Names<'_>, stack: StackId, out: &mut Vec<u8>) {
    let frames = names.trace.stacks.leaf_first(stack);
    let mut functions = frames.flat_map(|frame| {
        let functions = names.trace.functions_leaf_first(frame);
        functions.map(move |function| (frame, function))
    });
    for (frame, function) in functions.by_ref().take(MAX_FRAMES - 1) {
        names.put_frame(frame, function, out);
    }
    if functions.next().is_some() {
        out.extend_from_slice(TRUNCATED_FRAME);
    }
}

/// Ends the sample on a CPU.
fn put_idle(cpu: usize, time: Nanos, out: &mut Vec<u8>) {
    out.extend_from_slice(b"swapper 0/0 ");
    put_moment(cpu, time, out);
    out.extend_from_slice(b"1 cpu-clock: \n\t0 idle (vmlinux)\n\n");
}

/// `[001] 4321.987654321: `: a time as perf prints it, to the nanosecond.
fn put_moment(cpu: usize, time: Nanos, out: &mut Vec<u8>) {
    out.push(b'[');
    put_digits::<10>(out, cpu as u64, 3, b'0');
    out.extend_from_slice(b"] ");
    put_digits::<10>(out, time.0 / SECOND_NS, 1, b'0');
    out.push(b'.');
    put_digits::<10>(out, time.0 % SECOND_NS, 9, b'0');
    out.extend_from_slice(b": ");
}
