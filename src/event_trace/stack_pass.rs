//! The second pass: the code in stacks, and the samples of running managed threads.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::code::{Code, CodeCounts};
use crate::bytes::Bytes;
use crate::dotnet::RundownTable;
use crate::trace::spool::EventCodeRow;
use crate::trace::{
    Callers, Cpu, Nanos, Notice, NoticeKind, ProcessId, RuntimeEvent, Sample, Samples, StackId,
    Thread, ThreadId, Tid, Trace, Truncation,
};

/// The sampler of the runtime, and the kinds of its samples: of a thread in native code or that waits,
/// and of one in managed code.
const SAMPLER: &str = "Microsoft-DotNETCore-SampleProfiler";
const MANAGED: u32 = 2;
/// Maximum number of addresses of a stack in a stream. The outermost ones are missing beyond.
const MAX_DEPTH: usize = 100;
/// Maximum number of stacks that are kept to be recognized.
const MAX_STACKS: usize = 1 << 14;
/// Maximum numbers of stack nodes and of threads in the trace.
const MAX_NODES: usize = 1 << 22;
const MAX_THREADS: usize = 1 << 16;
/// The only process of a stream.
const PROCESS: ProcessId = ProcessId(0);

/// The second pass over a stream. Fills a trace.
pub(super) struct StackPass<'a> {
    trace: &'a mut Trace,
    code: Code<'a>,
    /// Stacks by address, which stays allocated: those of events, and those of samples.
    seen: FxHashMap<usize, Arc<[u64]>>,
    stacks: FxHashMap<usize, (Arc<[u64]>, StackId)>,
    threads: FxHashMap<Tid, ThreadId>,
    taken: Taken,
}

/// What was taken of a stream.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Samples.
    samples: u64,
    /// Samples of threads that did not run managed code.
    external: u64,
    /// Samples left out because a limit was reached.
    left_out: u64,
    /// Addresses in stacks.
    pub(super) code: CodeCounts,
}

impl<'a> StackPass<'a> {
    pub(super) fn new(
        trace: &'a mut Trace,
        methods: &'a RundownTable,
        lists_addresses: bool,
    ) -> Self {
        // Without a file for them, all samples stay in memory.
        trace.samples = Samples::in_file(tempfile::tempfile().ok());
        Self {
            trace,
            code: Code::new(methods, lists_addresses),
            seen: FxHashMap::default(),
            stacks: FxHashMap::default(),
            threads: FxHashMap::default(),
            taken: Taken::default(),
        }
    }

    /// Takes the next event in order of time.
    pub(super) fn take(&mut self, event: &RuntimeEvent) {
        if event.metadata.provider == SAMPLER && event.metadata.id == 0 {
            match Bytes(&event.payload).u32() {
                Some(MANAGED) => match self.sample(event) {
                    Some(sample) => {
                        self.taken.samples += 1;
                        self.trace.samples.push(sample);
                    }
                    None => self.taken.left_out += 1,
                },
                _ => self.taken.external += 1,
            }
        } else if !event.stack.is_empty() {
            self.name_stack(event);
        }
    }

    /// Adds the code in the stack of an event.
    fn name_stack(&mut self, event: &RuntimeEvent) {
        if self.seen.len() >= MAX_STACKS {
            self.seen.clear();
        }
        let key = Arc::as_ptr(&event.stack).addr();
        if self.seen.insert(key, Arc::clone(&event.stack)).is_some() {
            return;
        }
        for &address in &*event.stack {
            if let Some(named) = self.code.caller(address)
                && named.has_name
            {
                self.trace.event_code.insert(EventCodeRow {
                    process: PROCESS,
                    address,
                    since: Nanos(0),
                    frame: named.frame,
                });
            }
        }
    }

    /// Returns a sample, or `None` if a limit is reached.
    fn sample(&mut self, event: &RuntimeEvent) -> Option<Sample> {
        let stack = self.stack(&event.stack)?;
        let thread = self.thread(event.thread)?;
        let quality = &mut self.trace.quality.stacks;
        match event.stack.len() {
            0 => quality.empty += 1,
            MAX_DEPTH.. => quality.count(Some(Truncation::TooDeep), Callers::All),
            _ => quality.count(None, Callers::All),
        }
        Some(Sample {
            time: event.time,
            weight: Nanos(self.trace.info.period_ns),
            thread,
            cpu: Cpu::default(),
            stack,
        })
    }

    fn stack(&mut self, stack: &Arc<[u64]>) -> Option<StackId> {
        let key = Arc::as_ptr(stack).addr();
        if let Some((_, known)) = self.stacks.get(&key) {
            return Some(*known);
        }
        if self.trace.stacks.len() >= MAX_NODES {
            return None;
        }
        let mut frames = Vec::with_capacity(stack.len() + 1);
        for (depth, &address) in stack.iter().enumerate() {
            let named = match depth {
                0 => self.code.leaf(address),
                _ => self.code.caller(address),
            };
            frames.push(named?.frame);
        }
        if stack.len() >= MAX_DEPTH {
            frames.push(self.code.truncated());
        }
        let id = self.trace.stacks.intern(frames.into_iter().rev());
        if self.stacks.len() >= MAX_STACKS {
            self.stacks.clear();
        }
        self.stacks.insert(key, (Arc::clone(stack), id));
        Some(id)
    }

    fn thread(&mut self, tid: Tid) -> Option<ThreadId> {
        if let Some(known) = self.threads.get(&tid) {
            return Some(*known);
        }
        let threads = &mut self.trace.threads;
        if threads.len() >= MAX_THREADS {
            return None;
        }
        let id = ThreadId(threads.len() as u32);
        threads.push(Thread {
            process: PROCESS,
            tid,
            // As PerfView shows threads without a name. A number at the end would join them.
            name: format!("Thread ({tid})").into(),
        });
        self.threads.insert(tid, id);
        Some(id)
    }

    /// Completes the trace.
    pub(super) fn finish(mut self) -> Taken {
        let rows = self.code.finish();
        self.trace.functions = rows.functions;
        self.trace.frames = rows.frames;
        self.trace.frame_functions = rows.frame_functions;
        self.taken.code = rows.counts;
        self.taken
    }
}

impl Taken {
    /// Returns the notices about the samples.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let Self {
            samples,
            external,
            left_out,
            ..
        } = self;
        let kinds = (samples + external > 0).then(|| {
            let what = format!(
                "the samples are the runtime's own, of threads in managed code: wall-clock time, not CPU time; \
                 {external} of threads that waited or were in native code are left out"
            );
            let remedy = "for CPU time and native code, capture with perfcollect";
            Notice::new(NoticeKind::ManagedThreadsOnly, what, remedy).counting(*external)
        });
        let limits = (*left_out > 0).then(|| {
            let what = format!("{left_out} samples are left out: too many different stacks");
            Notice::new(NoticeKind::ManagedThreadsOnly, what, "").counting(*left_out)
        });
        kinds.into_iter().chain(limits)
    }
}
