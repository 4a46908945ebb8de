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
//! So each sample has a separate CPU number, and a record after it ends it there after exactly its weight. Samples, their
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
//! # Thread Time
//!
//! A time without a CPU is two records of the scheduler. PerfView reads from the first one, a record with a stack, that a
//! thread left its CPU, and from the second one that it got one again. Only the first one is a record to other readers, of
//! another event than the samples; its period is the length.
//!
//! ```text
//! app 12/13 [000] 4321.5: 2000000 sched:sched_switch: ... prev_pid=13 ... next_pid=0 ...      and a stack
//! # 0/0 [000] 4321.502: sched:sched_switch: ... prev_pid=0 ... next_pid=13 ...
//! ```
//! Thread 0 is idle. A record that it has ended, after time zero, keeps it out of the view.
//!
//! # Page faults and wake-ups
//!
//! Their samples are no CPU time, so each is a text for itself (`faults.perf.txt`, `wakeups.perf.txt`), with the number that
//! a sample stands for as the period. PerfView does not look for them.
//!
//! The Firefox Profiler recognizes perf script text by the first line: a sample, or `# ========` as `perf script --header`
//! prints it.

mod escaped_names;
pub(crate) mod markers;

use std::cmp::Ordering;
use std::io::{self, BufRead, Read, Write};

use super::time_zero::TimeZero;
use crate::bytes::put_digits;
use crate::trace::{FrameId, Nanos, Sample, Samples, StackId, Trace};
use rustc_hash::FxHashMap;

pub(crate) use escaped_names::EscapedNames;

const SECOND_NS: u64 = 1_000_000_000;

/// Limit of a line of a text that is copied: the longest that [`write`] writes has 4 KiB.
const MAX_LINE_BYTES: u64 = 64 << 10;
/// PerfView interns stacks by recursion on threads with 1 MB of stack.
const MAX_FRAMES: usize = 1000;
/// Text before samples that are no CPU time.
const OTHERS_HEADER: &[u8] =
    b"# ========\n# written by perfcollect: samples of an event, each with the number that it stands for\n# ========\n#\n";
/// Replaces the callers of a stack that has more than [`MAX_FRAMES`].
const TRUNCATED_FRAME: &[u8] = b"\t0 {truncated} (perfcollect)\n";

/// Writes the samples of `trace`.
///
/// # Errors
/// Returns the errors of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let times = TimeZero::new(trace);
    let names = EscapedNames::new(trace);
    let mut now = Nanos(times.monotonic());
    let mut text = header(&names, now);
    let mut waits = trace.blocked.iter().peekable();
    for (cpu, mut sample) in (1..).zip(trace.samples.iter()) {
        while let Some(wait) = waits.next_if(|wait| wait.time <= sample.time) {
            put_wait(&names, &times, &wait, &mut text);
        }
        // Late samples are moved: some readers refuse a time before the last one.
        now = now.max(Nanos(times.shifted(sample.time)));
        sample.time = now;
        put_sample(&names, &names.event, &sample, cpu, &mut text);
        let end = now.0.saturating_add(sample.weight.0);
        put_end(cpu, Nanos(end), &mut text);
        out.write_all(&text)?;
        text.clear();
    }
    for wait in waits {
        put_wait(&names, &times, &wait, &mut text);
        out.write_all(&text)?;
        text.clear();
    }
    out.write_all(&text)
}

/// Writes samples of `trace` that are no CPU time, with their event in [`markers`].
///
/// # Errors
/// Returns the errors of `out`.
pub(crate) fn write_others(
    trace: &Trace,
    samples: &Samples,
    event: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let times = TimeZero::new(trace);
    let names = EscapedNames::new(trace);
    let event = format!("{event}: \n");
    let mut text = OTHERS_HEADER.to_vec();
    for mut sample in samples.iter() {
        sample.time = Nanos(times.shifted(sample.time));
        put_sample(&names, &event, &sample, sample.cpu.0 as usize, &mut text);
        out.write_all(&text)?;
        text.clear();
    }
    out.write_all(&text)
}

/// Returns the lines of a frame, innermost function first.
pub(crate) fn frame_lines(names: &EscapedNames<'_>, frame: FrameId) -> Vec<u8> {
    let mut lines = Vec::new();
    for function in names.trace.functions_leaf_first(frame) {
        names.put_frame(frame, function, &mut lines);
    }
    lines
}

