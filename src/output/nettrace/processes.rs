//! The lives of processes that the file tells of.

use rustc_hash::FxHashMap;

use crate::output::sanitize::{perf_comm, terminal};
use crate::trace::{Pid, Trace};

#[derive(Debug)]
pub(super) struct Life {
    pub(super) pid: Pid,
    /// As readers show it.
    pub(super) name: String,
    /// Its arguments but for the first, which is the name. `None`: only its runtime can tell.
    pub(super) arguments: Option<String>,
    /// Whether its beginning was told.
    pub(super) has_begun: bool,
}

/// Those with samples, in their order in the trace, and then those of which there are only events.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) lives: Vec<Life>,
    /// The life that a process id stands for now.
    current: FxHashMap<Pid, usize>,
}

impl Processes {
    pub(super) fn of(trace: &Trace) -> Self {
        let sampled = trace.processes.iter().map(|process| Life {
            pid: process.pid,
            // To readers a name ends at a space.
            name: perf_comm(&process.name).replace(' ', "_"),
            arguments: Some(arguments(&process.command_line)),
            has_begun: false,
        });
        let mut processes = Self {
            lives: sampled.collect(),
            current: FxHashMap::default(),
        };
        for (row, life) in processes.lives.iter().enumerate() {
            processes.current.entry(life.pid).or_insert(row);
        }
        for stream in trace.events.streams() {
            let lives = &mut processes.lives;
            processes.current.entry(stream.process).or_insert_with(|| {
                lives.push(Life {
                    pid: stream.process,
                    name: format!("pid {}", stream.process),
                    arguments: None,
                    has_begun: false,
                });
                lives.len() - 1
            });
        }
        processes
    }

    /// The first life of each process id, in order.
    pub(super) fn first_lives(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = self.current.values().copied().collect();
        rows.sort_unstable();
        rows
    }

    /// From now on the process id stands for this life.
    pub(super) fn begin(&mut self, row: usize) {
        self.lives[row].has_begun = true;
        self.current.insert(self.lives[row].pid, row);
    }

    /// What the runtime of a process says: a reader names the process by it. `false`: it was told before.
    pub(super) fn told(&mut self, pid: Pid, command_line: &str) -> bool {
        let life = self.current(pid).and_then(|row| self.lives.get_mut(row));
        let Some(life) = life.filter(|life| life.arguments.is_none()) else {
            return false;
        };
        let program = command_line.split(' ').next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        if !name.is_empty() {
            life.name = name.to_owned();
        }
        true
    }

    pub(super) fn current(&self, pid: Pid) -> Option<usize> {
        self.current.get(&pid).copied()
    }
}

fn arguments(command_line: &str) -> String {
    let arguments = command_line.split_once(' ').unwrap_or_default().1;
    terminal(arguments).into_owned()
}
