//! Names the places where threads of a trace were without a CPU by the reasons why they were there.

use rustc_hash::{FxHashMap, FxHashSet};

use super::group::{StackFrame, top_frames};
use super::reason::Reason;
use super::report::{is_of_go, is_of_runtime, may_be_own};
use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{
    Blocked, Frame, FrameId, Function, FunctionId, FunctionKind, Nanos, Process, ProcessId, Sample,
    Samples, StackId, ThreadId, Trace,
};

/// Replaces the leaves of the blocked stacks, which are system calls, by reasons such as
/// `[lock: futex]`; joins times that follow each other in one place; and sorts them by their ends.
pub fn name_places(trace: &mut Trace) {
    if trace.blocked.is_empty() {
        return;
    }
    let mut waits: Vec<Sample> = trace.blocked.iter().collect();
    let named = named(trace, &waits);
    let mut leaves = Leaves::default();
    let stacks: FxHashMap<StackId, StackId> = named
        .into_iter()
        .filter_map(|(stack, label)| {
            let (parent, leaf) = trace.stacks.node(stack)?;
            let leaf = leaves.leaf(trace, leaf, label);
            Some((stack, trace.stacks.push(parent, leaf)))
        })
        .collect();
    for wait in &mut waits {
        wait.stack = stacks.get(&wait.stack).copied().unwrap_or(wait.stack);
    }
    join(&mut waits);
    split(trace, &mut waits);
    waits.sort_by_key(|wait| wait.time);
    let mut blocked = Samples::default();
    waits.into_iter().for_each(|wait| blocked.push(wait));
    trace.blocked = blocked;
}

fn start(wait: &Sample) -> u64 {
    wait.time.0.saturating_sub(wait.weight.0)
}

/// Joins times that follow each other in one place. They are then in the order of their threads.
///
/// When a thread waited for a CPU is known only roughly: such a time begins after what precedes it.
fn join(waits: &mut Vec<Sample>) {
    waits.sort_by_key(|wait| (wait.thread.0, start(wait)));
    let mut last = (None, Nanos(0));
    for wait in &mut *waits {
        if last.0 == Some(wait.thread) && start(wait) < last.1.0 {
            wait.time.0 = last.1.0.saturating_add(wait.weight.0);
        }
        last = (Some(wait.thread), wait.time);
    }
    waits.dedup_by(|next, wait| {
        let is_same = next.thread == wait.thread && next.stack == wait.stack;
        let follows = is_same && start(next) <= wait.time.0;
        if follows {
            wait.weight.0 = wait.weight.0.saturating_add(next.weight.0);
            wait.time = next.time;
        }
        follows
    });
}

/// Splits times at the samples of their threads: a thread has a CPU then, and when exactly it got one is not
/// known. PerfView would compute a negative CPU time.
fn split(trace: &Trace, waits: &mut Vec<Sample>) {
    let mut next: FxHashMap<ThreadId, usize> = FxHashMap::default();
    for (index, wait) in waits.iter().enumerate() {
        next.entry(wait.thread).or_insert(index);
    }
    let mut parts = Vec::new();
    for sample in trace.samples.iter() {
        let Some(at) = next.get_mut(&sample.thread) else {
            continue;
        };
        let is_over = |wait: &Sample| wait.thread == sample.thread && wait.time <= sample.time;
        while waits.get(*at).is_some_and(is_over) {
            *at += 1;
        }
        let Some(wait) = waits.get_mut(*at) else {
            continue;
        };
        let before = sample.time.0.saturating_sub(start(wait));
        if wait.thread == sample.thread && before > 0 {
            wait.weight.0 -= before;
            parts.push(Sample {
                time: sample.time,
                weight: Nanos(before),
                ..*wait
            });
        }
    }
    waits.extend(parts);
}

