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

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};

use super::label;
use super::sanitize::{perf_comm, perf_event, perf_module, perf_symbol, perf_tier};
use super::time_zero::TimeZero;
use crate::bytes::put_digits;
use crate::trace::{FrameId, Function, FunctionId, Nanos, Sample, StackId, Trace};

const SECOND_NS: u64 = 1_000_000_000;

/// Text that is written at once.
const CHUNK_BYTES: usize = 1 << 16;

/// PerfView interns stacks by recursion on threads with 1 MB of stack.
const MAX_FRAMES: usize = 1000;

/// Stands for the callers of a stack that is deeper than [`MAX_FRAMES`].
const CUT_FRAME: &[u8] = b"\t0 {truncated} (perfcollect)\n";

/// Writes the samples of `trace`.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let times = TimeZero::of(trace);
    let zero = Time(times.monotonic());
    let mut buffer = Vec::new();
    if let Some(mark) = trace.quality.losses.mark() {
        // Readers take comments at the top, and nowhere else.
        writeln!(out, "# {mark}")?;
    }
    buffer.extend_from_slice(b"swapper 0/0 ");
    put_moment(0, zero, &mut buffer);
    buffer.extend_from_slice(b"1 sched:sched_process_exit: comm=swapper pid=0 prio=120\n\n");

    let text = Text::new(trace);
    let mut idle: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let mut now = zero;
    for (row, sample) in trace.samples.iter().enumerate() {
        // Late samples are moved, as one line out of order makes PerfView's weights negative.
        now = now.max(Time(times.moved(sample.time)));
        while let Some(&Reverse((end, cpu))) = idle.peek()
            && end <= now
        {
            idle.pop();
            put_idle(end, cpu, &mut buffer);
        }
        let cpu = row + 1;
        text.sample(&sample, now, cpu, &mut buffer);
        idle.push(Reverse((now.after(sample.weight), cpu)));
        if buffer.len() >= CHUNK_BYTES {
            out.write_all(&buffer)?;
            buffer.clear();
        }
    }
    while let Some(Reverse((end, cpu))) = idle.pop() {
        put_idle(end, cpu, &mut buffer);
    }
    out.write_all(&buffer)
}

/// Ends the sample on a CPU.
fn put_idle(end: Time, cpu: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"swapper 0/0 ");
    put_moment(cpu, end, out);
    out.extend_from_slice(b"1 cpu-clock: \n\t0 idle (vmlinux)\n\n");
}

/// `[001] 4321.987654321: `
fn put_moment(cpu: usize, time: Time, out: &mut Vec<u8>) {
    out.push(b'[');
    put_digits::<10>(out, cpu as u64, 3, b'0');
    out.extend_from_slice(b"] ");
    time.put(out);
    out.extend_from_slice(b": ");
}

/// A time as perf prints it: seconds and, to the nanosecond, their fraction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Time(u64);

impl Time {
    fn after(self, weight: Nanos) -> Self {
        Self(self.0.saturating_add(weight.0))
    }

    fn put(self, out: &mut Vec<u8>) {
        put_digits::<10>(out, self.0 / SECOND_NS, 1, b'0');
        out.push(b'.');
        put_digits::<10>(out, self.0 % SECOND_NS, 9, b'0');
    }
}

/// The escaped names: each is made once, a line then only copies them. A text per stack would save little time and
/// need memory for all of them.
struct Text<'a> {
    trace: &'a Trace,
    event: String,
    /// Process and thread.
    threads: Vec<String>,
    functions: Vec<FunctionText>,
}

/// A function's part of a frame line.
struct FunctionText {
    /// Whether the name is in `text`; else the offset of the frame is the name.
    has_name: bool,
    /// All behind the address but for such a name.
    text: String,
}

impl FunctionText {
    fn of(function: &Function) -> Self {
        let tier = function.tier.as_deref().and_then(perf_tier);
        let tier = tier.map_or_else(String::new, |tier| format!("[{tier}]"));
        let module = perf_module(&function.module)
            .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned());
        let name = label::known_name(function)
            .map(|name| perf_symbol(name) + &tier)
            .or_else(|| Some(format!("{:#x}", function.start?)));
        Self {
            has_name: name.is_some(),
            text: format!("{} ({module})\n", name.unwrap_or_default()),
        }
    }
}

impl<'a> Text<'a> {
    fn new(trace: &'a Trace) -> Self {
        let processes = trace.processes.iter();
        let processes: Vec<_> = processes
            .map(|process| format!("{} {}", perf_comm(&process.name), process.pid))
            .collect();
        let threads = trace.threads.iter();
        Self {
            trace,
            event: perf_event(&trace.info.event),
            threads: threads
                .map(|thread| format!("{}/{} ", processes[thread.process.index()], thread.tid))
                .collect(),
            functions: trace.functions.iter().map(FunctionText::of).collect(),
        }
    }

    fn sample(&self, sample: &Sample, time: Time, cpu: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(self.threads[sample.thread.index()].as_bytes());
        put_moment(cpu, time, out);
        put_digits::<10>(out, sample.weight.0, 1, b'0');
        out.push(b' ');
        out.extend_from_slice(self.event.as_bytes());
        out.extend_from_slice(b": \n");
        self.stack(sample.stack, out);
        out.push(b'\n');
    }

    fn stack(&self, stack: StackId, out: &mut Vec<u8>) {
        let mut lines = 0;
        for frame in self.trace.stacks.leaf_first(stack) {
            for function in self.trace.functions_leaf_first(frame) {
                lines += 1;
                if lines == MAX_FRAMES {
                    return out.extend_from_slice(CUT_FRAME);
                }
                self.frame(frame, function, out);
            }
        }
    }

    fn frame(&self, frame: FrameId, function: FunctionId, out: &mut Vec<u8>) {
        let offset = self.trace.frames[frame.index()].offset;
        let function = &self.functions[function.index()];
        out.push(b'\t');
        put_digits::<16>(out, offset, 1, b'0');
        out.push(b' ');
        if !function.has_name {
            out.extend_from_slice(b"0x");
            put_digits::<16>(out, offset, 1, b'0');
        }
        out.extend_from_slice(function.text.as_bytes());
    }
}
