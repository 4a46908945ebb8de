//! Process instances in the file.
//!
//! A process that executes another program stays one instance, with the name of the last: readers keep a
//! thread in the first instance that had it, and find no symbols of a later one.

use rustc_hash::FxHashMap;

use crate::output::sanitize::{perf_comm, terminal};
use crate::trace::{Pid, ProcessId, Trace};

/// One process instance. A process id may have several.
#[derive(Debug)]
pub(super) struct ProcessInstance {
    pub(super) pid: Pid,
    /// Name, as readers display it.
    pub(super) name: String,
    /// Arguments without the program. `None` if only events of the runtime contain them.
    pub(super) arguments: Option<String>,
    /// Whether the file contains the start of the process.
    pub(super) is_started: bool,
}

/// Processes with samples, in their order in the trace, then processes that have only events.
#[derive(Debug)]
pub(super) struct Processes {
    pub(super) instances: Vec<ProcessInstance>,
    /// Current instance of each process id.
    current: FxHashMap<Pid, usize>,
    /// As [`Trace::last_programs`].
    last_programs: Vec<ProcessId>,
}

impl Processes {
    pub(super) fn for_trace(trace: &Trace) -> Self {
        let sampled = trace.processes.iter().map(|process| ProcessInstance {
            pid: process.pid,
            // Readers end a name at the first space.
            name: perf_comm(&process.name).replace(' ', "_"),
            arguments: Some(arguments(&process.command_line)),
            is_started: false,
        });
        let mut processes = Self {
            instances: sampled.collect(),
            current: FxHashMap::default(),
            last_programs: trace.last_programs(),
        };
        for (instance, last) in processes.instances.iter().zip(&processes.last_programs) {
            let current = processes.current.entry(instance.pid);
            current.or_insert(last.index());
        }
        for process in trace.events.streams().iter().map(|it| it.name.process) {
            let instances = &mut processes.instances;
            processes.current.entry(process).or_insert_with(|| {
                instances.push(ProcessInstance {
                    pid: process,
                    name: format!("pid {process}"),
                    arguments: None,
                    is_started: false,
                });
                instances.len() - 1
            });
        }
        processes
    }

    /// Returns the first instance of each process id, in order.
    pub(super) fn first_instances(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = self.current.values().copied().collect();
        rows.sort_unstable();
        rows
    }

    /// Returns the instance of a process of the trace.
    pub(super) fn of(&self, process: ProcessId) -> usize {
        self.last_programs[process.index()].index()
    }

    /// Makes an instance the current one of its process id.
    pub(super) fn start(&mut self, row: usize) {
        self.instances[row].is_started = true;
        self.current.insert(self.instances[row].pid, row);
    }

    /// Sets the name of a process from the command line in an event of its runtime.
    ///
    /// Returns `false` if the file already contains the command line.
    pub(super) fn set_command_line(&mut self, pid: Pid, command_line: &str) -> bool {
        let instance = self.current(pid);
        let instance = instance.and_then(|row| self.instances.get_mut(row));
        let Some(instance) = instance.filter(|instance| instance.arguments.is_none()) else {
            return false;
        };
        let program = command_line.split(' ').next().unwrap_or_default();
        let name = program.rsplit('/').next().unwrap_or_default();
        if !name.is_empty() {
            instance.name = name.to_owned();
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
