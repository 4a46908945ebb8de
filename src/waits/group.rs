//! Threads with the same stack that wait for the same reason.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::lock::Lock;
use super::reason::{MAX_DEPTH, Reason, public_name};
use crate::capture::{Activity, SnapshotThread, Wait};
use crate::output::label;
use crate::output::own_code::{OwnCode, is_c_library};
use crate::output::sanitize::truncate;
use crate::trace::{FunctionKind, Sample, StackId, Trace};

/// A function on a stack. Names are untrusted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StackFrame {
    /// Module, such as the file name or the assembly.
    pub module: String,
    /// Name, or the offset in the module.
    pub name: String,
    /// Whether the name is an offset.
    pub is_offset: bool,
    /// Kind of code.
    pub kind: FunctionKind,
    /// Whether it is the user's own code.
    pub own: bool,
    /// Whether it was inlined into the next one.
    pub inlined: bool,
}

/// A thread of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WaitingThread {
    /// Thread id.
    pub tid: i32,
    /// The same in the pid namespace of its process, if it is another one.
    pub namespace_tid: Option<i32>,
    /// Name. Untrusted.
    pub name: String,
    /// Seconds since it last ran, if the kernel counts them.
    pub since_s: Option<f64>,
    /// What it waits for: a file, a connection, a time. Untrusted.
    pub waits_for: Option<String>,
    /// The lock that it waits for.
    pub lock: Option<Lock>,
    /// System call that it is in.
    pub system_call: Option<String>,
    /// Function of the kernel that it waits in.
    pub kernel_function: Option<String>,
    /// Whether it ran while its stack was read, so that the stack may be wrong.
    pub has_moved: bool,
}

/// Threads of a process with the same stack that wait for the same reason and, if that is a lock, for the
/// same owner.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Process id.
    pub pid: i32,
    /// Why they wait.
    pub reason: Reason,
    /// The threads, in the order of their ids.
    pub threads: Vec<WaitingThread>,
    /// Functions, from the top of the stack to its root.
    pub frames: Vec<StackFrame>,
    /// Why the stack ends before its root, if it does.
    pub truncated: Option<String>,
}

/// Starts of the names of functions of the standard libraries of C++ and Rust, which are compiled into the
/// program.
const STANDARD_LIBRARY: [&str; 3] = ["std::", "core::", "alloc::"];
/// Maximum length of a name, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 1024;
/// Maximum number of frames of all different stacks. Of the stacks beyond it, few frames are kept.
pub(super) const MAX_FRAMES: usize = 1 << 17;
/// Number of frames that any stack keeps: 64 Ki of as many threads as are read.
pub(super) const MIN_FRAMES: usize = 4;
/// Why a stack lacks frames beyond that number.
const TOO_MANY: &str = "[truncated: too many different stacks]";

impl Group {
    /// Returns the index of the first frame that says where the threads are: the last one of the C library at
    /// the top of the stack.
    #[must_use]
    pub fn first_shown(&self) -> usize {
        let after = self.after_plumbing();
        match after < self.frames.len() {
            true => after.saturating_sub(1),
            false => 0,
        }
    }

    /// Returns the number of frames of the C library at the top of the stack.
    fn after_plumbing(&self) -> usize {
        let frames = self.frames.iter();
        let plumbing = frames.take_while(|frame| is_c_library(&frame.module));
        plumbing.count()
    }

    /// Returns the function that the threads are in: the innermost one of the user, or else the first one with
    /// a name outside of the C library, or else the one of the C library that was called.
    #[must_use]
    pub fn place(&self) -> Option<&StackFrame> {
        let own = self.frames.iter().find(|frame| frame.own);
        let after = self.frames.get(self.after_plumbing());
        let called = || self.frames.get(self.first_shown());
        own.or(after.filter(|frame| !frame.is_offset))
            .or_else(called)
    }
}

/// The frames of a stack, and why it ends early.
pub(super) type Frames = (Vec<StackFrame>, Option<String>);

/// The stacks of a trace.
pub(super) struct Stacks<'a> {
    trace: &'a Trace,
    own: OwnCode,
    samples: Vec<Sample>,
    known: FxHashMap<StackId, Rc<Frames>>,
    frames: usize,
}

