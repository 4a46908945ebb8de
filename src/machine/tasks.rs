//! Processes and threads that are running or ended recently.

use std::collections::VecDeque;
use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::executable_mappings::Maps;
use super::proc_fs;
use crate::trace::{Nanos, Pid, ProcessId, ThreadId, Tid};

/// Time for which the entry of an exited task is kept. Its last samples may follow its exit record.
const LINGER_NS: u64 = 1_000_000_000;

#[derive(Clone, Debug, Default)]
pub(super) struct Process {
    pub(super) name: Box<[u8]>,
    pub(super) maps: Arc<Maps>,
    pub(super) row: Option<ProcessId>,
    /// When it was forked or executed its program, if a record contained that.
    pub(super) started_at: Option<Nanos>,
    /// In a recording: the mappings before an exec, which contain the callers of the last samples.
    pub(super) before_exec: Option<Arc<Maps>>,
    /// Number of its threads in [`Tasks`].
    threads: u32,
    /// Distinguishes successive programs and processes with the same id.
    generation: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Thread {
    pub(super) pid: Pid,
    pub(super) name: Box<[u8]>,
    /// Its row, and the row of its process.
    pub(super) rows: Option<(ThreadId, ProcessId)>,
    ended: Option<Nanos>,
    /// Generation of its process.
    generation: u64,
}

/// All tasks by id. Ids are reused.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    processes: FxHashMap<Pid, Process>,
    threads: FxHashMap<Tid, Thread>,
    exited: VecDeque<(Nanos, Pid, Tid)>,
    /// Rows of processes that were removed or replaced.
    ended: Vec<ProcessId>,
    generations: u64,
}

impl Tasks {
    pub(super) fn process(&self, pid: Pid) -> Option<&Process> {
        self.processes.get(&pid)
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.processes.keys().copied()
    }

    /// Returns a process, and adds it if it is new.
    pub(super) fn process_mut(&mut self, pid: Pid) -> &mut Process {
        self.processes.entry(pid).or_default()
    }

    pub(super) fn thread(&self, tid: Tid) -> Option<&Thread> {
        self.threads.get(&tid)
    }

    /// Names a thread, and adds it if it is new. Returns its row, if it has one.
    pub(super) fn name_thread(&mut self, pid: Pid, tid: Tid, name: &[u8]) -> Option<ThreadId> {
        if !self.threads.contains_key(&tid) {
            self.put_thread(tid, pid, Box::default(), None);
        }
        let thread = self.threads.get_mut(&tid)?;
        thread.name = name.into();
        thread.rows.map(|(row, _)| row)
    }

    pub(super) fn put_thread(
        &mut self,
        tid: Tid,
        pid: Pid,
        name: Box<[u8]>,
        rows: Option<(ThreadId, ProcessId)>,
    ) {
        self.remove_thread(tid);
        let process = self.process_mut(pid);
        process.threads += 1;
        let thread = Thread {
            pid,
            name,
            rows,
            ended: None,
            generation: process.generation,
        };
        self.threads.insert(tid, thread);
    }

    /// Removes a thread. Returns its process if that has the same generation.
    ///
    /// An exec ends all other threads of a process.
    fn remove_thread(&mut self, tid: Tid) -> Option<Pid> {
        let Thread {
            pid, generation, ..
        } = self.threads.remove(&tid)?;
        let process = self.processes.get_mut(&pid)?;
        if process.generation != generation {
            return None;
        }
        process.threads = process.threads.saturating_sub(1);
        Some(pid)
    }

