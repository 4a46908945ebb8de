//! The escaped names of a trace. Each is made once; a line then only copies them.

use super::super::label;
use super::super::sanitize::{perf_event, perf_module, perf_symbol, perf_text_comm, perf_tier};
use crate::bytes::put_digits;
use crate::trace::{FrameId, Function, FunctionId, ThreadId, Trace};

pub(crate) struct EscapedNames<'a> {
    pub(super) trace: &'a Trace,
    /// `cpu-clock: \n`
    pub(super) event: String,
    /// Process and thread.
    threads: Vec<String>,
    functions: Vec<FunctionText>,
}

/// The part of a frame line that depends on the function only.
struct FunctionText {
    /// Whether `text` contains the name; else the offset of the frame is the name.
    has_name: bool,
    /// Everything after the address except for such a name.
    text: String,
}

impl FunctionText {
    fn of(function: &Function) -> Self {
        let tier = function.tier.as_deref().and_then(perf_tier);
        let tier = tier.map_or_else(String::new, |tier| format!("[{tier}]"));
        let module = perf_module(&function.module)
            .unwrap_or_else(|| label::module_of_kind(function.kind).to_owned())
            // Readers other than PerfView drop a frame whose module contains a space.
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
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let processes = trace.processes.iter();
        let processes: Vec<_> = processes
            // Readers accept a one-letter name only before two spaces.
            .map(|process| format!("{:<2} {}", perf_text_comm(&process.name), process.pid))
            .collect();
        let threads = trace.threads.iter();
        Self {
            trace,
            event: perf_event(&trace.info.event) + ": \n",
            threads: threads
                .map(|thread| format!("{}/{} ", processes[thread.process.index()], thread.tid))
                .collect(),
            functions: trace.functions.iter().map(FunctionText::of).collect(),
        }
    }

    /// Appends the line of a function at a frame.
    pub(super) fn put_frame(&self, frame: FrameId, function: FunctionId, out: &mut Vec<u8>) {
        let offset = self.trace.frames[frame.index()].offset;
        let function = &self.functions[function.index()];
        out.push(b'\t');
        put_digits::<16>(out, offset, 1, b'0');
        out.push(b' ');
        if !function.has_name {
            out.extend_from_slice(b"0x");
            put_digits::<16>(out, offset, 1, b'0');
        }
        out.extend_from_slice(function.text.as_bytes());
    }

    pub(super) fn thread(&self, thread: ThreadId) -> &[u8] {
        self.threads[thread.index()].as_bytes()
    }
}
