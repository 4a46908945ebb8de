//! `perf.data.txt`: the samples as `perf script` prints them, in a dialect in which PerfView finds their exact weights, and
//! every other reader of such text the samples and nothing else.
//!
//! # Weights in PerfView
//!
//! PerfView ignores the period. It charges a sample with the time to the next record *on the same CPU number*, and never
//! shows the last record of a CPU. With the real numbers a sample before a pause would be charged with the pause, and two
//! threads that take turns on a CPU, each with its own timer, would be charged with the time between their ticks.
//!
//! ```text
//! cpu 3, weight 1 ms:  a at 0, b at 0.4, c at 9       PerfView charges a 0.4, b 8.6, c nothing
//!
//! as cpu 1:            a at 0, end at 1
//! as cpu 2:            b at 0.4, end at 1.4           PerfView charges a 1, b 1, c 1, and shows no end:
//! as cpu 3:            c at 9, end at 10              each is the last record of its CPU
//! ```
//! So each sample has a CPU number of its own, and a record after it ends it there after exactly its weight. Samples, their
//! times and their total in PerfView are those of the trace. The price is the real CPU number, which PerfView shows nowhere,
//! and one short line per sample. Filling gaps on the real CPUs, as `perf record` of an idle machine does, cannot express
//! overlapping samples and adds a process `swapper` with samples that no timer took.
//!
//! # Two records for PerfView alone
//!
//! Other readers count records, or add up their periods (the weights), and some keep only the event of the first record.
//! For them no record but a sample may be in the text, and each sample must have a frame.
//!
//! ```text
//!  swapper (cpu_idle) 0/0 [000] 4321.000000000: 1 cpu-clock:     time zero, before the samples
//! # 0/0 [001] 4321.988654321: end:                               the end of the sample on CPU number 1, after its empty line
//! ```
//! **An end** is a comment to other readers. To PerfView a `#` is a comment only before the first record; after it, the name
//! of a process.
//!
//! **Time zero** is where that of the events is (`time_zero`): PerfView counts time from the first record, which cannot be
//! a comment. What makes the others pass over it:
//!
//! | reader | why |
//! |---|---|
//! | stackcollapse-perf.pl | after the space at its start the line is no sample; with ` (cpu_idle)` it is a frame, outside of any sample |
//! | inferno | a sample of the event that it shall keep, without a frame |
//! | speedscope | no sample, because of the space at its start; the empty line ends it |
//! | Firefox Profiler | a sample without a frame |
//! | FlameScope | a sample of the idle process, in an idle function |
//!
//! The Firefox Profiler recognizes perf script text by the first line: a sample, or `# ========` as `perf script --header`
//! prints it.

mod escaped_names;
pub(crate) mod markers;
mod text_block;

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};

use super::deflate::Deflate;
use super::time_zero::TimeZero;
use crate::trace::{Nanos, Sample, Trace};
use escaped_names::EscapedNames;
use text_block::{TextBlock, put_moment};

/// Bytes of a block, and of the lines of a sample without its stack.
const BLOCK_BYTES: u64 = 256 << 10;
const LINE_BYTES: u64 = 112;

/// Samples that follow one another, at their times in the text.
struct Block {
    samples: Vec<Sample>,
    /// CPU number of the first one; each has the next.
    first_cpu: usize,
}

/// Writes the samples of `trace`.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let times = TimeZero::of(trace);
    let names = EscapedNames::new(trace);
    out.write_all(&begin(&names, &times))?;
    let mut page = TextBlock::new(&names);
    blocks(&names, &times, |block| {
        page.fill(&names, &block);
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
    let names = Arc::new(EscapedNames::new(trace));
    out.write_all(&begin(&names, &times))?;
    let pages: Arc<Mutex<Vec<TextBlock>>> = Arc::default();
    blocks(&names, &times, |block| {
        let (names, pages) = (Arc::clone(&names), Arc::clone(&pages));
        out.write_draft(move || {
            let pages = || pages.lock().unwrap_or_else(PoisonError::into_inner);
            let page = pages().pop();
            let mut page = page.unwrap_or_else(|| TextBlock::new(&names));
            page.fill(&names, &block);
            let deflated = page.draft.deflate();
            pages().push(page);
            deflated
        })
    })
}

/// The text before the samples.
fn begin(names: &EscapedNames<'_>, times: &TimeZero) -> Vec<u8> {
    let mut begin = format!(
        "# ========\n# written by perfcollect; for PerfView a sample ends at \"{}[CPU] TIME: {}\"\n",
        markers::END,
        markers::END_EVENT
    );
    if let Some(mark) = names.trace.quality.losses.mark() {
        begin += &format!("# {mark}\n");
    }
    begin += "# ========\n#\n ";
    begin += markers::TIME_ZERO;
    begin += " 0/0 ";
    let mut begin = begin.into_bytes();
    put_moment(0, Nanos(times.monotonic()), &mut begin);
    begin.extend_from_slice(format!("1 {}\n", names.event).as_bytes());
    begin
}

/// Hands out the samples, block by block.
fn blocks(
    names: &EscapedNames<'_>,
    times: &TimeZero,
    mut each: impl FnMut(Block) -> io::Result<()>,
) -> io::Result<()> {
    let mut first_cpu = 1;
    let mut samples = Vec::new();
    let mut bytes = 0;
    let mut now = Nanos(times.monotonic());
    for mut sample in names.trace.samples.iter() {
        // Late samples are moved: some readers refuse a time before the last one.
        now = now.max(Nanos(times.moved(sample.time)));
        sample.time = now;
        samples.push(sample);
        bytes += LINE_BYTES + u64::from(names.stack(sample.stack).bytes);
        if bytes >= BLOCK_BYTES {
            let next_cpu = first_cpu + samples.len();
            let samples = std::mem::take(&mut samples);
            each(Block { samples, first_cpu })?;
            (first_cpu, bytes) = (next_cpu, 0);
        }
    }
    each(Block { samples, first_cpu })
}
