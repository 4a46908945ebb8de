//! Encodes records, as described in `perf_event_open(2)`.

use perf_event_open_sys::bindings as sys;

use super::image::{BUILD_ID_BYTES, ImageBuildId};
use crate::trace::{Cpu, Nanos, Pid, Tid};

/// Fields of a sample. Other records end with the same fields, without address, period and
/// callchain.
pub(super) const SAMPLE_TYPE: u32 = sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN;
/// `PERF_RECORD_FINISHED_ROUND`, a user-type record of perf.
///
/// No later record is older than the records before the previous one of these.
const FINISHED_ROUND: u32 = 68;
const HEADER_BYTES: usize = 8;
/// Process id in mappings of the kernel.
const KERNEL: Pid = Pid(-1);

/// Thread, time and CPU of a record.
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
    start: usize,
}

impl<'a> Record<'a> {
    fn start(out: &'a mut Vec<u8>, kind: u32, misc: u32) -> Self {
        let start = out.len();
        out.extend(kind.to_le_bytes());
        out.extend((misc as u16).to_le_bytes());
        out.extend([0; 2]);
        Self { out, start }
    }

    fn u32s(&mut self, values: &[u32]) -> &mut Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
        self.out.extend(bytes);
        self
    }

    fn u64s(&mut self, values: &[u64]) -> &mut Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes());
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

    /// Writes the size into the header. The caller ensures that the size fits.
    fn end(&mut self) {
        let size = (self.out.len() - self.start) as u16;
        let at = self.start + HEADER_BYTES - size_of::<u16>();
        self.out[at..self.start + HEADER_BYTES].copy_from_slice(&size.to_le_bytes());
    }
}

pub(super) fn finished_round(out: &mut Vec<u8>) {
    Record::start(out, FINISHED_ROUND, 0).end();
}

/// Appends the name of a thread. `is_exec` marks the start of a program.
pub(super) fn comm(out: &mut Vec<u8>, origin: Origin, name: &str, is_exec: bool) {
    let misc = if is_exec {
        sys::PERF_RECORD_MISC_COMM_EXEC
    } else {
        0
    };
    Record::start(out, sys::PERF_RECORD_COMM, misc)
        .ids(origin.pid, origin.tid)
        .text(name.as_bytes())
        .sample_id(origin)
        .end();
}

/// Appends the start of a further thread of a process.
pub(super) fn thread_fork(out: &mut Vec<u8>, origin: Origin) {
    let Origin { pid, tid, .. } = origin;
    lifetime(out, sys::PERF_RECORD_FORK, origin, (pid, tid), pid);
}

/// Appends the end of a process.
pub(super) fn exit(out: &mut Vec<u8>, origin: Origin) {
    let pid = origin.pid;
    lifetime(out, sys::PERF_RECORD_EXIT, origin, (pid, Tid(pid.0)), pid);
}

fn lifetime(out: &mut Vec<u8>, kind: u32, origin: Origin, thread: (Pid, Tid), parent: Pid) {
    let (pid, tid) = thread;
    Record::start(out, kind, 0)
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

/// Appends a mapping in the memory of a process.
pub(super) fn mapping(
    out: &mut Vec<u8>,
    origin: Origin,
    mapping: &Mapping<'_>,
    build_id: &ImageBuildId,
) {
    const READ_EXECUTE: u32 = 1 | 4;
    const PRIVATE: u32 = 2;
    let misc = sys::PERF_RECORD_MISC_USER | sys::PERF_RECORD_MISC_MMAP_BUILD_ID;
    let mut record = Record::start(out, sys::PERF_RECORD_MMAP2, misc);
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

/// Appends a mapping in the memory of the kernel.
///
/// Readers look for its build id only in the section after the records.
pub(super) fn kernel_mapping(out: &mut Vec<u8>, origin: Origin, mapping: &Mapping<'_>) {
    Record::start(out, sys::PERF_RECORD_MMAP, sys::PERF_RECORD_MISC_KERNEL)
        .ids(KERNEL, Tid(0))
        .u64s(&[mapping.start, mapping.bytes, mapping.file_offset])
        .text(mapping.path)
        .sample_id(origin)
        .end();
}

/// Appends a sample. `stack` is the callchain with context markers, leaf first.
pub(super) fn sample(
    out: &mut Vec<u8>,
    origin: Origin,
    weight: Nanos,
    (mode, ip): (u32, u64),
    stack: &[u64],
) {
    Record::start(out, sys::PERF_RECORD_SAMPLE, mode)
        .u64s(&[ip])
        .ids(origin.pid, origin.tid)
        .u64s(&[origin.time.0])
        .u32s(&[origin.cpu.0, 0])
        .u64s(&[weight.0, stack.len() as u64])
        .u64s(stack)
        .end();
}
