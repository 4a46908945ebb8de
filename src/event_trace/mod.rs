//! A trace of an event stream of one .NET runtime, as dotnet-trace, dotnet-monitor or the archive of a
//! capture has it.
//!
//! ```text
//! FILE.nettrace ── Scan: session, methods ── StackPass: code of the stacks, samples ── Trace
//! ```
//! The stream is read twice, and a third time for the reports. It is untrusted: its sender chose every
//! byte.

mod code;
mod error;
mod scan;
mod session;
mod stack_pass;

pub use error::EventTraceError;

use std::fs::File;
use std::path::Path;

use crate::bytes::{Positioned, fill};
use crate::nettrace::TraceInfo;
use crate::regular_file;
use crate::trace::{
    EventStream, EventStreams, Notice, NoticeKind, Pid, Process, Quality, StreamName, Trace,
};
use scan::Scan;
use stack_pass::StackPass;

/// First bytes of a stream.
const MAGIC: &[u8] = b"Nettrace";
/// First bytes of a heap dump, and the type of its first object, which is among the first bytes.
const HEAP_DUMP_MAGIC: &[u8] = b"\x14\0\0\0!FastSerialization.1";
const HEAP_DUMP_TYPE: &[u8] = b"GCHeapDump";
/// Number of bytes at the start of a file that show its format.
const HEAD_BYTES: usize = 256;
/// First version of the format that no runtime sends.
const SYSTEM_WIDE_VERSION: u32 = 6;
/// Part of the addresses in stacks (a twentieth) without a name that is worth a notice.
const MIN_UNNAMED: usize = 20;

/// Opens the event stream at `path` as a trace. Returns `None` if the file is none.
///
/// A corrupt or truncated stream is read up to there, with a notice.
///
/// # Errors
/// The file has events, but none that the reports show, or its header is corrupt.
pub fn open(path: &Path) -> Result<Option<Trace>, EventTraceError> {
    let Ok(file) = regular_file::open(path) else {
        return Ok(None);
    };
    let path = path.display();
    let mut head = [0; HEAD_BYTES];
    let mut start = Positioned { file: &file, at: 0 };
    let Ok(length) = fill(&mut start, &mut head) else {
        return Ok(None);
    };
    let head = &head[..length];
    if head.starts_with(HEAP_DUMP_MAGIC)
        && head
            .windows(HEAP_DUMP_TYPE.len())
            .any(|part| part == HEAP_DUMP_TYPE)
    {
        let path = path.to_string();
        return Err(EventTraceError::HeapDump { path });
    }
    if !head.starts_with(MAGIC) {
        return Ok(None);
    }
    read(file, path.to_string()).map(Some)
}

/// Returns whether the file at `path` is a stream of the whole system, as NAME.nettrace of a capture is.
#[must_use]
pub fn is_system_wide(path: &Path) -> bool {
    let Ok(file) = regular_file::open(path) else {
        return false;
    };
    EventStream::header(&file).is_ok_and(|header| header.version >= SYSTEM_WIDE_VERSION)
}

fn read(file: File, path: String) -> Result<Trace, EventTraceError> {
    let header = EventStream::header(&file).map_err(|source| EventTraceError::Header {
        path: path.clone(),
        source,
    })?;
    if header.version >= SYSTEM_WIDE_VERSION {
        return Err(EventTraceError::SystemWide { path });
    }
    let stream = EventStream::open(StreamName::first(process_id(&header)), file);
    let scan = Scan::of(&stream);
    if scan.is_heap_dump() {
        return Err(EventTraceError::HeapDump { path });
    }
    Ok(trace_of(stream, scan, &header))
}

/// Returns the id of the process in its own pid namespace.
fn process_id(header: &TraceInfo) -> Pid {
    let id = header.process.and_then(|id| i32::try_from(id).ok());
    id.filter(|id| *id > 0).map_or(Pid::UNKNOWN, Pid)
}

fn trace_of(stream: EventStream, scan: Scan, header: &TraceInfo) -> Trace {
    let Scan {
        session, methods, ..
    } = &scan;
    let process = Process {
        pid: stream.name.process,
        name: session.process_name(),
        command_line: session.command_line.as_str().into(),
        ended: None,
    };
    let events = EventStreams::new([stream]);
    let mut trace = Trace {
        info: session.capture_info(header, process.pid),
        processes: vec![process],
        ..Trace::default()
    };
    let mut pass = StackPass::new(&mut trace, methods, scan.lists_addresses);
    events.iter().for_each(|event| pass.take(&event));
    let taken = pass.finish();
    let mut notices: Vec<Notice> = events.notices().collect();
    notices.extend(taken.notices());
    if taken.code.unnamed * MIN_UNNAMED > taken.code.addresses {
        notices.push(unnamed(&taken.code, scan.has_list));
    }
    trace.quality = Quality {
        events: events.qualities(),
        notices,
        ..trace.quality
    };
    trace.events = events;
    trace.count_names();
    trace
}

/// Returns the notice about code without a name.
fn unnamed(counts: &code::CodeCounts, has_list: bool) -> Notice {
    let code::CodeCounts { addresses, unnamed } = counts;
    let why = match has_list {
        true => "its list of methods lacks them",
        false => "it has no list of methods, which a runtime sends last",
    };
    let what =
        format!("{unnamed} of {addresses} code addresses in the event stream have no name: {why}");
    let remedy = "end a session in order, and with its rundown: a stream that ends early has none";
    Notice::new(NoticeKind::JitUnsymbolized, what, remedy).counting(*unnamed)
}
