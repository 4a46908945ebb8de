//! Walks the stacks of samples, and provides the rows that they refer to.

use std::io::Write;

use super::code_names::CodeNames;
use crate::machine::{Machine, Maps};
use crate::perf::SampleRecord;
use crate::trace::spool::FileRow;
use crate::trace::{CodeAddress, ModuleId, Notice, Pid, ProcessId, Recorder, RowSource};
use crate::unwind::{SampledProcess, Unwinder, WalkOutcome};

/// Machine of the samples, unwinder of their stacks, and names of the JIT code that walks meet.
pub(super) struct StackWalker {
    pub(super) machine: Machine,
    unwinder: Unwinder,
    names: CodeNames,
    /// Mappings of a process without known mappings: none.
    no_maps: Maps,
}

impl StackWalker {
    pub(super) fn new(machine: Machine) -> Self {
        Self {
            machine,
            unwinder: Unwinder::default(),
            names: CodeNames::default(),
            no_maps: Maps::default(),
        }
    }

    /// Unwinds the stack of a sample into `leaf_first`, and names the JIT code that it meets.
    pub(super) fn walk(
        &mut self,
        sample: &SampleRecord<'_>,
        process: ProcessId,
        is_preview: bool,
        leaf_first: &mut Vec<CodeAddress>,
    ) -> WalkOutcome {
        let process = SampledProcess {
            process,
            pid: sample.pid,
            time: sample.time,
            maps: self.machine.maps(sample.pid).unwrap_or(&self.no_maps),
            files: self.machine.files(),
            is_preview,
        };
        let walked = self.unwinder.walk(sample, process, leaf_first);
        self.unwinder.retain_met(process.process, |runtime, code| {
            self.names.name(&process, runtime, code)
        });
        if walked.unreadable_runtime {
            self.names.note_unreadable(process.process, process.pid);
        }
        walked
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

impl RowSource for StackWalker {
    fn write_rows<W: Write>(&mut self, recorder: &mut Recorder<W>) {
        self.machine.take_new_rows(|row| recorder.put(row));
        self.names.write_rows(recorder);
    }

    fn file_row(&self, id: ModuleId) -> FileRow<'_> {
        self.machine.files().file(id).describe()
    }
}
