//! The text that `perf script` prints of a recording, for whatever reads that.
//!
//! ```text
//! native-fp 31337/31338 [001] 12702.459459:    1001001 cpu-clock:ppp:
//!             1139 spin (/usr/bin/native-fp)
//! ```
//! The addresses of a callchain are where the code is in its file. Where functions and stacks are better known here than
//! perf knows them, the text is better; `docs/converting.md` lists in what.

mod fields;
mod frames;
mod kernel;
mod stacks;
mod tracepoint;

pub use fields::{Fields, UnknownField};

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;

use perf_event_open_sys::bindings as sys;

use crate::bytes::put_digits;
use crate::machine::{Machine, Recorded};
use crate::perf::{CpuMode, Record, SampleRecord};
use crate::perf_data::{About, Attribute, Entry, EventSource, Reader};
use crate::trace::{Nanos, Tid};
use crate::unwind::{SampledProcess, Unwinder};
use frames::Frames;
use kernel::Kernel;
use stacks::Stacks;
use tracepoint::Formats;

/// Text that is written at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Chunks that wait to be written.
const CHUNKS_AHEAD: usize = 4;
/// Frames of a stack that are printed, as perf's own limit is.
const MAX_FRAMES: usize = 127;
const CALLCHAIN_CONTEXT_MAX: u64 = -4095_i64 as u64;

/// What is left to tell when all is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Printed {
    /// Samples.
    pub samples: u64,
    /// Records and samples the kernel dropped.
    pub lost: u64,
}

