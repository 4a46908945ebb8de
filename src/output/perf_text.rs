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
use crate::trace::{FrameId, FunctionId, Nanos, Sample, StackId, Trace};

const SECOND_NS: u64 = 1_000_000_000;

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
    if let Some(mark) = trace.quality.losses.mark() {
        // Readers take comments at the top, and nowhere else.
        writeln!(out, "# {mark}")?;
    }
    writeln!(
        out,
        "swapper 0/0 [000] {zero}: 1 sched:sched_process_exit: comm=swapper pid=0 prio=120\n"
    )?;

    let text = Text::new(trace);
    let mut idle: BinaryHeap<Reverse<(Time, usize)>> = BinaryHeap::new();
    let mut now = zero;
    let mut buffer = Vec::new();
    for (row, sample) in trace.samples.iter().enumerate() {
        // Late samples are moved, as one line out of order makes PerfView's weights negative.
        now = now.max(Time(times.moved(sample.time)));
        while let Some(&Reverse((end, cpu))) = idle.peek()
            && end <= now
        {
            idle.pop();
            write_idle(end, cpu, &mut buffer)?;
        }
        let cpu = row + 1;
        text.sample(&sample, now, cpu, &mut buffer)?;
        idle.push(Reverse((now.after(sample.weight), cpu)));
        out.write_all(&buffer)?;
        buffer.clear();
    }
    while let Some(Reverse((end, cpu))) = idle.pop() {
        write_idle(end, cpu, &mut buffer)?;
    }
    out.write_all(&buffer)
}

/// More bytes than [`write()`] needs, and than the same stacks take folded.
pub(super) fn max_bytes(trace: &Trace) -> u64 {
    /// All of a sample and its idle line but for the frames.
    const HEADERS: u64 = 512;
    let text = Text::new(trace);
    let mut bytes_of = Vec::with_capacity(trace.stacks.len());
    for (_, caller, frame) in trace.stacks.nodes() {
        let callers: u64 = bytes_of.get(caller.index()).copied().unwrap_or(0);
        let functions = trace.functions_leaf_first(frame);
        let own: usize = functions
            .map(|function| text.functions[function.index()].max_bytes())
            .sum();
        bytes_of.push(callers + own as u64);
    }
    let stacks = trace
        .samples
        .iter()
        .map(|sample| bytes_of.get(sample.stack.index()));
    stacks
        .map(|bytes| HEADERS + bytes.copied().unwrap_or(0))
        .sum()
}

/// Ends the sample on a CPU.
fn write_idle(end: Time, cpu: usize, out: &mut Vec<u8>) -> io::Result<()> {
    write!(
        out,
        "swapper 0/0 [{cpu:03}] {end}: 1 cpu-clock: \n\t0 idle (vmlinux)\n\n"
    )
}

/// A time as perf prints it: seconds and, to the nanosecond, their fraction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Time(u64);

impl Time {
    fn after(self, weight: Nanos) -> Self {
        Self(self.0.saturating_add(weight.0))
    }
}

impl std::fmt::Display for Time {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0 / SECOND_NS, self.0 % SECOND_NS)
    }
}

/// The escaped names: each is made once, a line then only copies them. A text per stack would save little time and
/// need memory for all of them.
struct Text<'a> {
    trace: &'a Trace,
    event: String,
    comms: Vec<String>,
    functions: Vec<FunctionText>,
}

/// A function's part of a frame line.
struct FunctionText {
    /// `None`: the offset of the frame is the name.
    symbol: Option<String>,
    /// Module and end of line.
    rest: String,
}

impl FunctionText {
    fn max_bytes(&self) -> usize {
        /// An address, an offset, and what separates them.
        const NUMBERS: usize = 40;
        NUMBERS + self.symbol.as_ref().map_or(0, String::len) + self.rest.len()
    }
}

impl<'a> Text<'a> {
    fn new(trace: &'a Trace) -> Self {
        let functions = trace.functions.iter().map(|function| {
            let tier = function.tier.as_deref().and_then(perf_tier);
            let tier = tier.map_or_else(String::new, |tier| format!("[{tier}]"));
            let module = perf_module(&function.module)
                .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned());
            FunctionText {
                symbol: label::known_name(function)
                    .map(|name| perf_symbol(name) + &tier)
                    .or_else(|| Some(format!("{:#x}", function.start?))),
                rest: format!(" ({module})\n"),
            }
        });
        Self {
            trace,
            event: perf_event(&trace.info.event),
            comms: trace.processes.iter().map(|p| perf_comm(&p.name)).collect(),
            functions: functions.collect(),
        }
    }

    fn sample(&self, sample: &Sample, time: Time, cpu: usize, out: &mut Vec<u8>) -> io::Result<()> {
        let thread = &self.trace.threads[sample.thread.index()];
        let pid = self.trace.process_of(sample.thread).pid;
        let comm = &self.comms[thread.process.index()];
        let (tid, weight, event) = (thread.tid, sample.weight, &self.event);
        writeln!(
            out,
            "{comm} {pid}/{tid} [{cpu:03}] {time}: {weight} {event}: "
        )?;
        self.stack(sample.stack, out)?;
        out.push(b'\n');
        Ok(())
    }

    fn stack(&self, stack: StackId, out: &mut Vec<u8>) -> io::Result<()> {
        let mut lines = 0;
        for frame in self.trace.stacks.leaf_first(stack) {
            for function in self.trace.functions_leaf_first(frame) {
                lines += 1;
                if lines == MAX_FRAMES {
                    return out.write_all(CUT_FRAME);
                }
                self.frame(frame, function, out)?;
            }
        }
        Ok(())
    }

    fn frame(&self, frame: FrameId, function: FunctionId, out: &mut Vec<u8>) -> io::Result<()> {
        let code = &self.trace.frames[frame.index()];
        let text = &self.functions[function.index()];
        write!(out, "\t{:x} ", code.offset)?;
        match &text.symbol {
            Some(symbol) => out.extend_from_slice(symbol.as_bytes()),
            None => write!(out, "{:#x}", code.offset)?,
        }
        out.extend_from_slice(text.rest.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::output::folded;
    use crate::trace::{Frame, Function, FunctionKind, Pid, Process, ProcessId, Thread, ThreadId};

    #[test]
    fn no_text_is_larger_than_promised() {
        for name in [
            None,
            Some("f".into()),
            Some("\u{202e}\n".repeat(40_000).into()),
        ] {
            let mut trace = Trace::default();
            trace.processes.push(Process {
                pid: Pid(i32::MAX),
                name: "p".repeat(15).into(),
                command_line: "".into(),
            });
            trace.threads.push(Thread {
                process: ProcessId(0),
                tid: crate::trace::Tid(i32::MAX),
                name: "".into(),
            });
            trace.functions.push(Function {
                name,
                module: "m".into(),
                tier: None,
                kind: FunctionKind::Jit,
                start: None,
                inlined: true,
            });
            trace.frame_functions.push(FunctionId(0));
            trace.frames.push(Frame {
                offset: u64::MAX,
                functions: 0..1,
            });
            let stack = trace.stacks.intern([FrameId(0); 3]);
            trace.samples.push(Sample {
                time: Nanos(u64::MAX),
                weight: Nanos(u64::MAX),
                thread: ThreadId(0),
                cpu: crate::trace::Cpu(0),
                stack,
            });
            let (mut text, mut stacks) = (Vec::new(), Vec::new());
            write(&trace, &mut text).unwrap();
            folded::write(&trace, &mut stacks).unwrap();
            assert!(text.len().max(stacks.len()) as u64 <= max_bytes(&trace));
        }
    }
}
