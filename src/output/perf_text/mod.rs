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

mod escaped_names;
mod text_block;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::deflate::Deflate;
use super::time_zero::TimeZero;
use crate::trace::{Nanos, Sample, Trace};
use escaped_names::EscapedNames;
use text_block::{TextBlock, put_moment};

/// Bytes of a block, and of a line without its stack.
const BLOCK_BYTES: u64 = 256 << 10;
const LINE_BYTES: u64 = 72;

/// A line, and the stack below it.
enum Line {
    /// A sample, at its time in the text, with a CPU of its own.
    Sample(Sample, usize),
    /// The end of the sample on this CPU.
    End(Nanos, usize),
}

/// Writes the samples of `trace`.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let times = TimeZero::of(trace);
    out.write_all(&begin(trace, &times))?;
    let names = EscapedNames::new(trace);
    let mut page = TextBlock::new(&names);
    blocks(&names, &times, |lines| {
        page.fill(&names, &lines);
        out.write_all(page.draft.bytes())?;
        page.draft.clear();
        Ok(())
    })
}

/// The same, made and deflated block by block beside each other.
pub(super) fn deflate<'a, W: Write>(
    trace: &'a Trace,
    out: &mut Deflate<'_, 'a, W>,
) -> io::Result<()> {
    let times = TimeZero::of(trace);
    out.write_all(&begin(trace, &times))?;
    let names = Arc::new(EscapedNames::new(trace));
    let pages: Arc<Mutex<Vec<TextBlock>>> = Arc::default();
    blocks(&names, &times, |lines| {
        let (names, pages) = (Arc::clone(&names), Arc::clone(&pages));
        out.write_draft(move || {
            let pages = || pages.lock().unwrap_or_else(PoisonError::into_inner);
            let page = pages().pop();
            let mut page = page.unwrap_or_else(|| TextBlock::new(&names));
            page.fill(&names, &lines);
            let deflated = page.draft.deflate();
            pages().push(page);
            deflated
        })
    })
}

/// What stands before the samples.
fn begin(trace: &Trace, times: &TimeZero) -> Vec<u8> {
    let mut begin = Vec::new();
    if let Some(mark) = trace.quality.losses.mark() {
        // Readers take comments at the top, and nowhere else.
        begin.extend_from_slice(format!("# {mark}\n").as_bytes());
    }
    begin.extend_from_slice(b"swapper 0/0 ");
    put_moment(0, Nanos(times.monotonic()), &mut begin);
    begin.extend_from_slice(b"1 sched:sched_process_exit: comm=swapper pid=0 prio=120\n\n");
    begin
}

/// Hands out the lines, block by block.
fn blocks(
    names: &EscapedNames<'_>,
    times: &TimeZero,
    mut each: impl FnMut(Vec<Line>) -> io::Result<()>,
) -> io::Result<()> {
    let mut lines = Vec::new();
    let mut bytes = 0;
    let mut idle: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut now = Nanos(times.monotonic());
    for (row, mut sample) in names.trace.samples.iter().enumerate() {
        // Late samples are moved, as one line out of order makes PerfView's weights negative.
        now = now.max(Nanos(times.moved(sample.time)));
        while let Some(&Reverse((end, cpu))) = idle.peek()
            && end <= now
        {
            idle.pop();
            lines.push(Line::End(end, cpu));
            bytes += LINE_BYTES;
        }
        let cpu = row + 1;
        sample.time = now;
        lines.push(Line::Sample(sample, cpu));
        bytes += LINE_BYTES + u64::from(names.stack(sample.stack).bytes);
        idle.push(Reverse((Nanos(now.0.saturating_add(sample.weight.0)), cpu)));
        if bytes >= BLOCK_BYTES {
            each(std::mem::take(&mut lines))?;
            bytes = 0;
        }
    }
    while let Some(Reverse((end, cpu))) = idle.pop() {
        lines.push(Line::End(end, cpu));
    }
    each(lines)
}
