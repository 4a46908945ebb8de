//! The report about a snapshot: what its JSON is, and what the text is made of.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use super::deadlock::{Deadlock, cycles};
use super::group::{Frames, Group, StackFrame, Stacks, WaitingThread};
use super::lock::Lock;
use super::reason::Reason;
use crate::capture::{Activity, OmittedThreads, SnapshotThread};
use crate::output::utc::UtcTime;
use crate::trace::{FunctionKind, Notice, NoticeKind, Pid, Trace};

/// Functions of Go at the root of a thread.
const GO_SCHEDULER: [&str; 4] = [
    "runtime.mstart",
    "runtime.mstart1",
    "runtime.mcall",
    "runtime.rt0_go",
];
/// Version of the JSON. It grows when a field changes its meaning or goes away.
pub(super) const FORMAT_VERSION: u32 = 1;

/// A process of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotProcess {
    /// Process id.
    pub pid: i32,
    /// Name. Untrusted.
    pub name: String,
    /// Arguments. Untrusted.
    pub command_line: String,
    /// Number of threads in the report.
    pub threads: usize,
    /// Number of its threads that were not read.
    #[serde(default)]
    pub omitted: usize,
}

/// All threads of some processes at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StackReport {
    /// Version of this format: 1.
    pub format_version: u32,
    /// Time, UTC.
    pub time: String,
    /// The processes.
    pub processes: Vec<SnapshotProcess>,
    /// Threads that wait for each other's locks.
    pub deadlocks: Vec<Deadlock>,
    /// Threads with the same stack that wait for the same reason: deadlocks, locks, what runs, and what
    /// waits otherwise; of each, those with a function of the user first, then the largest; what is idle last.
    pub groups: Vec<Group>,
    /// Number of threads that were not read.
    pub omitted_threads: usize,
    /// What the report lacks, and why.
    pub notices: Vec<Notice>,
}

/// A thread with what its group is made of.
struct Described {
    pid: i32,
    reason: Reason,
    thread: WaitingThread,
    stack: Rc<Frames>,
    is_main: bool,
    /// Whether it waited without a time limit when the locks were read.
    is_stuck: bool,
}

impl Described {
    fn frames(&self) -> &[StackFrame] {
        &self.stack.0
    }
}

impl StackReport {
    /// Makes the report about threads with their stacks in a trace. `omitted` are those that were not read.
    #[must_use]
    pub fn new(threads: &[SnapshotThread], omitted: &OmittedThreads, trace: &Trace) -> Self {
        let mut described = describe(threads, trace);
        find_idle(&mut described);
        let deadlocks = deadlocks(&described);
        let goroutines = about_goroutines(&described);
        let processes = processes(&described, omitted, trace);
        let mut groups = group(described);
        let locked: FxHashSet<i32> = deadlocks
            .iter()
            .flat_map(|cycle| cycle.threads.iter().copied())
            .collect();
        groups.sort_by_key(|group| {
            let is_deadlocked = group
                .threads
                .iter()
                .any(|thread| locked.contains(&thread.tid));
            let first = group.threads.first().map(|thread| thread.tid);
            (
                group.reason == Reason::Idle,
                !is_deadlocked,
                group.reason,
                !group.frames.iter().any(|frame| frame.own),
                Reverse(group.threads.len()),
                first,
            )
        });
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
        let unix_ns = since_1970.map_or(0, |since| since.as_nanos() as u64);
        Self {
            format_version: FORMAT_VERSION,
            time: UtcTime::from_unix_ns(unix_ns).rfc3339(),
            processes,
            deadlocks,
            groups,
            omitted_threads: omitted.count(),
            notices: trace
                .quality
                .notices
                .iter()
                .cloned()
                .chain(goroutines)
                .collect(),
        }
    }

    /// Drops all but some processes.
    pub fn retain_processes(&mut self, pids: &[i32]) {
        self.processes.retain(|row| pids.contains(&row.pid));
        self.deadlocks.retain(|row| pids.contains(&row.pid));
        self.groups.retain(|row| pids.contains(&row.pid));
        self.omitted_threads = self.processes.iter().map(|row| row.omitted).sum();
    }

