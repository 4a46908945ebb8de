//! Looks at threads: where each was without a CPU since the look before.

use std::hash::BuildHasher;
use std::io::Write;
use std::rc::Rc;

use rustc_hash::FxBuildHasher;

use super::Engine;
use crate::capture::off_cpu::{Found, State, Tick, Unseen, Wait};
use crate::capture::snapshot;
use crate::perf::Record;
use crate::trace::{
    Blocked, CodeAddress, Cpu, Nanos, Pid, ProcessId, Sample, ThreadId, Tid, Truncation,
};

/// The process that starts the threads of the kernel, in the initial pid namespace.
const KTHREADD: Pid = Pid(2);

/// Maximum number of threads that start between two rounds and are passed on. Lists have the others.
const MAX_NEW_THREADS: usize = 4096;

/// Where a thread waits.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) leaf: Blocked,
    /// Hash of the registers and the stack.
    pub(super) stack_hash: u64,
    /// Stack pointer and instruction pointer.
    pub(super) registers: (u64, u64),
    /// Whether its stack was read.
    pub(super) has_stack: bool,
    /// Functions of the stack, innermost first.
    pub(super) callers: Rc<[CodeAddress]>,
    pub(super) truncation: Option<Truncation>,
}

impl Place {
    /// Returns whether it is the same place as one that is not completely known.
    fn completes(&self, known: &Self) -> bool {
        let is_same = match known.has_stack {
            true => self.stack_hash == known.stack_hash,
            false => self.has_stack && self.registers == known.registers,
        };
        is_same && known.truncation.is_some()
    }
}

impl<W: Write> Engine<'_, W> {
    /// Adds a look at a thread: where it was without a CPU since the look before.
    pub(in crate::capture) fn look(&mut self, tick: &Tick) {
        let (thread, process) = self.walker.machine.sampled(tick.pid, tick.tid);
        let place = tick.found.as_ref();
        let place = place.map(|found| self.place(tick, process, found));
        if let (Some(new), Some(known)) = (&place, self.timeline.place_mut(tick.tid))
            && new.completes(known)
        {
            *known = new.clone();
        }
        let waits = self.timeline.tick(tick, place);
        self.push_waits(tick.tid, thread, waits, Blocked::Unknown);
    }

    /// Follows the start and the end of a thread, which may have no look.
    pub(super) fn follow_life(&mut self, time: Nanos, record: &Record<'_>) {
        let machine = &self.walker.machine;
        match *record {
            Record::Fork {
                pid,
                tid,
                parent_pid,
                ..
            } => {
                let has_code = |pid| {
                    machine
                        .maps(pid)
                        .is_some_and(|maps| maps.iter().next().is_some())
                };
                let is_of_kernel = parent_pid == KTHREADD && !has_code(parent_pid);
                let is_own = pid.0 == std::process::id() as i32;
                // Tasks outside of the pid namespace have no ids.
                if pid.0 > 0 && tid.0 > 0 && !is_own && !is_of_kernel {
                    self.last_runs.remove(&tid);
                    self.timeline.start(pid, tid, time);
                    if self.new_threads.len() < MAX_NEW_THREADS {
                        self.new_threads.push((pid, tid));
                    }
                }
            }
            Record::Comm {
                tid, exec: true, ..
            } => self.timeline.execute(tid),
            Record::Exit { tid, .. } => {
                let name = machine.thread_name(tid);
                self.timeline.end(tid, time, name.unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Returns the threads that have started since the last call, with their processes.
    pub(in crate::capture) fn take_new_threads(&mut self) -> Vec<(Pid, Tid)> {
        std::mem::take(&mut self.new_threads)
    }

    /// Adds the threads that ended before they were found waiting, whose looks are all known at a time.
    pub(in crate::capture) fn add_unseen_threads(&mut self, now: Nanos) {
        while let Some(Unseen { pid, tid, waits }) = self.timeline.next_unseen(now) {
            let has_waits = |_: &Pid| !waits.is_empty();
            let row = pid.filter(has_waits);
            // A thread that ended long ago is forgotten, if the records were late.
            let row = row.and_then(|pid| self.walker.machine.sampled_early(pid, tid));
            match row {
                Some((thread, _)) => self.push_waits(tid, thread, waits, Blocked::Unseen),
                None => drop(self.last_runs.remove(&tid)),
            }
        }
    }

    /// Adds the times without a CPU of a thread. `unknown` is where it was if no place is known.
    fn push_waits(
        &mut self,
        tid: Tid,
        thread: ThreadId,
        waits: Vec<Wait<Place>>,
        unknown: Blocked,
    ) {
        for wait in waits {
            let Wait {
                state,
                start,
                length,
            } = wait;
            let last_run = || self.last_runs.get(&tid).cloned();
            let (leaf, place) = match state {
                State::Waits(place) => {
                    let leaf = place.as_ref().map(|place| place.leaf);
                    (leaf.unwrap_or(unknown), place)
                }
                State::Ready(place) => (Blocked::Ready, place),
                State::Preempted => (Blocked::Preempted, last_run()),
                State::ReadyThrottled(place) => (Blocked::Throttled, place),
                State::Throttled => (Blocked::Throttled, last_run()),
            };
            self.leaf_first.clear();
            self.leaf_first.push(CodeAddress::Blocked(leaf));
            let mut truncation = None;
            if let Some(place) = place {
                self.leaf_first.extend_from_slice(&place.callers);
                truncation = place.truncation;
            }
            let stack = self.stack(thread, truncation);
            let mut writer = self.recorder.sample_writer(&mut self.walker);
            writer.push_blocked(Sample {
                time: Nanos(start.0.saturating_add(length)),
                weight: Nanos(length),
                thread,
                cpu: Cpu(0),
                stack,
            });
        }
        if !self.timeline.follows(tid) {
            self.last_runs.remove(&tid);
        }
    }

    /// Returns where a thread waits. Its stack is walked only if it differs from that of the last look, or
    /// if that one was incomplete: code may have been analyzed since.
    fn place(&mut self, tick: &Tick, process: ProcessId, found: &Found) -> Place {
        let Some(read) = &found.read else {
            return Place {
                leaf: found.place,
                stack_hash: 0,
                registers: (0, 0),
                has_stack: false,
                callers: Rc::default(),
                truncation: None,
            };
        };
        let registers = (read.blocked.sp, read.blocked.ip);
        let has_stack = !read.stack.is_empty();
        let stack_hash = FxBuildHasher.hash_one((registers, &read.stack));
        if let Some(known) = self.timeline.place(tick.tid)
            && known.stack_hash == stack_hash
            && known.truncation != Some(Truncation::UnwindFailed)
        {
            let callers = Rc::clone(&known.callers);
            return Place {
                leaf: found.place,
                callers,
                ..*known
            };
        }
        let sample = snapshot::sample(tick.pid, tick.tid, read);
        let truncation = self.walk(&sample, process, false).outcome.cut;
        Place {
            leaf: found.place,
            stack_hash,
            registers,
            has_stack,
            callers: self.leaf_first.as_slice().into(),
            truncation,
        }
    }
}
