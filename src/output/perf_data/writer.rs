//! Converts samples to records, each after the records that it depends on.

use std::io::{self, Write};

use perf_event_open_sys::bindings as sys;
use rustc_hash::{FxHashMap, FxHashSet};

use super::header::ImageFile;
use super::record::{self, Mapping, Origin};
use crate::output::sanitize::perf_comm;
use crate::output::synthetic_layout::{
    CodeOwner, FunctionRow, ModuleRow, PAGE_BYTES, SyntheticLayout,
};
use crate::trace::{Nanos, Pid, ProcessId, Sample, StackId, ThreadId, Tid, Trace};

/// Maximum number of frames of a stack, as in the other formats.
const MAX_FRAMES: usize = 1000;
/// Number of samples between two `FINISHED_ROUND` records, at which readers flush ordered records.
const ROUND: u64 = 4096;
/// Start of the mapping of the kernel proper, which contains no functions.
const KERNEL_START: u64 = 0xffff_ffff_8000_0000;

pub(super) struct Writer<'a, W> {
    trace: &'a Trace,
    code: &'a SyntheticLayout,
    images: &'a [ImageFile],
    out: W,
    bytes: u64,
    samples: u64,
    first: Nanos,
    now: Nanos,
    /// Current process instance of each process id.
    instances: FxHashMap<Pid, ProcessId>,
    threads: FxHashSet<ThreadId>,
    /// Written mappings. Those of the kernel have no process.
    mappings: FxHashSet<(Option<ProcessId>, ModuleRow)>,
    records: Vec<u8>,
    functions: Vec<FunctionRow>,
    callchain: Vec<u64>,
}

impl<'a, W: Write> Writer<'a, W> {
    pub(super) fn new(
        trace: &'a Trace,
        code: &'a SyntheticLayout,
        images: &'a [ImageFile],
        out: W,
    ) -> Self {
        Self {
            trace,
            code,
            images,
            out,
            bytes: 0,
            samples: 0,
            first: Nanos(0),
            now: Nanos(0),
            instances: FxHashMap::default(),
            threads: FxHashSet::default(),
            mappings: FxHashSet::default(),
            records: Vec::new(),
            functions: Vec::new(),
            callchain: Vec::new(),
        }
    }

    pub(super) fn sample(&mut self, sample: &Sample) -> io::Result<()> {
        // Readers drop samples that are older than a round, so late samples get the current time.
        self.now = self.now.max(sample.time);
        let thread = &self.trace.threads[sample.thread.index()];
        let origin = Origin {
            pid: self.trace.process_of(sample.thread).pid,
            tid: thread.tid,
            time: self.now,
            cpu: sample.cpu,
        };
        if self.samples == 0 {
            self.first = self.now;
            self.map_kernel(origin);
        }
        self.start_process(origin, thread.process);
        if self.threads.insert(sample.thread) && origin.tid.0 != origin.pid.0 {
            record::thread_fork(&mut self.records, origin);
            let name = perf_comm(&thread.name);
            record::comm(&mut self.records, origin, &name, false);
        }
        let leaf = self.stack(sample.stack, origin, thread.process);
        record::sample(
            &mut self.records,
            origin,
            sample.weight,
            leaf,
            &self.callchain,
        );
        self.samples += 1;
        if self.samples.is_multiple_of(ROUND) {
            record::finished_round(&mut self.records);
        }
        self.flush()
    }

    /// Writes an unused mapping of the kernel proper.
    ///
    /// Without it, perf warns that kernel addresses are restricted.
    fn map_kernel(&mut self, origin: Origin) {
        let kernel = Mapping {
            start: KERNEL_START,
            bytes: PAGE_BYTES,
            file_offset: 0,
            path: b"[kernel.kallsyms]",
        };
        record::kernel_mapping(&mut self.records, origin, &kernel);
    }

    fn start_process(&mut self, origin: Origin, process: ProcessId) {
        let main = Origin {
            tid: Tid(origin.pid.0),
            ..origin
        };
        match self.instances.insert(origin.pid, process) {
            Some(previous) if previous == process => return,
            Some(_) => record::exit(&mut self.records, main),
            None => {}
        }
        let name = perf_comm(&self.trace.processes[process.index()].name);
        record::comm(&mut self.records, main, &name, true);
    }

    /// Builds the callchain and writes the mappings of its modules. Returns mode and address of the
    /// leaf.
    fn stack(&mut self, stack: StackId, origin: Origin, process: ProcessId) -> (u32, u64) {
        let Self {
            trace,
            code,
            functions,
            callchain,
            ..
        } = self;
        callchain.clear();
        functions.clear();
        for frame in trace.stacks.leaf_first(stack) {
            functions.extend(code.frame_functions(trace, frame));
            if functions.len() > MAX_FRAMES {
                functions.truncate(MAX_FRAMES - 1);
                functions.push(code.truncated());
                break;
            }
        }
        let mut context = None;
        for function in &*functions {
            let function = &code.functions[*function];
            let current = match function.owner {
                CodeOwner::Kernel => sys::PERF_CONTEXT_KERNEL,
                CodeOwner::User | CodeOwner::Marker => sys::PERF_CONTEXT_USER,
            };
            if context.replace(current) != Some(current) {
                callchain.push(current);
            }
            callchain.push(function.address());
        }
        for at in 0..self.functions.len() {
            let module = self.code.functions[self.functions[at]].module;
            self.map(module, origin, process);
        }
        match *self.callchain {
            [sys::PERF_CONTEXT_KERNEL, leaf, ..] => (sys::PERF_RECORD_MISC_KERNEL, leaf),
            [_, leaf, ..] => (sys::PERF_RECORD_MISC_USER, leaf),
            _ => (sys::PERF_RECORD_MISC_CPUMODE_UNKNOWN, 0),
        }
    }

    fn map(&mut self, row: ModuleRow, origin: Origin, process: ProcessId) {
        let (module, image) = (&self.code.modules[row], &self.images[row]);
        let owner = (!module.is_kernel).then_some(process);
        if !self.mappings.insert((owner, row)) {
            return;
        }
        let mapping = Mapping {
            start: module.start,
            bytes: (module.end - module.start).next_multiple_of(PAGE_BYTES),
            file_offset: image.text_offset,
            path: &image.path,
        };
        match module.is_kernel {
            true => record::kernel_mapping(&mut self.records, origin, &mapping),
            false => record::mapping(&mut self.records, origin, &mapping, &image.build_id),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&self.records)?;
        self.bytes += self.records.len() as u64;
        self.records.clear();
        Ok(())
    }

    /// Returns the times of the first and the last sample, and the size of the records.
    pub(super) fn finish(mut self) -> io::Result<((Nanos, Nanos), u64)> {
        record::finished_round(&mut self.records);
        self.flush()?;
        Ok(((self.first, self.now), self.bytes))
    }
}
