//! From the text to a trace.

use std::hash::Hash;
use std::io::{self, BufRead};
use std::ops::ControlFlow;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::function::{function, text};
use super::lines::{self, Frame, Header};
use crate::naming;
use crate::trace::{
    CaptureInfo, FrameId, Function, FunctionId, Nanos, Notice, Pid, Process, ProcessId, Sample,
    StackId, Thread, ThreadId, Trace, Truncation,
};

/// What a sample counts that says nothing of time.
const NOMINAL_NS: u64 = 1_000_000;
/// Different frames, processes or threads that are taken.
const MAX_ROWS: usize = 1 << 22;
/// Events that are told apart.
const MAX_EVENTS: usize = 4096;
/// Nodes of stacks that are taken.
const MAX_NODES: usize = 1 << 26;
/// Functions that nothing calls.
const ROOTS: [&str; 11] = [
    "_start",
    "__libc_start_main",
    "__libc_start_call_main",
    "start_thread",
    "clone",
    "__clone",
    "clone3",
    "__clone3",
    "ret_from_fork",
    "ret_from_fork_asm",
    "kthread",
];

/// Why a text becomes no trace.
#[derive(Debug, Error)]
pub enum TextError {
    /// Reading failed.
    #[error("cannot be read: {0}")]
    Read(#[from] io::Error),
    /// Nobody wants it any more.
    #[error("stopped")]
    Stopped,
}

/// The events of a text with their samples, in the order they are met.
///
/// # Errors
/// What the input returns.
pub fn events(input: impl BufRead) -> io::Result<Vec<(String, u64)>> {
    let mut events: Vec<(String, u64)> = Vec::new();
    lines::each(input, |sample| {
        let Some(header) = sample.header() else {
            return;
        };
        let known = events
            .iter()
            .position(|(name, _)| name.as_bytes() == header.event);
        match known {
            Some(at) => events[at].1 += 1,
            None if events.len() < MAX_EVENTS => events.push((text(header.event).into(), 1)),
            None => {}
        }
    })?;
    Ok(events)
}

/// Whether an event counts nanoseconds that a CPU or a task runs.
fn is_time(event: &str) -> bool {
    let base = event.split(':').next().unwrap_or_default();
    matches!(base, "cpu-clock" | "task-clock")
}

/// The position of the event of this name, or of the one that tells best where time went.
#[must_use]
pub fn choose(events: &[(String, u64)], wanted: Option<&str>) -> Option<usize> {
    let rank = |name: &str| match name.split_once(':') {
        _ if is_time(name) => 0,
        // Modifiers, as in `cycles:ppp`; behind a tracepoint's system is a name.
        Some((_, behind)) if behind.len() > 4 => 2,
        _ => 1,
    };
    let is_it = |name: &str, wanted: &str| {
        name == wanted || name.split(':').next().is_some_and(|base| base == wanted)
    };
    match wanted {
        Some(wanted) => events.iter().position(|(name, _)| is_it(name, wanted)),
        None => (0..events.len()).min_by_key(|&at| rank(&events[at].0)),
    }
}

/// Takes in the samples of an event; `report` is called with the number of samples now and then.
///
/// # Errors
/// See [`TextError`].
pub fn import(
    input: impl BufRead,
    event: &str,
    mut report: impl FnMut(u64) -> ControlFlow<()>,
) -> Result<Trace, TextError> {
    let mut import = Import {
        is_time: is_time(event),
        ..Import::default()
    };
    let mut flow = ControlFlow::Continue(());
    let strange = lines::each(input, |sample| {
        if flow.is_continue()
            && let Some(header) = sample.header()
            && header.event == event.as_bytes()
        {
            import.sample(&header, sample);
            if import.trace.samples.len().is_multiple_of(4096) {
                flow = report(import.trace.samples.len() as u64);
            }
        }
    })?;
    match flow {
        ControlFlow::Continue(()) => Ok(import.finish(event, strange)),
        ControlFlow::Break(()) => Err(TextError::Stopped),
    }
}

#[derive(Default)]
struct Import {
    trace: Trace,
    is_time: bool,
    processes: FxHashMap<Pid, ProcessId>,
    threads: FxHashMap<(Pid, i32), ThreadId>,
    functions: FxHashMap<Function, FunctionId>,
    /// By line.
    frames: FxHashMap<Box<[u8]>, Option<FrameId>>,
    cut: Option<FrameId>,
    begin: Option<Nanos>,
    end: Nanos,
    cpus: u32,
    idle: u64,
    /// Samples there was no room for.
    left_out: u64,
}

impl Import {
    fn sample(&mut self, header: &Header<'_>, sample: &lines::Sample) {
        // Late lines are moved.
        self.end = self.end.max(header.time);
        self.begin.get_or_insert(header.time);
        if header.pid.0 == 0 {
            self.idle += 1;
            return;
        }
        let own =
            Some(header.rest).filter(|rest| !rest.is_empty() && sample.frames().next().is_none());
        let lines: Vec<&[u8]> = own.into_iter().chain(sample.frames()).collect();
        let is_full = self.frames.len() + lines.len() > MAX_ROWS
            || self.threads.len() >= MAX_ROWS
            || self.trace.stacks.len() >= MAX_NODES;
        if is_full {
            self.left_out += 1;
            return;
        }
        let thread = self.thread(header);
        let frames: Vec<FrameId> = lines
            .iter()
            .rev()
            .filter_map(|line| self.frame(line))
            .collect();
        let cut = self.truncation(&frames);
        self.trace.quality.stacks.count(cut);
        let root = cut.map(|_| self.cut_frame());
        let stack = match frames.is_empty() {
            true => StackId::EMPTY,
            false => self.trace.stacks.intern(root.into_iter().chain(frames)),
        };
        let weight = header.period.filter(|_| self.is_time).unwrap_or(NOMINAL_NS);
        let cpu = header.cpu.unwrap_or_default();
        self.cpus = self.cpus.max(cpu.0.saturating_add(1));
        self.trace.samples.push(Sample {
            time: self.end,
            weight: Nanos(weight),
            thread,
            cpu,
            stack,
        });
    }