/// Prints a recording.
///
/// # Errors
/// What `out` returns.
pub fn print<R: io::Read>(
    reader: &mut Reader<R>,
    mut recorded: Recorded,
    kallsyms: Option<&Path>,
    fields: Fields,
    out: impl Write + Send,
) -> io::Result<Printed> {
    let about = &reader.about;
    recorded.learn(&about.host, &about.release, &about.build_ids);
    let mut kernel = Kernel::default();
    if let Some(kallsyms) = kallsyms {
        kernel.read_symbols(kallsyms);
    }
    let (chunks, written) = mpsc::sync_channel(CHUNKS_AHEAD);
    let mut script = Script {
        fields,
        chunks,
        text: Vec::with_capacity(2 * CHUNK_BYTES),
        event_width: about
            .events
            .iter()
            .map(|event| event.name.len())
            .max()
            .unwrap_or(0),
        machine: Machine::recorded(recorded),
        unwinder: Unwinder::default(),
        frames: Frames::new(fields, kernel),
        stacks: Stacks::default(),
        formats: Default::default(),
        printed: Printed::default(),
    };
    // Writing takes a third of the time.
    thread::scope(|scope| {
        let writing = scope.spawn(|| write_chunks(written, out));
        reader.each(|about, entry| script.take(about, &entry));
        let printed = script.finish();
        match writing.join() {
            Ok(written) => written.map(|()| printed),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

/// Writes chunks until there are no more. Ends with the first error; then nobody takes chunks.
fn write_chunks(chunks: Receiver<Vec<u8>>, mut out: impl Write) -> io::Result<()> {
    for chunk in chunks {
        out.write_all(&chunk)?;
    }
    out.flush()
}

struct Script {
    fields: Fields,
    /// To whom writes them.
    chunks: SyncSender<Vec<u8>>,
    text: Vec<u8>,
    /// Names of events are as wide as the widest.
    event_width: usize,
    machine: Machine,
    unwinder: Unwinder,
    frames: Frames,
    stacks: Stacks,
    /// Read from what the recording has of them, so many bytes.
    formats: (usize, Formats),
    printed: Printed,
}

impl Script {
    /// Breaks off when nothing can be written.
    fn take(&mut self, about: &About, entry: &Entry<'_>) -> ControlFlow<()> {
        match &entry.record {
            Record::Sample(sample) => {
                self.printed.samples += 1;
                self.sample(about, &about.events[entry.event], sample);
                if self.text.len() >= CHUNK_BYTES {
                    let next = Vec::with_capacity(2 * CHUNK_BYTES);
                    let chunk = std::mem::replace(&mut self.text, next);
                    if self.chunks.send(chunk).is_err() {
                        return ControlFlow::Break(());
                    }
                }
            }
            Record::Mapping(mapping) if mapping.pid.0 < 0 => {
                let is_listed = about.build_ids.contains_key(mapping.path);
                self.frames.kernel.map(mapping, is_listed);
            }
            Record::KernelCode(code) => {
                self.frames.follow(code);
                self.stacks.forget_all();
            }
            // perf's own count at the end has them once more.
            Record::LostSamples { .. } if about.events[entry.event].counts_losses() => {}
            Record::Lost { records: lost, .. } | Record::LostSamples { samples: lost, .. } => {
                self.printed.lost = self.printed.lost.saturating_add(*lost);
            }
            record => {
                if let Some(pid) = record.process() {
                    self.stacks.forget(pid);
                }
                self.machine.apply(entry.time, record);
            }
        }
        ControlFlow::Continue(())
    }

    fn finish(self) -> Printed {
        // Whoever does not take it says why.
        let _ = self.chunks.send(self.text);
        self.printed
    }

    fn sample(&mut self, about: &About, event: &Attribute, sample: &SampleRecord<'_>) {
        let is_stack = self.fields.ip && event.has_callchain();
        self.header(event, sample, is_stack);
        if let EventSource::Tracepoint(id) = event.source()
            && self.fields.trace
            && event.has(sys::PERF_SAMPLE_RAW)
        {
            // In a pipe they may come late.
            if self.formats.0 != about.tracing_data.len() {
                let formats = Formats::read(&about.tracing_data);
                self.formats = (about.tracing_data.len(), formats);
            }
            self.formats.1.print(id, sample.raw, &mut self.text);
        }
        if is_stack {
            self.text.push(b'\n');
            self.stack(sample);
        } else if self.fields.ip {
            self.text.push(b' ');
            match sample.mode {
                CpuMode::Kernel => self.frames.kernel(sample.ip, false, &mut self.text),
                CpuMode::User | CpuMode::Other => {
                    self.frames
                        .user(&self.machine, sample.pid, sample.ip, false, &mut self.text)
                }
            }
        }
        self.text.push(b'\n');
    }

    fn header(&mut self, event: &Attribute, sample: &SampleRecord<'_>, is_stack: bool) {
        let Self {
            fields,
            text,
            machine,
            event_width,
            ..
        } = self;
        if fields.comm {
            comm(machine, sample.tid, if is_stack { 0 } else { 16 }, text);
        }
        // Writing to memory cannot fail.
        let _ = match (fields.pid, fields.tid) {
            (true, true) => write!(text, "{:5}/{:<5} ", sample.pid.0, sample.tid.0),
            (true, false) => write!(text, "{:5} ", sample.pid.0),
            (false, true) => write!(text, "{:5} ", sample.tid.0),
            (false, false) => Ok(()),
        };
        if fields.cpu && event.has(sys::PERF_SAMPLE_CPU) {
            text.push(b'[');
            put_digits::<10>(text, sample.cpu.0.into(), 3, b'0');
            text.extend_from_slice(b"] ");
        }
        if fields.time && event.has(sys::PERF_SAMPLE_TIME) {
            time(sample.time, text);
        }
        if fields.period {
            let period = match event.has(sys::PERF_SAMPLE_PERIOD) {
                true => sample.period,
                false => event.period,
            };
            put_digits::<10>(text, period, 10, b' ');
            text.push(b' ');
        }
        if fields.event {
            let _ = write!(text, "{:>1$}: ", event.name, *event_width);
        }
    }

    /// The frames of a sample: as they were printed before, if the process has had the same callchain.
    fn stack(&mut self, sample: &SampleRecord<'_>) {
        let is_walked = sample.registers.is_some() && !sample.stack.is_empty();
        if is_walked {
            return self.walked(sample);
        }
        if sample.calls.is_empty() && self.stacks.print(sample, &mut self.text) {
            return;
        }
        let start = self.text.len();
        let mut mode = CpuMode::User;
        let mut frames = 0;
        for entry in sample.chain() {
            if entry >= CALLCHAIN_CONTEXT_MAX {
                mode = context(entry);
                continue;
            }
            frames += 1;
            if frames > MAX_FRAMES {
                break;
            }
            match mode {
                CpuMode::Kernel => self.frames.kernel(entry, true, &mut self.text),
                CpuMode::User => {
                    self.frames
                        .user(&self.machine, sample.pid, entry, true, &mut self.text);
                }
                CpuMode::Other => {}
            }
        }
        if sample.calls.is_empty() {
            self.stacks.keep(sample, &self.text[start..]);
        }
    }

    /// The same where the stack was copied.
    fn walked(&mut self, sample: &SampleRecord<'_>) {
        for ip in sample.kernel_chain() {
            self.frames.kernel(ip, true, &mut self.text);
        }
        let (_, process) = self.machine.sampled(sample.pid, sample.tid);
        self.machine.take_changes();
        let Some(maps) = self.machine.maps(sample.pid) else {
            return;
        };
        let host = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps,
            files: self.machine.files(),
            comes_again: false,
        };
        let mut codes = Vec::new();
        self.unwinder.walk(sample, host, &mut codes);
        for &ip in self.unwinder.user_addresses().iter().take(MAX_FRAMES) {
            self.frames
                .user(&self.machine, sample.pid, ip, true, &mut self.text);
        }
    }
}

fn context(marker: u64) -> CpuMode {
    match marker {
        sys::PERF_CONTEXT_KERNEL => CpuMode::Kernel,
        sys::PERF_CONTEXT_USER => CpuMode::User,
        _ => CpuMode::Other,
    }
}

/// The name of a thread, right-aligned, and a blank.
fn comm(machine: &Machine, tid: Tid, width: usize, text: &mut Vec<u8>) {
    let start = text.len();
    match machine.thread_name(tid) {
        _ if tid.0 == 0 => text.extend_from_slice(b"swapper"),
        Some(name) if !name.is_empty() => {
            let printable = |&byte: &u8| if byte < 0x20 { b'?' } else { byte };
            text.extend(name.iter().map(printable));
        }
        _ => {
            let _ = write!(text, ":{}", tid.0);
        }
    }
    let missing = width.saturating_sub(text.len() - start);
    text.splice(start..start, std::iter::repeat_n(b' ', missing));
    text.push(b' ');
}

/// Seconds and microseconds, at least twelve characters.
fn time(time: Nanos, text: &mut Vec<u8>) {
    let (seconds, micros) = (time.0 / 1_000_000_000, time.0 / 1000 % 1_000_000);
    put_digits::<10>(text, seconds, 5, b' ');
    text.push(b'.');
    put_digits::<10>(text, micros, 6, b'0');
    text.extend_from_slice(b": ");
}