/// Returns the name of the leaf of each stack whose place is a system call.
fn named(trace: &Trace, waits: &[Sample]) -> FxHashMap<StackId, String> {
    let own_code = OwnCode::new(trace, trace.modules.iter().map(|module| &*module.path));
    let process = |wait: &Sample| trace.threads[wait.thread.index()].process;
    let stacks: FxHashSet<(ProcessId, bool, StackId)> = waits
        .iter()
        .map(|wait| {
            let process = process(wait);
            let Process { pid, .. } = trace.processes[process.index()];
            let is_main = trace.threads[wait.thread.index()].tid.0 == pid.0;
            (process, is_main, wait.stack)
        })
        .collect();
    let described: Vec<_> = stacks
        .into_iter()
        .filter_map(|(process, is_main, stack)| {
            let (parent, leaf) = trace.stacks.node(stack)?;
            let place = *trace.places.get(&leaf)?;
            let kinds = Kinds::of(trace, &own_code, parent);
            Some((process, is_main, stack, place, kinds))
        })
        .collect();
    // In a program without any function that is known to be the user's, nothing is known about idle threads.
    let known = described
        .iter()
        .filter(|(.., kinds)| kinds.own || kinds.runtime);
    let known: FxHashSet<ProcessId> = known.map(|(process, ..)| *process).collect();
    let mut names = FxHashMap::default();
    for (process, is_main, stack, place, kinds) in described {
        let Blocked::Call(number, on) = place else {
            continue;
        };
        let reason = Reason::of_place(number, on, &kinds.top);
        let may_be_idle = reason.may_be_idle() && (!is_main || kinds.go);
        let is_idle = may_be_idle && !kinds.own && known.contains(&process);
        // Threads of several processes may have one stack.
        if is_idle {
            let idle = || place.label(Reason::Idle.noun(on));
            names.entry(stack).or_insert_with(idle);
        } else {
            names.insert(stack, place.label(reason.noun(on)));
        }
    }
    names
}

/// What is on a stack.
struct Kinds {
    top: Vec<StackFrame>,
    /// Code that is, or may be, the user's.
    own: bool,
    runtime: bool,
    go: bool,
}

impl Kinds {
    fn of(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        let (top, _) = top_frames(trace, own_code, stack);
        let mut kinds = Self {
            own: false,
            runtime: false,
            go: false,
            top,
        };
        for frame in trace.stacks.leaf_first(stack) {
            for id in trace.functions_leaf_first(frame) {
                let function = &trace.functions[id.index()];
                let name = label::known_name(function);
                kinds.own |= function.kind == FunctionKind::Marker
                    || may_be_own(own_code.is_own(id), function.kind, name.is_none());
                kinds.go |= name.is_some_and(is_of_go);
                kinds.runtime |= is_of_runtime(function.kind);
            }
        }
        kinds.runtime |= kinds.go;
        kinds
    }
}

/// New leaves by old leaf and name.
#[derive(Default)]
struct Leaves {
    leaves: FxHashMap<(FrameId, String), FrameId>,
    functions: FxHashMap<String, FunctionId>,
}

impl Leaves {
    fn leaf(&mut self, trace: &mut Trace, old: FrameId, label: String) -> FrameId {
        if let Some(known) = self.leaves.get(&(old, label.clone())) {
            return *known;
        }
        let function = *self.functions.entry(label.clone()).or_insert_with(|| {
            trace.functions.push(Function {
                name: Some(label.as_str().into()),
                start: None,
                module: "perfcollect".into(),
                tier: None,
                kind: FunctionKind::Blocked,
                inlined: false,
            });
            FunctionId(trace.functions.len() as u32 - 1)
        });
        let start = trace.frame_functions.len() as u32;
        trace.frame_functions.push(function);
        trace.frames.push(Frame {
            offset: 0,
            functions: start..start + 1,
        });
        let new = FrameId(trace.frames.len() as u32 - 1);
        if let Some(place) = trace.places.get(&old).copied() {
            trace.places.insert(new, place);
        }
        self.leaves.insert((old, label), new);
        new
    }
}