    /// Returns a thread.
    #[must_use]
    pub fn thread(&self, tid: i32) -> Option<(&Group, &WaitingThread)> {
        self.groups.iter().find_map(|group| {
            let thread = group.threads.iter().find(|thread| thread.tid == tid)?;
            Some((group, thread))
        })
    }
}

fn describe(threads: &[SnapshotThread], trace: &Trace) -> Vec<Described> {
    let mut stacks = Stacks::new(trace);
    let by_namespace_tid: FxHashMap<(i32, i32), i32> = threads
        .iter()
        .map(|thread| ((thread.pid.0, thread.namespace_tid.0), thread.tid.0))
        .collect();
    let described = threads.iter().map(|thread| {
        let stack = stacks.of(thread);
        let (frames, _) = &*stack;
        let has_monitor = thread.monitor.is_some();
        let uninterruptible = thread.is_uninterruptible;
        let reason = Reason::of(&thread.activity, uninterruptible, has_monitor, frames);
        let lock = match (&thread.activity, reason) {
            (Activity::Waits(wait), Reason::Lock) => {
                let frames = frames.iter().map(|frame| (&*frame.module, &*frame.name));
                let pid = thread.pid.0;
                Lock::of(thread, wait, frames, |id| {
                    let id = i32::try_from(id).ok()?;
                    by_namespace_tid.get(&(pid, id)).copied()
                })
            }
            _ => None,
        };
        Described {
            pid: thread.pid.0,
            reason,
            thread: WaitingThread::of(thread, lock),
            is_main: thread.pid.0 == thread.tid.0,
            is_stuck: thread.has_stayed && !has_timeout(&thread.activity),
            stack,
        }
    });
    described.collect()
}

/// Marks the threads that wait for work: no function of the user is on their stacks.
///
/// In a program without any function that is known to be the user's, nothing is known about that.
fn find_idle(described: &mut [Described]) {
    // What is missing may be the user's.
    let has_own = |thread: &Described| {
        let own = |frame: &StackFrame| may_be_own(frame.own, frame.kind, frame.is_offset);
        thread.stack.1.is_some() || thread.frames().iter().any(own)
    };
    let has_runtime = |thread: &Described| {
        let of_runtime = |frame: &StackFrame| is_of_runtime(frame.kind) || is_of_go(&frame.name);
        thread.frames().iter().any(of_runtime)
    };
    let known = described
        .iter()
        .filter(|thread| has_own(thread) || has_runtime(thread));
    let known: FxHashSet<i32> = known.map(|thread| thread.pid).collect();
    for thread in described {
        let is_go = thread.frames().iter().any(|frame| is_of_go(&frame.name));
        let may_be_idle = thread.reason.may_be_idle() && (!thread.is_main || is_go);
        if may_be_idle && !has_own(thread) && known.contains(&thread.pid) {
            thread.reason = Reason::Idle;
        }
    }
}

/// Returns whether a function belongs to Go's scheduler.
pub(super) fn is_of_go(name: &str) -> bool {
    GO_SCHEDULER.contains(&name.strip_suffix(".abi0").unwrap_or(name))
}

/// Returns whether a function is the user's, or may be: JIT code without a name.
pub(super) fn may_be_own(own: bool, kind: FunctionKind, is_offset: bool) -> bool {
    own || kind == FunctionKind::Jit && is_offset
}

/// Returns whether code runs in a managed runtime.
pub(super) fn is_of_runtime(kind: FunctionKind) -> bool {
    matches!(kind, FunctionKind::Jit | FunctionKind::ReadyToRun)
}

/// Returns a notice if a process is a Go program.
fn about_goroutines(described: &[Described]) -> Option<Notice> {
    let go = described
        .iter()
        .find(|thread| thread.frames().iter().any(|frame| is_of_go(&frame.name)))?;
    let what = format!(
        "goroutines that wait are on no thread of process {}",
        go.pid
    );
    let remedy = "/debug/pprof/goroutine?debug=2 of net/http/pprof lists them";
    Some(Notice::new(NoticeKind::NotRunning, what, remedy).about(Pid(go.pid)))
}

