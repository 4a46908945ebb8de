//! Converts records to samples with resolved addresses: tracks processes, threads and mappings.

use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender};

use perf_event_open_sys::bindings as sys;

use super::Printed;
use super::address_resolver::AddressResolver;
use super::batch::{Batch, Line, Stack};
use super::counters::Counters;
use super::fields::Fields;
use super::functions::{printable, words};
use super::stacks::Stacks;
use super::symbols::KernelList;
use super::tracepoint::Formats;
use crate::machine::Machine;
use crate::perf::{CONTEXT_MAX, CpuMode, Record, SampleRecord};
use crate::perf_data::{
    Attribute, EventSource, KernelMapping, RecordingInfo, TimedRecord, kernel_mismatch,
};
use crate::trace::{Pid, Tid};
use crate::unwind::{Epoch, SampledProcess, Unwinder};

/// Maximum number of printed frames of a stack, the limit of perf.
const MAX_FRAMES: usize = 127;

/// Fills batches.
pub(super) struct Samples<'a> {
    pub(super) fields: Fields,
    /// Whether to show inlined functions in user stack copies.
    pub(super) shows_inlined: bool,
    /// Width of the longest event name.
    pub(super) event_width: usize,
    pub(super) machine: Machine,
    pub(super) unwinder: Unwinder,
    pub(super) places: AddressResolver,
    pub(super) kernel: Arc<KernelList>,
    pub(super) stacks: Stacks,
    /// The formats, and the number of bytes of the recording's description that they were read
    /// from.
    pub(super) formats: (usize, Formats),
    pub(super) counters: Counters,
    pub(super) printed: Printed,
    /// Why kernel functions have no names, until it is reported.
    pub(super) nameless_kernel: Option<String>,
    pub(super) tell: &'a mut dyn FnMut(&str),
    /// The kernel's symbol list, if not the running kernel's.
    pub(super) kallsyms: Option<&'a Path>,
    pub(super) batch: Batch,
    /// To the printer, and back from it.
    pub(super) batches: SyncSender<Batch>,
    pub(super) spare: Receiver<Batch>,
    /// Set by the printer when its texts are too large.
    pub(super) is_full: &'a AtomicBool,
}

