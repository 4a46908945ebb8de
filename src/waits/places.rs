//! Names the places where threads of a trace were without a CPU by the reasons why they were there.

use rustc_hash::{FxHashMap, FxHashSet};

use super::group::{StackFrame, top_frames};
use super::reason::Reason;
use super::report::{is_of_go, is_of_runtime, may_be_own};
use super::sequence;
use crate::output::label;
use crate::output::own_code::OwnCode;
use crate::trace::{
    Blocked, Frame, FrameId, Function, FunctionId, FunctionKind, ProcessId, Sample, StackId, Trace,
};

/// Replaces the leaves of the blocked stacks, which are system calls, by reasons such as
/// `[lock: futex]`; joins times that follow each other in one place; and sorts them by their ends.
pub fn name_places(trace: &mut Trace) {
    if trace.blocked.is_empty() {
        return;
    }
    let mut leaves = Leaves::default();
    let named: FxHashMap<Occurrence, StackId> = named(trace)
        .into_iter()
        .filter_map(|(occurrence, label)| {
            let (parent, leaf) = trace.stacks.node(occurrence.stack)?;
            let leaf = leaves.leaf(trace, leaf, label);
            Some((occurrence, trace.stacks.push(parent, leaf)))
        })
        .collect();
    let with_name = |wait: &Sample| {
        let stack = named.get(&Occurrence::of(trace, wait));
        Sample {
            stack: stack.copied().unwrap_or(wait.stack),
            ..*wait
        }
    };
    trace.blocked = sequence::in_order(trace, with_name);
}

/// A stack of a process. Several processes may have it, for different reasons: in one of them the code of the
/// user is known, in another one it is not.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Occurrence {
    process: ProcessId,
    is_main: bool,
    stack: StackId,
}

impl Occurrence {
    fn of(trace: &Trace, wait: &Sample) -> Self {
        let thread = &trace.threads[wait.thread.index()];
        Self {
            process: thread.process,
            is_main: thread.tid.0 == trace.process_of(wait.thread).pid.0,
            stack: wait.stack,
        }
    }
}

/// Returns the name of the leaf of each stack whose place is a system call.
fn named(trace: &Trace) -> Vec<(Occurrence, String)> {
    let own_code = OwnCode::new(trace, trace.modules.iter().map(|module| &*module.path));
    let waits = trace.blocked.iter();
    let occurrences: FxHashSet<_> = waits.map(|wait| Occurrence::of(trace, &wait)).collect();
    // In a program without any function that is known to be the user's, nothing is known about idle threads.
    let mut known: FxHashSet<ProcessId> = FxHashSet::default();
    let mut calls = Vec::new();
    for occurrence in occurrences {
        let Some((parent, leaf)) = trace.stacks.node(occurrence.stack) else {
            continue;
        };
        let Some(place) = trace.places.get(&leaf) else {
            continue;
        };
        let kinds = Kinds::of(trace, &own_code, parent);
        if kinds.own || kinds.truncated || kinds.runtime {
            known.insert(occurrence.process);
        }
        if let Blocked::Call(number, on) = *place {
            let reason = match Reason::of_place(number, on, &kinds.top) {
                // Who called the C library is not known, so neither is what for.
                Reason::Event if kinds.truncated && !kinds.own && !kinds.runtime => Reason::Other,
                reason => reason,
            };
            let is_idle = !kinds.own && !kinds.truncated && (!occurrence.is_main || kinds.go);
            let may_be_idle = reason.may_be_idle() && is_idle;
            calls.push((occurrence, *place, on, reason, may_be_idle));
        }
    }
    let calls = calls.into_iter();
    let names = calls.map(|(occurrence, place, on, reason, may_be_idle)| {
        let is_idle = may_be_idle && known.contains(&occurrence.process);
        let reason = if is_idle { Reason::Idle } else { reason };
        (occurrence, place.label(reason.noun(on)))
    });
    names.collect()
}

/// What is on a stack.
struct Kinds {
    top: Vec<StackFrame>,
    /// Code that is, or may be, the user's.
    own: bool,
    /// Whether its callers are missing.
    truncated: bool,
    runtime: bool,
    go: bool,
}