    fn next_generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }

    pub(super) fn fork(
        &mut self,
        time: Nanos,
        (pid, tid): (Pid, Tid),
        (parent_pid, parent_tid): (Pid, Tid),
    ) {
        let generation = self.next_generation();
        let parent = self.processes.get(&parent_pid);
        let creator = self.threads.get(&parent_tid).map(|thread| &thread.name);
        let name = creator.or(parent.map(|parent| &parent.name));
        let name: Box<[u8]> = name.cloned().unwrap_or_default();
        if pid != parent_pid {
            let child = Process {
                name: name.clone(),
                maps: parent.map(|p| p.maps.clone()).unwrap_or_default(),
                started_at: Some(time),
                generation,
                ..Process::default()
            };
            let replaced = self.processes.insert(pid, child);
            self.ended.extend(replaced.and_then(|process| process.row));
        }
        self.put_thread(tid, pid, name, None);
    }

    /// Starts a new program in a process. In a recording, the previous mappings are kept.
    pub(super) fn exec(&mut self, time: Nanos, pid: Pid, tid: Tid, is_live: bool) {
        self.remove_thread(tid);
        let before = self.remove_process(pid).filter(|_| !is_live);
        let process = Process {
            started_at: Some(time),
            before_exec: before.map(|before| before.maps),
            generation: self.next_generation(),
            ..Process::default()
        };
        self.processes.insert(pid, process);
    }

    pub(super) fn exit(&mut self, time: Nanos, pid: Pid, tid: Tid, is_live: bool) {
        if let Some(thread) = self.threads.get_mut(&tid) {
            thread.ended = Some(time);
        }
        self.exited.push_back((time, pid, tid));
        self.remove_exited(time, is_live);
    }

    fn remove_exited(&mut self, now: Nanos, is_live: bool) {
        while let Some(&(time, pid, tid)) = self.exited.front() {
            if now.0.saturating_sub(time.0) < LINGER_NS {
                break;
            }
            self.exited.pop_front();
            match is_live {
                true => self.remove_ended(pid, tid, time),
                false => self.remove_recorded(tid, time),
            }
        }
    }

    /// Removes a thread that ended at `time`, and its process if that has ended.
    ///
    /// Records may be lost, and ids reused, so /proc tells whether the process is running. It may
    /// have ended before its parent has reaped it.
    fn remove_ended(&mut self, pid: Pid, tid: Tid, time: Nanos) {
        let ended = self.threads.get(&tid).and_then(|thread| thread.ended);
        if ended == Some(time) {
            self.remove_thread(tid);
        }
        let process = self.processes.get(&pid);
        let may_be_last = pid.0 == tid.0 || process.is_some_and(|process| process.threads == 0);
        if may_be_last && !proc_fs::is_running(pid) {
            self.remove_process(pid);
        }
    }

    /// Removes a thread that ended at `time`, and its process with the last thread.
    ///
    /// The tasks of a recording are not in /proc.
    fn remove_recorded(&mut self, tid: Tid, time: Nanos) {
        let ended = self.threads.get(&tid).and_then(|thread| thread.ended);
        if ended == Some(time)
            && let Some(pid) = self.remove_thread(tid)
            && self
                .processes
                .get(&pid)
                .is_some_and(|process| process.threads == 0)
        {
            self.remove_process(pid);
        }
    }

    fn remove_process(&mut self, pid: Pid) -> Option<Process> {
        let process = self.processes.remove(&pid)?;
        self.ended.extend(process.row);
        Some(process)
    }

    /// Returns the rows of the processes that were removed or replaced since the last call.
    pub(super) fn take_ended(&mut self) -> Vec<ProcessId> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The old program's threads end after the exec, and are removed a second later.
    #[test]
    fn program_outlives_threads_of_previous_program() {
        let second = |seconds: u64| Nanos(seconds * 1_000_000_000);
        let (pid, main) = (Pid(7), Tid(7));
        let mut tasks = Tasks::default();
        tasks.fork(second(1), (pid, main), (Pid(1), Tid(1)));
        for tid in 8..11 {
            tasks.fork(second(1), (pid, Tid(tid)), (pid, main));
        }
        tasks.exec(second(2), pid, main, false);
        tasks.name_thread(pid, main, b"new");
        for tid in 8..11 {
            tasks.exit(second(2), pid, Tid(tid), false);
        }
        tasks.exit(second(4), Pid(20), Tid(20), false);
        assert!(tasks.process(pid).is_some() && tasks.thread(Tid(8)).is_none());
        tasks.exit(second(5), pid, main, false);
        tasks.exit(second(7), Pid(21), Tid(21), false);
        assert!(tasks.process(pid).is_none());
    }
}