fn deadlocks(described: &[Described]) -> Vec<Deadlock> {
    let mut waits_for: BTreeMap<i32, BTreeMap<i32, i32>> = BTreeMap::new();
    for thread in described.iter().filter(|thread| thread.is_stuck) {
        if let Some(owner) = thread.thread.lock.and_then(|lock| lock.owner) {
            let of_process = waits_for.entry(thread.pid).or_default();
            of_process.insert(thread.thread.tid, owner);
        }
    }
    let found = waits_for.iter().flat_map(|(&pid, waits_for)| {
        let cycles = cycles(waits_for).into_iter();
        cycles.map(move |threads| Deadlock { pid, threads })
    });
    found.collect()
}

fn processes(
    described: &[Described],
    omitted: &OmittedThreads,
    trace: &Trace,
) -> Vec<SnapshotProcess> {
    let mut rows: BTreeMap<i32, (usize, Option<&Described>)> = BTreeMap::new();
    for thread in described {
        let (threads, named) = rows.entry(thread.pid).or_default();
        *threads += 1;
        if thread.is_main || named.is_none() {
            *named = Some(thread);
        }
    }
    for pid in omitted.by_process.keys() {
        rows.entry(pid.0).or_default();
    }
    let rows = rows.into_iter().map(|(pid, (threads, named))| {
        let process = trace.last_process(Pid(pid));
        SnapshotProcess {
            pid,
            name: named.map_or_else(String::new, |named| named.thread.name.clone()),
            command_line: process.map_or_else(String::new, |row| row.command_line.to_string()),
            threads,
            omitted: omitted.by_process.get(&Pid(pid)).copied().unwrap_or(0),
        }
    });
    rows.collect()
}

/// Returns whether a thread waits until a time at most.
fn has_timeout(activity: &Activity) -> bool {
    match activity {
        Activity::Waits(wait) => wait.futex.as_ref().is_some_and(|futex| futex.has_timeout),
        _ => false,
    }
}

/// Who has the lock of a thread: a thread, or another id.
type Owner = Option<(Option<i32>, Option<u32>)>;

/// Ids of names.
#[derive(Default)]
struct Names(FxHashMap<(String, String), u32>);

impl Names {
    fn id(&mut self, frame: &StackFrame) -> u32 {
        let next = self.0.len() as u32;
        let name = (frame.module.clone(), frame.name.clone());
        *self.0.entry(name).or_insert(next)
    }
}

/// Joins the threads with the same stack and reason. The same method may be compiled twice.
fn group(described: Vec<Described>) -> Vec<Group> {
    let mut names = Names::default();
    let mut same: FxHashMap<(Vec<u32>, Option<String>), usize> = FxHashMap::default();
    let mut stacks: FxHashMap<*const Frames, usize> = FxHashMap::default();
    let mut at: FxHashMap<(i32, Reason, usize, Owner), usize> = FxHashMap::default();
    let mut groups: Vec<Group> = Vec::new();
    for Described {
        pid,
        reason,
        thread,
        stack,
        ..
    } in &described
    {
        let stack_id = *stacks.entry(Rc::as_ptr(stack)).or_insert_with(|| {
            let (frames, truncated) = &**stack;
            let ids = frames.iter().map(|frame| names.id(frame)).collect();
            let next = same.len();
            *same.entry((ids, truncated.clone())).or_insert(next)
        });
        let owner = thread.lock.map(|lock| (lock.owner, lock.foreign_owner));
        let key = (*pid, *reason, stack_id, owner);
        let index = *at.entry(key).or_insert(groups.len());
        match groups.get_mut(index) {
            Some(group) => group.threads.push(thread.clone()),
            None => groups.push(Group {
                pid: *pid,
                reason: *reason,
                threads: vec![thread.clone()],
                frames: stack.0.clone(),
                truncated: stack.1.clone(),
            }),
        }
    }
    groups
}