    fn thread(&mut self, header: &Header<'_>) -> ThreadId {
        let (trace, name) = (&mut self.trace, text(header.comm));
        let process = *self.processes.entry(header.pid).or_insert_with(|| {
            trace.processes.push(Process {
                pid: header.pid,
                name: name.clone(),
                command_line: Box::default(),
            });
            ProcessId(trace.processes.len() as u32 - 1)
        });
        if header.pid.0 == header.tid.0 {
            trace.processes[process.index()].name = name.clone();
        }
        let thread = self.threads.entry((header.pid, header.tid.0));
        *thread.or_insert_with(|| {
            trace.threads.push(Thread {
                process,
                tid: header.tid,
                name,
            });
            ThreadId(trace.threads.len() as u32 - 1)
        })
    }

    /// The frame of a line, if it is one.
    fn frame(&mut self, line: &[u8]) -> Option<FrameId> {
        if let Some(known) = self.frames.get(line) {
            return *known;
        }
        let frame = Frame::parse(line).map(|frame| {
            let function = function(&frame);
            self.push(function, frame.address)
        });
        self.frames.insert(line.into(), frame);
        frame
    }

    fn push(&mut self, function: Function, offset: u64) -> FrameId {
        let trace = &mut self.trace;
        let id = intern(&mut self.functions, &mut trace.functions, function);
        let start = trace.frame_functions.len() as u32;
        trace.frame_functions.push(id);
        trace.frames.push(crate::trace::Frame {
            offset,
            functions: start..start + 1,
        });
        FrameId(trace.frames.len() as u32 - 1)
    }

    /// Why a stack, root first, does not begin at the root of its thread, if it does not.
    fn truncation(&self, frames: &[FrameId]) -> Option<Truncation> {
        let root = self.trace.functions_leaf_first(*frames.first()?).next()?;
        let name = self.trace.functions[root.index()].name.as_deref();
        let is_root = |name: &str| ROOTS.contains(&name.split('@').next().unwrap_or_default());
        (!name.is_some_and(is_root)).then_some(Truncation::LostTrack)
    }

    fn cut_frame(&mut self) -> FrameId {
        if let Some(cut) = self.cut {
            return cut;
        }
        let cut = self.push(naming::cut(Truncation::LostTrack), 0);
        self.cut = Some(cut);
        cut
    }

    fn finish(mut self, event: &str, strange: u64) -> Trace {
        let mut say = |what: String| {
            let notices = &mut self.trace.quality.notices;
            notices.push(Notice::new(what, ""));
        };
        if strange > 0 {
            say(format!("{strange} lines of the text are of no sample"));
        }
        if self.idle > 0 {
            say(format!("{} samples of idle CPUs were left out", self.idle));
        }
        if self.left_out > 0 {
            say(format!(
                "{} samples were left out: there are too many different stacks",
                self.left_out
            ));
        }
        self.trace.info = CaptureInfo {
            version: env!("CARGO_PKG_VERSION").into(),
            cpus: self.cpus,
            event: event.into(),
            period_ns: NOMINAL_NS,
            start_ns: self.begin.unwrap_or_default().0,
            end_ns: self.end.0,
            ..CaptureInfo::default()
        };
        naming::count(&mut self.trace);
        self.trace
    }
}

fn intern<K: Clone + Eq + Hash>(
    known: &mut FxHashMap<K, FunctionId>,
    rows: &mut Vec<K>,
    key: K,
) -> FunctionId {
    *known.entry(key).or_insert_with_key(|key| {
        rows.push(key.clone());
        FunctionId(rows.len() as u32 - 1)
    })
}