impl Samples<'_> {
    /// Adds a record. Breaks if the printer has ended.
    pub(super) fn take(
        &mut self,
        info: &RecordingInfo,
        entry: &TimedRecord<'_>,
    ) -> ControlFlow<()> {
        match &entry.record {
            Record::Sample(sample) => {
                self.printed.samples += 1;
                if sample.counts.is_empty() {
                    let attribute = &info.events[entry.event];
                    let period = match attribute.has(sys::PERF_SAMPLE_PERIOD) {
                        true => sample.period,
                        false => attribute.period,
                    };
                    return self.sample(info, entry.event, period, sample);
                }
                // A group has at most as many members as there are events.
                for counter in sample.counts.iter().take(info.events.len()) {
                    if let Some((event, period)) = self.counters.since(info, counter) {
                        self.sample(info, event, period, sample)?;
                    }
                }
            }
            Record::Mapping(mapping) if mapping.pid.0 < 0 => {
                let kernel = &mut self.places.kernel;
                kernel.map(mapping, info);
                if let Some(recorded) = KernelMapping::of(mapping)
                    && !std::mem::replace(&mut kernel.is_checked, true)
                {
                    let why = kernel_mismatch(info, Some(&recorded), self.kallsyms);
                    kernel.is_another = why.is_some();
                    self.nameless_kernel = why;
                }
            }
            Record::Ksymbol(code) => {
                self.places.kernel.follow(code);
                self.stacks.forget_all();
            }
            // perf's own total at the end counts them again.
            Record::LostSamples { .. } if info.events[entry.event].counts_losses() => {}
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

    /// Sends the batch and starts another.
    fn send(&mut self) -> ControlFlow<()> {
        self.tell();
        let next = self.spare.try_recv().unwrap_or_default();
        let batch = std::mem::replace(&mut self.batch, next);
        if self.batches.send(batch).is_err() {
            return ControlFlow::Break(());
        }
        let is_full = self.is_full.swap(false, Ordering::Relaxed);
        if is_full || self.places.is_full() {
            self.places.reset();
            self.batch.forgets_all = true;
        }
        if self.batch.forgets_all || self.stacks.is_full() {
            self.stacks.reset();
            self.batch.forgets_stacks = true;
        }
        ControlFlow::Continue(())
    }

    /// Reports what is missing in a batch before it is sent.
    fn tell(&mut self) {
        if self.places.kernel.is_asked
            && let Some(why) = self.nameless_kernel.take()
        {
            (self.tell)(&format!("kernel frames have no names: {why}"));
        }
    }

    pub(super) fn finish(mut self) -> Printed {
        self.tell();
        // The printer's thread returns the reason if it does not receive it.
        let _ = self.batches.send(std::mem::take(&mut self.batch));
        self.nameless_kernel = self.kernel.error();
        self.tell();
        let nameless = self.places.made.into_notices().into_iter();
        self.printed.faults.extend(nameless.map(words));
        self.printed
    }

    fn sample(
        &mut self,
        info: &RecordingInfo,
        event: usize,
        period: u64,
        sample: &SampleRecord<'_>,
    ) -> ControlFlow<()> {
        self.batch.know(info, self.event_width);
        let attribute = &info.events[event];
        let mut line = Line::of(event, period, sample);
        if self.fields.comm {
            line.comm = comm(&self.machine, sample.tid, &mut self.batch.text);
        }
        if self.fields.trace {
            line.trace = self.trace(info, attribute, sample);
        }
        if self.fields.ip {
            line.stack = match attribute.has_callchain() {
                true => self.stack(sample),
                false => self.once(sample.pid, [(sample.mode, sample.ip)]),
            };
        }
        self.batch.lines.push(line);
        match self.batch.is_full() {
            true => self.send(),
            false => ControlFlow::Continue(()),
        }
    }

    /// Appends the text of a tracepoint and returns its length in bytes.
    fn trace(&mut self, info: &RecordingInfo, event: &Attribute, sample: &SampleRecord<'_>) -> u32 {
        let text = &mut self.batch.text;
        let before = text.len();
        if let EventSource::Tracepoint(id) = event.source()
            && event.has(sys::PERF_SAMPLE_RAW)
        {
            // A pipe may contain them late.
            if self.formats.0 != info.tracing_data.len() {
                let formats = Formats::read(&info.tracing_data);
                self.formats = (info.tracing_data.len(), formats);
            }
            let function = |address| {
                let (name, start) = self.places.kernel.function(address, &self.kernel)?;
                Some((String::from_utf8_lossy(name).into_owned(), start))
            };
            self.formats.1.print(id, sample.raw, &function, text);
        }
        (text.len() - before) as u32
    }

    fn stack(&mut self, sample: &SampleRecord<'_>) -> Stack {
        if sample.registers.is_some() && !sample.stack.is_empty() {
            return self.walked(sample);
        }
        if !sample.calls.is_empty() {
            return self.once(sample.pid, chain(sample));
        }
        let key = self.stacks.key(sample);
        if let Some(known) = self.stacks.find(&key, sample) {
            return Stack::Known(known);
        }
        let frames = self.place(sample.pid, chain(sample));
        self.stacks.keep(key, sample);
        Stack::New(frames)
    }

    fn once(&mut self, pid: Pid, addresses: impl IntoIterator<Item = (CpuMode, u64)>) -> Stack {
        Stack::Once(self.place(pid, addresses))
    }

    /// Returns the frames of a sample with a user stack copy.
    fn walked(&mut self, sample: &SampleRecord<'_>) -> Stack {
        let (_, process) = self.machine.sampled(sample.pid, sample.tid);
        self.machine.take_new_rows(|_| ());
        let mut user = Vec::new();
        if let Some(maps) = self.machine.maps(sample.pid) {
            let host = SampledProcess {
                process,
                pid: sample.pid,
                time: sample.time,
                epoch: Epoch::of(sample.time),
                maps,
                files: self.machine.files(),
                is_preview: false,
            };
            self.unwinder.walk(sample, host, &mut Vec::new());
            user.extend_from_slice(self.unwinder.user_addresses());
        }
        let kernel = sample.kernel_chain().map(|ip| (CpuMode::Kernel, ip));
        let user = user.iter().take(MAX_FRAMES);
        let frames = self.place(
            sample.pid,
            kernel.chain(user.map(|&ip| (CpuMode::User, ip))),
        );
        match self.shows_inlined {
            true => Stack::Inlined(frames),
            false => Stack::Once(frames),
        }
    }

    /// Adds frames to the batch and counts them.
    fn place(&mut self, pid: Pid, addresses: impl IntoIterator<Item = (CpuMode, u64)>) -> u32 {
        let Self {
            machine,
            places,
            batch,
            ..
        } = self;
        let mut space = machine.address_space(pid);
        let before = batch.frames.len();
        for (mode, ip) in addresses {
            batch.frames.push(match mode {
                CpuMode::Kernel => places.kernel(ip, &mut batch.objects),
                _ => places.user(machine, pid, &mut space, ip, &mut batch.objects),
            });
        }
        (batch.frames.len() - before) as u32
    }
}

/// Returns the addresses of a callchain as perf prints them: none if one looks like a context
/// marker.
fn chain<'a>(sample: &SampleRecord<'a>) -> impl Iterator<Item = (CpuMode, u64)> + use<'a> {
    let addresses = sample.addresses();
    let addresses = addresses.filter(|&(_, address)| address < CONTEXT_MAX);
    let shown = addresses.take(MAX_FRAMES);
    shown.filter(|(mode, _)| *mode != CpuMode::Other)
}

/// Appends the name of a thread and returns its length in bytes.
fn comm(machine: &Machine, tid: Tid, text: &mut Vec<u8>) -> u32 {
    let start = text.len();
    match machine.thread_name(tid) {
        _ if tid.0 == 0 => text.extend_from_slice(b"swapper"),
        Some(name) if !name.is_empty() => {
            text.extend_from_slice(&printable(name));
        }
        _ => {
            // Writing to memory cannot fail.
            let _ = write!(text, ":{}", tid.0);
        }
    }
    (text.len() - start) as u32
}