impl Kinds {
    fn of(trace: &Trace, own_code: &OwnCode, stack: StackId) -> Self {
        let (top, _) = top_frames(trace, own_code, stack);
        let mut kinds = Self {
            own: false,
            truncated: false,
            runtime: false,
            go: false,
            top,
        };
        for frame in trace.stacks.leaf_first(stack) {
            for id in trace.functions_leaf_first(frame) {
                let function = &trace.functions[id.index()];
                let name = label::known_name(function);
                kinds.truncated |= function.kind == FunctionKind::Marker;
                kinds.own |= may_be_own(own_code.is_own(id), function.kind, name.is_none());
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
            let function = Function::named(&*label, "perfcollect", FunctionKind::Blocked);
            trace.functions.push(function);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{BlockedOn, IDLE, Nanos, Pid, Process, Thread, ThreadId, Tid, reason_of};

    fn function(trace: &mut Trace, name: &str, module: &str, kind: FunctionKind) -> FrameId {
        trace.functions.push(Function::named(name, module, kind));
        let row = trace.frame_functions.len() as u32;
        trace
            .frame_functions
            .push(FunctionId(trace.functions.len() as u32 - 1));
        trace.frames.push(Frame {
            offset: 0,
            functions: row..row + 1,
        });
        FrameId(row)
    }

    /// Adds a process with a second thread, which waits in `stacks`.
    fn process(trace: &mut Trace, pid: i32, stacks: &[StackId]) {
        let process = ProcessId(trace.processes.len() as u32);
        trace.processes.push(Process {
            pid: Pid(pid),
            name: "".into(),
            command_line: "".into(),
            ended: None,
        });
        trace.threads.push(Thread {
            process,
            tid: Tid(pid + 1),
            name: "".into(),
        });
        for stack in stacks {
            let time = trace.blocked.len() as u64 * 10 + 10;
            trace.blocked.push(Sample {
                time: Nanos(time),
                weight: Nanos(5),
                thread: ThreadId(process.0),
                stack: *stack,
                ..Sample::default()
            });
        }
    }

    #[test]
    fn a_process_does_not_change_the_reasons_of_another_one() {
        const EPOLL_WAIT: u16 = 232;
        let mut trace = Trace::default();
        let leaf = function(&mut trace, "[blocked]", "", FunctionKind::Blocked);
        let place = Blocked::Call(EPOLL_WAIT, BlockedOn::Anonymous);
        trace.places.insert(leaf, place);
        let wait = function(&mut trace, "epoll_wait", "libc.so.6", FunctionKind::Native);
        let own = function(&mut trace, "Program.Main()", "app.dll", FunctionKind::Jit);
        let shared = trace.stacks.intern([wait, leaf]);
        let of_user = trace.stacks.intern([own, wait, leaf]);
        // In the first process no function of the user is known; in the second and the fourth one is.
        for (pid, stacks) in [
            (10, &[shared][..]),
            (20, &[shared, of_user]),
            (30, &[shared]),
            (40, &[of_user, shared]),
        ] {
            process(&mut trace, pid, stacks);
        }
        name_places(&mut trace);
        let reasons = trace.blocked.iter().map(|wait| {
            let (_, leaf) = trace.stacks.node(wait.stack).unwrap();
            let function = trace.functions_leaf_first(leaf).next().unwrap();
            let name = trace.functions[function.index()].name.as_deref().unwrap();
            let pid = trace.process_of(wait.thread).pid.0;
            (pid, reason_of(name).to_owned())
        });
        let reasons: Vec<_> = reasons.collect();
        let other = reasons[0].1.clone();
        assert_ne!(other, IDLE);
        let expected = [
            (10, &*other),
            (20, IDLE),
            (20, &*other),
            (30, &*other),
            (40, &*other),
            (40, IDLE),
        ];
        let reasons: Vec<_> = reasons
            .iter()
            .map(|(pid, reason)| (*pid, &**reason))
            .collect();
        assert_eq!(reasons, expected);
        // Processes with the same reason share a leaf.
        let stacks: Vec<StackId> = trace.blocked.iter().map(|wait| wait.stack).collect();
        assert!(stacks[0] == stacks[3] && stacks[1] == stacks[5] && stacks[2] == stacks[4]);
    }
}