impl<'a> Stacks<'a> {
    pub(super) fn new(trace: &'a Trace) -> Self {
        let paths = trace.modules.iter().map(|module| &*module.path);
        Self {
            own: OwnCode::new(trace, paths),
            samples: trace.samples.iter().collect(),
            known: FxHashMap::default(),
            frames: 0,
            trace,
        }
    }

    /// Returns the frames of a thread.
    pub(super) fn of(&mut self, thread: &SnapshotThread) -> Rc<Frames> {
        let sample = thread.sample.and_then(|index| self.samples.get(index));
        match sample.map(|sample| sample.stack) {
            Some(stack) => self.of_stack(stack),
            None => Rc::default(),
        }
    }

    /// Returns the frames of a stack.
    fn of_stack(&mut self, stack: StackId) -> Rc<Frames> {
        if let Some(known) = self.known.get(&stack) {
            return Rc::clone(known);
        }
        let (mut frames, mut truncated) = frames(self.trace, &self.own, stack);
        let room = MAX_FRAMES.saturating_sub(self.frames).max(MIN_FRAMES);
        if frames.len() > room {
            frames.truncate(room);
            truncated = Some(TOO_MANY.to_owned());
        }
        self.frames += frames.len();
        let frames = Rc::new((frames, truncated));
        self.known.insert(stack, Rc::clone(&frames));
        frames
    }
}

/// Returns the frames of a stack.
fn frames(trace: &Trace, own: &OwnCode, stack: StackId) -> Frames {
    frames_to(usize::MAX, trace, own, stack)
}

/// Returns those at the top of a stack that may show why its thread waits.
pub(super) fn top_frames(trace: &Trace, own: &OwnCode, stack: StackId) -> Frames {
    frames_to(MAX_DEPTH, trace, own, stack)
}

fn frames_to(depth: usize, trace: &Trace, own: &OwnCode, stack: StackId) -> Frames {
    let (mut frames, mut truncated) = Frames::default();
    for frame in trace.stacks.leaf_first(stack).take(depth) {
        for function in trace.functions_leaf_first(frame) {
            let row = &trace.functions[function.index()];
            let name = label::name(trace, frame, function).into_owned();
            if row.kind == FunctionKind::Marker {
                truncated = Some(name);
                continue;
            }
            let is_standard = {
                let name = public_name(&name);
                let mut starts = STANDARD_LIBRARY.iter();
                starts.any(|start| name.starts_with(start))
            };
            let short = |name: &str| truncate(name, MAX_NAME_BYTES).to_owned();
            frames.push(StackFrame {
                module: short(label::module(row)),
                is_offset: label::known_name(row).is_none(),
                name: short(&name),
                kind: row.kind,
                own: own.is_own(function) && !is_standard,
                inlined: row.inlined,
            });
        }
    }
    (frames, truncated)
}

impl WaitingThread {
    pub(super) fn of(thread: &SnapshotThread, lock: Option<Lock>) -> Self {
        let wait = match &thread.activity {
            Activity::Waits(wait) => Some(wait),
            _ => None,
        };
        let waits_for = match &thread.activity {
            Activity::Unreadable(why) => Some(why.clone()),
            _ => wait.and_then(waits_for),
        };
        let namespace_tid = thread.namespace_tid.0;
        Self {
            tid: thread.tid.0,
            namespace_tid: (namespace_tid != thread.tid.0).then_some(namespace_tid),
            name: thread.name.clone(),
            since_s: thread.since.map(|since| since.as_millis() as f64 / 1e3),
            waits_for,
            lock,
            system_call: wait.and_then(|wait| Some(wait.call?.name()?.to_owned())),
            kernel_function: wait.and_then(|wait| wait.kernel_function.clone()),
            has_moved: thread.has_moved || wait.is_some() && !thread.has_stayed,
        }
    }
}

/// Returns the files, or the time, that a thread waits for.
fn waits_for(wait: &Wait) -> Option<String> {
    if let Some(sleep) = wait.sleep {
        return Some(format!("{} s", sleep.as_secs_f64()));
    }
    if wait.files.is_empty() {
        return None;
    }
    let more = wait.file_count.saturating_sub(wait.files.len() as u64);
    let files = wait.files.join(", ");
    Some(match more {
        0 => files,
        more => format!("{files} and {more} more"),
    })
}