/// Copies a text that [`write`] wrote, with other lines for some frames.
///
/// `replaced` has the new lines by old line, which has no line end.
///
/// # Errors
/// Returns the errors of `input` and `out`.
pub(crate) fn replace_frames(
    mut input: impl BufRead,
    replaced: &FxHashMap<Box<[u8]>, Vec<u8>>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut frames = 0;
    loop {
        line.clear();
        let mut limited = input.by_ref().take(MAX_LINE_BYTES);
        if limited.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Some((b'\t', b'\n')) = line.first().copied().zip(line.last().copied()) else {
            frames = 0;
            out.write_all(&line)?;
            continue;
        };
        let old = &line[..line.len() - 1];
        let new = replaced.get(old).map_or(&line, |new| new);
        for line in new.split_inclusive(|byte| *byte == b'\n') {
            frames += 1;
            match frames.cmp(&MAX_FRAMES) {
                Ordering::Less => out.write_all(line)?,
                Ordering::Equal => out.write_all(TRUNCATED_FRAME)?,
                Ordering::Greater => {}
            }
        }
    }
}

/// Returns the text before the samples.
fn header(names: &EscapedNames<'_>, time_zero: Nanos) -> Vec<u8> {
    let mut header = format!(
        "# ========\n# written by perfcollect; for PerfView a sample ends at \"{}[CPU] TIME: {}\"\n",
        markers::END,
        markers::END_EVENT
    );
    if let Some(warning) = names.trace.quality.losses.incomplete_warning() {
        header += &format!("# {warning}\n");
    }
    header += "# ========\n#\n ";
    header += markers::TIME_ZERO;
    header += " 0/0 ";
    let mut header = header.into_bytes();
    put_moment(0, time_zero, &mut header);
    header.extend_from_slice(format!("1 {}\n", names.event).as_bytes());
    if !names.trace.blocked.is_empty() {
        header.extend_from_slice(markers::END.as_bytes());
        put_moment(0, time_zero, &mut header);
        header.extend_from_slice(markers::NO_IDLE_THREAD.as_bytes());
    }
    header
}

fn put_sample(
    names: &EscapedNames<'_>,
    event: &str,
    sample: &Sample,
    cpu: usize,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(names.thread(sample.thread));
    put_moment(cpu, sample.time, out);
    put_digits::<10>(out, sample.weight.0, 1, b'0');
    out.push(b' ');
    out.extend_from_slice(event.as_bytes());
    put_stack(names, sample.stack, out);
    out.push(b'\n');
}

/// Writes the time for which a thread had no CPU.
fn put_wait(names: &EscapedNames<'_>, times: &TimeZero, wait: &Sample, out: &mut Vec<u8>) {
    let end = times.shifted(wait.time);
    let start = end.saturating_sub(wait.weight.0);
    let tid = names.trace.threads[wait.thread.index()].tid;
    out.extend_from_slice(names.thread(wait.thread));
    put_moment(0, Nanos(start), out);
    put_digits::<10>(out, wait.weight.0, 1, b'0');
    let switch = format!(
        " {}: prev_comm=x prev_pid={tid} prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n",
        markers::SWITCH
    );
    out.extend_from_slice(switch.as_bytes());
    put_stack(names, wait.stack, out);
    out.push(b'\n');
    out.extend_from_slice(markers::END.as_bytes());
    put_moment(0, Nanos(end), out);
    let switch = format!(
        "{}: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=x next_pid={tid} next_prio=120\n",
        markers::SWITCH
    );
    out.extend_from_slice(switch.as_bytes());
}

fn put_stack(names: &EscapedNames<'_>, stack: StackId, out: &mut Vec<u8>) {
    if stack == StackId::EMPTY {
        // Some readers drop a sample that has no frame.
        out.push(b'\t');
        out.extend_from_slice(markers::NO_STACK.as_bytes());
        out.push(b'\n');
    }
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
fn put_end(cpu: usize, time: Nanos, out: &mut Vec<u8>) {
    out.extend_from_slice(markers::END.as_bytes());
    put_moment(cpu, time, out);
    out.extend_from_slice(markers::END_EVENT.as_bytes());
    out.push(b'\n');
}

/// Appends a time as perf prints it, to the nanosecond: `[001] 4321.987654321: `.
fn put_moment(cpu: usize, time: Nanos, out: &mut Vec<u8>) {
    out.push(b'[');
    put_digits::<10>(out, cpu as u64, 3, b'0');
    out.extend_from_slice(b"] ");
    put_digits::<10>(out, time.0 / SECOND_NS, 1, b'0');
    out.push(b'.');
    put_digits::<10>(out, time.0 % SECOND_NS, 9, b'0');
    out.extend_from_slice(b": ");
}
