//! How much memory the processes of the target have, during a capture.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::machine;
use crate::output::summary::MAX_WAITING;
use crate::trace::{Pid, ProcessMemory};

/// Interval of reads.
const INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of processes.
const MAX_PROCESSES: usize = 4096;

/// The resident memory of processes since the start of a capture.
#[derive(Debug)]
pub(super) struct MemoryUse {
    processes: BTreeMap<Pid, ProcessMemory>,
    next_read: Instant,
}

impl MemoryUse {
    /// Starts with the processes that run already.
    pub(super) fn start(pids: &[Pid]) -> Self {
        let mut memory = Self {
            processes: BTreeMap::new(),
            next_read: Instant::now() + INTERVAL,
        };
        memory.read(pids);
        memory
    }

    /// Reads it again if it is time to.
    pub(super) fn follow(&mut self, pids: impl FnOnce() -> Vec<Pid>) {
        let now = Instant::now();
        if now >= self.next_read {
            self.read(&pids());
            self.next_read = now + INTERVAL;
        }
    }

    /// Returns the processes with most memory, most first.
    pub(super) fn end(mut self, pids: &[Pid]) -> Vec<ProcessMemory> {
        self.read(pids);
        for (&pid, process) in &mut self.processes {
            process.has_ended = resident_kib(pid).is_none();
        }
        let mut all: Vec<ProcessMemory> = self.processes.into_values().collect();
        all.sort_by_key(|process| Reverse(process.max_kib));
        all.truncate(MAX_WAITING);
        all
    }

    fn read(&mut self, pids: &[Pid]) {
        for &pid in pids {
            if let Some(kib) = resident_kib(pid) {
                self.add(pid, kib);
            }
        }
    }

    fn add(&mut self, pid: Pid, kib: u64) {
        if self.processes.len() >= MAX_PROCESSES && !self.processes.contains_key(&pid) {
            return;
        }
        let process = self.processes.entry(pid).or_insert(ProcessMemory {
            pid: pid.0,
            first_kib: kib,
            ..ProcessMemory::default()
        });
        process.last_kib = kib;
        process.max_kib = process.max_kib.max(kib);
    }
}

/// Returns the resident memory of a process; `None` if it has ended, also if its parent does not know yet.
fn resident_kib(pid: Pid) -> Option<u64> {
    machine::resident_kib(pid).filter(|kib| *kib > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_the_last_and_the_most_are_kept() {
        let mut memory = MemoryUse::start(&[]);
        for kib in [10, 30, 20] {
            memory.add(Pid(7), kib);
        }
        memory.add(Pid(8), 40);
        let rows = memory.end(&[]);
        let rows = rows
            .iter()
            .map(|it| (it.pid, it.first_kib, it.last_kib, it.max_kib));
        assert!(rows.eq([(8, 40, 40, 40), (7, 10, 20, 30)]));
    }

    #[test]
    fn a_process_has_memory() {
        let own = Pid(std::process::id() as i32);
        let rows = MemoryUse::start(&[own, Pid(0)]).end(&[]);
        assert_eq!(rows.len(), 1);
        assert!(rows[0].first_kib > 0, "{rows:?}");
        assert!(!rows[0].has_ended);
    }

    #[test]
    fn a_process_that_ended_keeps_its_memory() {
        let mut child = std::process::Command::new("sleep")
            .arg("100")
            .spawn()
            .unwrap();
        let pid = Pid(child.id() as i32);
        let memory = MemoryUse::start(&[pid]);
        child.kill().unwrap();
        // A zombie until it is waited for.
        while machine::resident_kib(pid).is_some_and(|kib| kib > 0) {
            std::thread::yield_now();
        }
        let rows = memory.end(&[pid]);
        assert!(rows[0].last_kib > 0 && rows[0].has_ended, "{rows:?}");
        child.wait().unwrap();
    }
}
