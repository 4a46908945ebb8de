//! The parts of the text that come again and again, and how long they are.

use super::super::label;
use super::super::sanitize::{perf_event, perf_module, perf_symbol, perf_text_comm, perf_tier};
use crate::bytes::put_digits;
use crate::trace::{FrameId, Function, FunctionId, StackId, ThreadId, Trace};

/// PerfView interns stacks by recursion on threads with 1 MB of stack.
pub(super) const MAX_FRAMES: u32 = 1000;

/// The escaped names of a trace: each is made once, a line then only copies them.
pub(super) struct EscapedNames<'a> {
    pub(super) trace: &'a Trace,
    /// `cpu-clock: \n`
    pub(super) event: String,
    /// Process and thread.
    threads: Vec<String>,
    functions: Vec<FunctionText>,
    frames: Vec<Extent>,
    stacks: Vec<Extent>,
}

/// How much text something is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) bytes: u32,
    pub(super) lines: u32,
}

impl Extent {
    fn and(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            lines: self.lines.saturating_add(other.lines),
        }
    }
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
            .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned())
            // Other readers than PerfView drop a frame whose module has a space.
            .replace(' ', "_");
        let name = label::known_name(function)
            .map(|name| perf_symbol(name) + &tier)
            .or_else(|| Some(format!("{:#x}", function.start?)));
        Self {
            has_name: name.is_some(),
            text: format!("{} ({module})\n", name.unwrap_or_default()),
        }
    }
}

impl<'a> EscapedNames<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let processes = trace.processes.iter();
        let processes: Vec<_> = processes
            // Readers take a name of one letter only if two spaces follow.
            .map(|process| format!("{:<2} {}", perf_text_comm(&process.name), process.pid))
            .collect();
        let threads = trace.threads.iter();
        let mut names = Self {
            trace,
            event: perf_event(&trace.info.event) + ": \n",
            threads: threads
                .map(|thread| format!("{}/{} ", processes[thread.process.index()], thread.tid))
                .collect(),
            functions: trace.functions.iter().map(FunctionText::of).collect(),
            frames: Vec::new(),
            stacks: Vec::new(),
        };
        let mut begin = Vec::new();
        names.frames = (0..trace.frames.len() as u32)
            .map(|frame| names.measure(FrameId(frame), &mut begin))
            .collect();
        names.stacks.reserve_exact(trace.stacks.len());
        for (_, caller, frame) in trace.stacks.nodes() {
            let extent = names.frames[frame.index()].and(names.stack(caller));
            names.stacks.push(extent);
        }
        names
    }

    fn measure(&self, frame: FrameId, begin: &mut Vec<u8>) -> Extent {
        let functions = self.trace.functions_leaf_first(frame);
        functions.fold(Extent::default(), |extent, function| {
            begin.clear();
            let text = self.line(frame, function, begin);
            extent.and(Extent {
                bytes: (begin.len() + text.len()) as u32,
                lines: 1,
            })
        })
    }

    /// The line of a function at a frame: appends its begin and returns the rest, which is the same at all its frames.
    pub(super) fn line(&self, frame: FrameId, function: FunctionId, begin: &mut Vec<u8>) -> &[u8] {
        let offset = self.trace.frames[frame.index()].offset;
        let function = &self.functions[function.index()];
        begin.push(b'\t');
        put_digits::<16>(begin, offset, 1, b'0');
        begin.push(b' ');
        if !function.has_name {
            begin.extend_from_slice(b"0x");
            put_digits::<16>(begin, offset, 1, b'0');
        }
        function.text.as_bytes()
    }

    pub(super) fn thread(&self, thread: ThreadId) -> &[u8] {
        self.threads[thread.index()].as_bytes()
    }

    pub(super) fn frame(&self, frame: FrameId) -> Extent {
        self.frames[frame.index()]
    }

    pub(super) fn stack(&self, stack: StackId) -> Extent {
        match stack {
            StackId::EMPTY => Extent::default(),
            stack => self.stacks[stack.index()],
        }
    }
}
