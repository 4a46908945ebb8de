//! Formats samples with resolved addresses as text.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender};

use super::address::put_address;
use super::batch::{Batch, Columns, Frame, Line, Stack};
use super::fields::Fields;
use super::functions::{Functions, StringRef};
use crate::bytes::put_digits;
use crate::trace::Nanos;

/// Size of the text that is written at once, in bytes.
const CHUNK_BYTES: usize = 256 << 10;
/// Width of the thread name of a sample without callchain.
const COMM_WIDTH: usize = 16;

/// Formats batches.
pub(super) struct Printer<'a> {
    pub(super) fields: Fields,
    pub(super) functions: Functions,
    pub(super) stacks: KnownStacks,
    pub(super) text: Vec<u8>,
    /// To the writer, and back from it.
    pub(super) chunks: SyncSender<Vec<u8>>,
    pub(super) spare: Receiver<Vec<u8>>,
    /// Set when the texts are too large.
    pub(super) is_full: &'a AtomicBool,
}

/// Stacks by id.
#[derive(Default)]
pub(super) struct KnownStacks {
    frames: Vec<(u64, StringRef)>,
    /// Start and end of each stack in `frames`.
    places: Vec<(u32, u32)>,
}

impl Printer<'_> {
    /// Prints until there are no more batches or the writer has ended; returns printed batches to
    /// be reused. Returns the problems.
    pub(super) fn run(mut self, batches: Receiver<Batch>, spare: Sender<Batch>) -> Vec<String> {
        for mut batch in batches {
            self.batch(&mut batch);
            batch.clear();
            // The thread that fills batches may have ended.
            let _ = spare.send(batch);
            if self.text.len() >= CHUNK_BYTES {
                let next = self.spare.try_recv();
                let next = next.unwrap_or_else(|_| Vec::with_capacity(2 * CHUNK_BYTES));
                let chunk = std::mem::replace(&mut self.text, next);
                if self.chunks.send(chunk).is_err() {
                    break;
                }
            }
        }
        // The writer's thread returns the reason if it does not receive it.
        let _ = self.chunks.send(self.text);
        self.functions.into_faults()
    }

    fn batch(&mut self, batch: &mut Batch) {
        if batch.forgets_all {
            self.functions.reset();
        }
        if batch.forgets_stacks {
            self.stacks.frames.clear();
            self.stacks.places.clear();
        }
        for object in batch.objects.drain(..) {
            self.functions.add(object);
        }
        let (mut frames, mut texts) = (&batch.frames[..], &batch.text[..]);
        for line in &batch.lines {
            let columns = &batch.events[line.event as usize];
            self.line(
                line,
                columns,
                take(&mut texts, line.comm),
                &mut frames,
                &mut texts,
            );
        }
        if self.functions.is_full() {
            self.is_full.store(true, Ordering::Relaxed);
        }
    }

    fn line(
        &mut self,
        line: &Line,
        columns: &Columns,
        comm: &[u8],
        frames: &mut &[Frame],
        texts: &mut &[u8],
    ) {
        let is_stack = self.fields.ip && columns.has_callchain;
        self.header(line, columns, comm, is_stack);
        self.text.extend_from_slice(take(texts, line.trace));
        if self.fields.ip {
            let (start, end) = self.frames(line.stack, frames);
            let Self {
                stacks,
                functions,
                text,
                ..
            } = self;
            let shown = &stacks.frames[start..end];
            if is_stack {
                text.push(b'\n');
                for &(address, function) in shown {
                    put_address::<b'\t'>(address, text);
                    text.extend_from_slice(functions.get(function));
                    text.push(b'\n');
                }
            } else if let [(_, function)] = shown {
                // A single address is shown unchanged.
                put_address::<b' '>(line.ip, text);
                text.extend_from_slice(functions.get(*function));
            }
            if let Stack::Once(_) | Stack::Inlined(_) = line.stack {
                stacks.frames.truncate(start);
            }
        }
        self.text.push(b'\n');
    }

    /// Returns the frames of a line.
    fn frames(&mut self, stack: Stack, frames: &mut &[Frame]) -> (usize, usize) {
        let Self {
            stacks, functions, ..
        } = self;
        let count = match stack {
            Stack::Known(id) => {
                let (start, end) = stacks.places[id.0 as usize];
                return (start as usize, end as usize);
            }
            Stack::New(count) | Stack::Once(count) | Stack::Inlined(count) => count,
        };
        let start = stacks.frames.len();
        for &frame in take(frames, count) {
            let text = match stack {
                Stack::Inlined(_) => functions.with_inlined(frame),
                _ => functions.text(frame),
            };
            stacks.frames.push((frame.shown, text));
        }
        let end = stacks.frames.len();
        if let Stack::New(_) = stack {
            stacks.places.push((start as u32, end as u32));
        }
        (start, end)
    }

    fn header(&mut self, line: &Line, columns: &Columns, comm: &[u8], is_stack: bool) {
        let Self { fields, text, .. } = self;
        if fields.comm {
            let missing = match is_stack {
                true => 0,
                false => COMM_WIDTH.saturating_sub(comm.len()),
            };
            text.extend(std::iter::repeat_n(b' ', missing));
            text.extend_from_slice(comm);
            text.push(b' ');
        }
        if fields.pid {
            put_task(line.pid.0, 5, text);
            text.push(if fields.tid { b'/' } else { b' ' });
        }
        if fields.tid {
            let (start, width) = (text.len(), if fields.pid { 1 } else { 5 });
            put_task(line.tid.0, width, text);
            let missing = 5_usize.saturating_sub(text.len() - start);
            text.extend(std::iter::repeat_n(b' ', missing + 1));
        }
        if fields.cpu && columns.has_cpu {
            text.push(b'[');
            put_digits::<10>(text, line.cpu.0.into(), 3, b'0');
            text.extend_from_slice(b"] ");
        }
        if fields.time && columns.has_time {
            put_time(line.time, text);
        }
        if fields.period {
            put_digits::<10>(text, line.period, 10, b' ');
            text.push(b' ');
        }
        if fields.event {
            text.extend_from_slice(columns.event.as_bytes());
        }
    }
}

/// Removes and returns the first `count` items.
fn take<'a, T>(from: &mut &'a [T], count: u32) -> &'a [T] {
    let (taken, rest) = from.split_at(count as usize);
    *from = rest;
    taken
}

/// Appends a task id, which may be -1, with a minimum width.
fn put_task(number: i32, width: usize, text: &mut Vec<u8>) {
    match u64::try_from(number) {
        Ok(number) => put_digits::<10>(text, number, width, b' '),
        Err(_) => {
            // Writing to memory cannot fail.
            let _ = write!(text, "{number:width$}");
        }
    }
}

/// Appends seconds and microseconds, at least twelve characters.
fn put_time(time: Nanos, text: &mut Vec<u8>) {
    let (seconds, micros) = (time.0 / 1_000_000_000, time.0 / 1000 % 1_000_000);
    put_digits::<10>(text, seconds, 5, b' ');
    text.push(b'.');
    put_digits::<10>(text, micros, 6, b'0');
    text.extend_from_slice(b": ");
}
