//! Walks the stacks of samples, and provides the rows that they refer to.

use std::io::Write;
use std::sync::Arc;

use perfcollect_symbols::symbolizer::Symbolizer;

use super::code_names::CodeNames;
use crate::machine::{Machine, Maps};
use crate::perf::SampleRecord;
use crate::trace::spool::FileRow;
use crate::trace::{CodeAddress, ModuleId, Nanos, Notice, Pid, ProcessId, Recorder, RowSource};
use crate::unwind::{Epoch, SampledProcess, Unwinder, WalkOutcome};

/// Outcome of a walk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Walked {
    pub(super) outcome: WalkOutcome,
    /// Whether the walk need not be repeated for the names of the code that it met.
    pub(super) is_named: bool,
    /// Size of the part of the user stack that the walk needed.
    pub(super) stack_bytes: u64,
}

/// Machine of the samples, unwinder of their stacks, and names of the JIT code that walks meet.
pub(super) struct StackWalker {
    pub(super) machine: Machine,
    unwinder: Unwinder,
    names: CodeNames,
    /// Number of the current batch of samples.
    batch: u64,
    /// Mappings of a process without known mappings: none.
    no_maps: Maps,
}

impl StackWalker {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            unwinder: match machine.is_live() {
                true => Unwinder::live(),
                false => Unwinder::default(),
            },
            machine,
            names: CodeNames::default(),
            batch: 0,
            no_maps: Maps::default(),
        }
    }

    /// Changes where the unwinder searches debug files.
    pub(super) fn set_symbolizer(&mut self, symbolizer: &Arc<Symbolizer>) {
        self.unwinder.set_symbolizer(symbolizer);
    }

    /// Waits longer for analyses of code, as no records arrive any more.
    pub(super) fn wait_for_analyses(&mut self) {
        self.unwinder.wait_for_analyses();
    }

    /// Waits for analyses of code as long as a snapshot may take.
    pub(super) fn wait_for_snapshot(&mut self) {
        self.unwinder.wait_for_snapshot();
    }

    /// Forgets the processes that have ended since the last call. Returns their rows.
    pub(super) fn forget_ended(&mut self) -> Vec<ProcessId> {
        let ended = self.machine.take_ended();
        for &process in &ended {
            self.unwinder.forget(process);
            self.names.forget(process);
        }
        ended
    }

    /// Starts a batch of samples, which were all taken since the last one.
    pub(super) fn start_batch(&mut self) {
        self.batch += 1;
    }

    /// Returns whether a process may free code now. Its samples should be walked at once.
    pub(super) fn may_free_code(&self, process: ProcessId, now: Nanos) -> bool {
        self.names.may_free_code(process, now)
    }

    /// Returns whether any process may free code now.
    pub(super) fn any_may_free_code(&self, now: Nanos) -> bool {
        self.names.any_may_free_code(now)
    }

    /// Unwinds the stack of a sample into `leaf_first`, and names the JIT code that it meets.
    pub(super) fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: ProcessId,
        is_preview: bool,
        leaf_first: &mut Vec<CodeAddress>,
    ) -> Walked {
        let process = (process, sample.pid);
        let (process, unwinder, names) = self.at(process, sample.time, is_preview);
        let outcome = unwinder.walk(sample, process, leaf_first);
        Walked {
            outcome,
            stack_bytes: unwinder.stack_bytes(),
            is_named: name_met(&process, unwinder, names),
        }
    }

    /// Returns the code at an address in the stacks of events, and names JIT code.
    pub(super) fn event_code(
        &mut self,
        process: (ProcessId, Pid),
        address: u64,
        now: Nanos,
    ) -> Option<CodeAddress> {
        let (process, unwinder, names) = self.at(process, now, false);
        let code = unwinder.caller_code(process, address);
        name_met(&process, unwinder, names);
        code
    }

    /// Returns the path of a module of a runtime, if the memory of the process has it.
    pub(super) fn module_path(
        &mut self,
        process: (ProcessId, Pid),
        module: u64,
        now: Nanos,
    ) -> Option<String> {
        let (process, unwinder, _) = self.at(process, now, false);
        unwinder.runtime(&process)?.module_path(module).ok()
    }

    /// Returns the known state of a process at a time, and what reads its code.
    fn at(
        &mut self,
        (process, pid): (ProcessId, Pid),
        time: Nanos,
        is_preview: bool,
    ) -> (SampledProcess<'_>, &mut Unwinder, &mut CodeNames) {
        let epoch = match self.names.frees_code(process, time) {
            true => Epoch::of_batch(self.batch),
            false => Epoch::of(time),
        };
        let process = SampledProcess {
            process,
            pid,
            time,
            epoch,
            maps: self.machine.maps(pid).unwrap_or(&self.no_maps),
            files: self.machine.files(),
            is_preview,
        };
        (process, &mut self.unwinder, &mut self.names)
    }

    /// Returns the processes discovered since the last call whose memory yields no method names.
    pub(super) fn take_unreadable(&mut self) -> Vec<(ProcessId, Pid)> {
        self.names.take_unreadable()
    }

    /// Returns notices about memory and methods that could not be read.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        self.unwinder.notices().chain(self.names.notices())
    }
}

/// Names the JIT code that the unwinder has just met. Returns false if it must be met again.
fn name_met(process: &SampledProcess<'_>, unwinder: &mut Unwinder, names: &mut CodeNames) -> bool {
    let mut all_named = true;
    unwinder.retain_met(process.process, |runtime, code| {
        let is_named = names.name(process, runtime, code);
        all_named &= is_named;
        is_named
    });
    if unwinder.met_unreadable_runtime() {
        names.note_unreadable(process.process, process.pid);
    }
    all_named
}

impl RowSource for StackWalker {
    fn write_rows<W: Write>(&mut self, recorder: &mut Recorder<W>) {
        self.machine.take_new_rows(|row| recorder.put(row));
        self.names.write_rows(recorder);
    }

    fn file_row(&self, id: ModuleId) -> FileRow<'_> {
        self.machine.files().file(id).describe()
    }
}
