//! The records, as `perf_event_open(2)` describes them.

use perf_event_open_sys::bindings as sys;

use super::image::{BUILD_ID_BYTES, ImageBuildId};
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// What a sample holds; the records of other types end in the same but for the address, the period and the stack.
pub(super) const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN;
/// `PERF_RECORD_FINISHED_ROUND`, one of perf's own: nothing that follows is older than what stood before the last one.
const FINISHED_ROUND: u32 = 68;
const HEADER_BYTES: usize = 8;
/// The kernel, as process of its mappings.
const KERNEL: Pid = Pid(-1);

/// Who made a record, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin {
    pub(super) pid: Pid,
    pub(super) tid: Tid,
    pub(super) time: Nanos,
    pub(super) cpu: Cpu,
}

/// A record under construction.
struct Record<'a> {
    out: &'a mut Vec<u8>,
    begin: usize,
}

impl<'a> Record<'a> {
    fn begin(out: &'a mut Vec<u8>, kind: u32, misc: u32) -> Self {
        let begin = out.len();
        out.extend(kind.to_le_bytes());
        out.extend((misc as u16).to_le_bytes());
        out.extend([0; 2]);
        Self { out, begin }
    }

    fn u32s(&mut self, numbers: &[u32]) -> &mut Self {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        self.out.extend(bytes);
        self
    }

    fn u64s(&mut self, numbers: &[u64]) -> &mut Self {
        let bytes = numbers.iter().flat_map(|number| number.to_le_bytes());
        self.out.extend(bytes);
        self
    }

    fn ids(&mut self, pid: Pid, tid: Tid) -> &mut Self {
        self.u32s(&[pid.0.cast_unsigned(), tid.0.cast_unsigned()])
    }

    fn text(&mut self, text: &[u8]) -> &mut Self {
        self.out.extend_from_slice(text);
        let padded = (text.len() + 1).next_multiple_of(8);
        self.out.extend(vec![0; padded - text.len()]);
        self
    }

    fn sample_id(&mut self, origin: Origin) -> &mut Self {
        self.ids(origin.pid, origin.tid)
            .u64s(&[origin.time.0])
            .u32s(&[origin.cpu.0, 0])
    }

    /// The caller has made sure that the size fits.
    fn end(&mut self) {
        let size = (self.out.len() - self.begin) as u16;
        let at = self.begin + HEADER_BYTES - size_of::<u16>();
        self.out[at..self.begin + HEADER_BYTES].copy_from_slice(&size.to_le_bytes());
    }
}

pub(super) fn finished_round(out: &mut Vec<u8>) {
    Record::begin(out, FINISHED_ROUND, 0).end();
}

/// The name of a thread; `is_exec`: a program has begun.
pub(super) fn comm(out: &mut Vec<u8>, origin: Origin, name: &str, is_exec: bool) {
    let misc = if is_exec {
        sys::PERF_RECORD_MISC_COMM_EXEC
    } else {
        0
    };
    Record::begin(out, sys::PERF_RECORD_COMM, misc)
        .ids(origin.pid, origin.tid)
        .text(name.as_bytes())
        .sample_id(origin)
        .end();
}

/// A thread of a process that has others.
pub(super) fn thread_fork(out: &mut Vec<u8>, origin: Origin) {
    let Origin { pid, tid, .. } = origin;
    lifetime(out, sys::PERF_RECORD_FORK, origin, (pid, tid), pid);
}

/// The end of a process.
pub(super) fn exit(out: &mut Vec<u8>, origin: Origin) {
    let pid = origin.pid;
    lifetime(out, sys::PERF_RECORD_EXIT, origin, (pid, Tid(pid.0)), pid);
}

fn lifetime(out: &mut Vec<u8>, kind: u32, origin: Origin, of: (Pid, Tid), parent: Pid) {
    let (pid, tid) = of;
    Record::begin(out, kind, 0)
        .ids(pid, Tid(parent.0))
        .ids(Pid(tid.0), Tid(parent.0))
        .u64s(&[origin.time.0])
        .sample_id(origin)
        .end();
}

/// A range of a file in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mapping<'a> {
    pub(super) start: u64,
    pub(super) bytes: u64,
    pub(super) file_offset: u64,
    pub(super) path: &'a [u8],
}

/// Of the memory of a process.
pub(super) fn mapping(
    out: &mut Vec<u8>,
    origin: Origin,
    mapping: &Mapping<'_>,
    build_id: &ImageBuildId,
) {
    const READ_EXECUTE: u32 = 1 | 4;
    const PRIVATE: u32 = 2;
    let misc = sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_MMAP_BUILD_ID;
    let mut record = Record::begin(out, sys::PERF_RECORD_MMAP2, misc);
    record
        .ids(origin.pid, Tid(origin.pid.0))
        .u64s(&[mapping.start, mapping.bytes, mapping.file_offset])
        .u32s(&[BUILD_ID_BYTES as u32]);
    record.out.extend(build_id);
    record
        .u32s(&[READ_EXECUTE, PRIVATE])
        .text(mapping.path)
        .sample_id(origin)
        .end();
}

/// Of the kernel's; build ids of these are told behind the records only, and readers look nowhere else.
pub(super) fn kernel_mapping(out: &mut Vec<u8>, origin: Origin, mapping: &Mapping<'_>) {
    Record::begin(out, sys::PERF_RECORD_MMAP, sys::PERF_RECORD_MISC_KERNEL)
        .ids(KERNEL, Tid(0))
        .u64s(&[mapping.start, mapping.bytes, mapping.file_offset])
        .text(mapping.path)
        .sample_id(origin)
        .end();
}

/// A sample of so much CPU time; `stack`: the callchain with its context marks, the leaf's first.
pub(super) fn sample(
    out: &mut Vec<u8>,
    origin: Origin,
    weight: Nanos,
    (mode, ip): (u32, u64),
    stack: &[u64],
) {
    Record::begin(out, sys::PERF_RECORD_SAMPLE, mode)
        .u64s(&[ip])
        .ids(origin.pid, origin.tid)
        .u64s(&[origin.time.0])
        .u32s(&[origin.cpu.0, 0])
        .u64s(&[weight.0, stack.len() as u64])
        .u64s(stack)
        .end();
}
