//! JIT code of the processes of a recording, which have ended: their jitdumps have it.

use perfcollect_symbols::jit_dump::{JitDumpCode, JitFunction};
use rustc_hash::FxHashMap;

use super::JitFrame;
use super::code::Code;
use crate::dotnet::Image;
use crate::trace::{Nanos, ProcessId};
use crate::unwind::analysis::{Certainty, Finding, finding_of_row};
use crate::unwind::managed::SampledProcess;
use crate::unwind::rule::UnwindRule;

/// Maximum number of open jitdumps, and of their functions. When there are more, some are closed and
/// read again later.
const MAX_DUMPS: usize = 256;
const MAX_FUNCTIONS: usize = 4 << 20;
/// Maximum number of jitdumps that are read.
const MAX_READS: usize = 1024;
/// Time until perfcollect looks again for a jitdump that a process has not mapped yet.
const RETRY_NS: u64 = 10_000_000;
/// Size of the code before and from an address that is read.
const BEFORE: u64 = 32 << 10;
const AFTER: u64 = 96 << 10;

/// The jitdumps of processes.
#[derive(Default)]
pub(super) struct RecordedCode {
    dumps: FxHashMap<ProcessId, Result<JitDumpCode, Nanos>>,
    reads: usize,
}

impl RecordedCode {
    /// Returns what a jitdump shows about an address, unless `known` does so for its function.
    ///
    /// Also returns what identifies the function.
    pub(super) fn at(
        &mut self,
        process: &SampledProcess<'_>,
        address: u64,
        known: impl FnOnce(u32) -> Option<JitFrame>,
    ) -> Option<(JitFrame, u32)> {
        let dump = self.dump(process)?;
        let time = process.time.0;
        // A call may be the last instruction of a function.
        let called = address.checked_sub(1);
        let addresses = [Some(address), called].into_iter().flatten();
        let mut functions = addresses.filter_map(|at| Some((at, dump.lookup(at, time)?)));
        let (at, function) = functions.next()?;
        let id = function.id() as u32;
        if let Some(frame) = known(id) {
            return Some((frame, id));
        }
        let range = &function.range;
        let start = range.start.max(address.saturating_sub(BEFORE));
        let end = range.end.min(address.saturating_add(AFTER));
        let bytes = dump.code(function, start..end).ok()?;
        let image = Image {
            start,
            bytes: &bytes,
        };
        let mut frame = super::frame(&mut Code::new(&image, process.maps), address);
        frame.rule = described(dump, function, at).or(frame.rule);
        Some((frame, id))
    }

    /// Closes the jitdump of a process.
    pub(super) fn forget(&mut self, process: ProcessId) {
        self.dumps.remove(&process);
    }

    fn dump(&mut self, process: &SampledProcess<'_>) -> Option<&JitDumpCode> {
        let id = process.process;
        let is_due = match self.dumps.get(&id) {
            Some(Ok(_)) => false,
            Some(Err(retry_at)) => process.time >= *retry_at,
            None => true,
        };
        if is_due && self.reads < MAX_READS {
            let retry_at = Nanos(process.time.0.saturating_add(RETRY_NS));
            let opened = open(process).ok_or(retry_at);
            self.reads += usize::from(opened.is_ok());
            self.make_room(opened.as_ref().map_or(0, JitDumpCode::len));
            self.dumps.insert(id, opened);
        }
        self.dumps.get(&id)?.as_ref().ok()
    }

    /// Closes jitdumps so that there is room for one with so many functions.
    fn make_room(&mut self, functions: usize) {
        let open = self.dumps.values().flatten().map(JitDumpCode::len);
        let mut all = open.sum::<usize>().saturating_add(functions);
        while (self.dumps.len() >= MAX_DUMPS || all > MAX_FUNCTIONS)
            && let Some(&any) = self.dumps.keys().next()
        {
            let closed = self.dumps.remove(&any);
            all -= closed.and_then(Result::ok).map_or(0, |dump| dump.len());
        }
    }
}

fn open(process: &SampledProcess<'_>) -> Option<JitDumpCode> {
    let files = process.files;
    let dump = files.jit_dump(process.maps)?;
    let found = files
        .recorded()?
        .jit_process(process.pid, Some(dump))
        .ok()?;
    JitDumpCode::read(found.source.open_dump()?.ok()?).ok()
}

/// Returns the rule of the unwind information that a runtime wrote for a function.
fn described(
    dump: &JitDumpCode,
    function: &JitFunction,
    address: u64,
) -> Option<(UnwindRule, Certainty)> {
    let (rows, _) = dump.call_frames(function)?.rows(address);
    let row = rows.iter().find(|row| row.range.contains(&address))?;
    match finding_of_row(row)? {
        Finding::Caller(rule, certainty) => Some((rule, certainty)),
        Finding::Root | Finding::OtherStack(_) => None,
    }
}
