//! `NAME.nettrace`: samples and runtime events on one timeline.
//!
//! The file uses version 6 of the format with the Universal providers. In PerfView it shows what
//! the archive cannot: stacks of exceptions and allocations, and garbage collections next to
//! samples.
//!
//! ```text
//! Trace.samples ─┐            ┌─ Processes, Code: processes, their functions and stacks
//!                ├─ by time ──┤
//! Trace.events ──┘            └─ Stream ─ chunks of kinds, threads, stacks, events ── file
//! ```
//! A time without a CPU is an event at its end, `cswitch`, with its length in nanoseconds: PerfView's Thread Time.
//!
//! Time zero is that of the archive (`time_zero`). A sample contains its CPU time in whole
//! milliseconds. The remainder is added to the next sample of the thread, so that the total of a
//! thread is correct.

mod code;
mod encode;
mod event_rows;
mod kinds;
mod old_stream;
mod processes;
mod record_stream;
mod records;
mod rewriter;
mod stream;
mod writer;

pub use old_stream::OldStreamError;
pub use rewriter::{RewriteError, rewrite};

use std::io::{self, Write};

use crate::trace::{Nanos, Trace};

/// A time after all others.
const NEVER: Nanos = Nanos(u64::MAX);

/// Writes all samples, times without a CPU, and events of `trace`.
///
/// # Errors
/// Returns errors of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut writer = writer::Writer::start(trace, out)?;
    let mut events = trace.events.iter().peekable();
    let mut waits = trace.blocked.iter().peekable();
    let mut samples = trace.samples.iter().peekable();
    loop {
        let of_sample = samples.peek().map_or(NEVER, |sample| sample.time);
        let of_wait = waits.peek().map_or(NEVER, |wait| wait.time);
        // A time that ends at a sample or an event precedes it: PerfView would compute a negative CPU time.
        while let Some(event) =
            events.next_if(|event| event.time < of_wait && event.time <= of_sample)
        {
            writer.event(&event)?;
        }
        if let Some(wait) = waits.next_if(|wait| wait.time <= of_sample) {
            writer.wait(&wait)?;
        } else if let Some(sample) = samples.next() {
            writer.sample(&sample)?;
        } else {
            break;
        }
    }
    for event in events {
        writer.event(&event)?;
    }
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::nettrace::Reader;
    use crate::trace::{
        EventStream, EventStreams, Frame, FrameId, Function, FunctionId, FunctionKind, Pid,
        Process, ProcessId, Sample, StreamName, Thread, ThreadId, Tid,
    };

    const DEPTH: u32 = 900;

    /// Returns a trace of processes that have the same stack, and sampled one after another.
    fn crowd(processes: u32) -> Trace {
        let mut trace = Trace::default();
        for row in 0..DEPTH {
            trace.functions.push(Function {
                name: Some(format!("function {row}").into()),
                start: None,
                module: "program".into(),
                tier: None,
                kind: FunctionKind::Native,
                inlined: false,
            });
            trace.frame_functions.push(FunctionId(row));
            trace.frames.push(Frame {
                offset: row.into(),
                functions: row..row + 1,
            });
        }
        let stack = trace.stacks.intern((0..DEPTH).map(FrameId));
        for row in 0..processes {
            trace.processes.push(Process {
                pid: Pid(row as i32 + 1),
                name: "program".into(),
                command_line: "".into(),
                ended: None,
            });
            trace.threads.push(Thread {
                process: ProcessId(row),
                tid: Tid(row as i32 + 1),
                name: "program".into(),
            });
        }
        for (time, row) in (1..).zip((0..processes).chain([0, processes - 1])) {
            trace.samples.push(Sample {
                time: Nanos(time * 1_000_000_000),
                weight: Nanos(1_000_000),
                thread: ThreadId(row),
                stack,
                ..Sample::default()
            });
        }
        trace
    }

    #[test]
    fn events_end_when_the_reading_is_stopped() {
        let mut file = tempfile::tempfile().unwrap();
        write(&crowd(3), &mut file).unwrap();
        let stream = EventStream::open(StreamName::first(Pid(1)), file);
        let trace = Trace {
            events: EventStreams::new([stream]),
            ..Trace::default()
        };
        let all = trace.events.count();
        assert_eq!(trace.events.iter().count() as u64, all);
        let mut started = trace.events.iter();
        assert!(started.next().is_some());
        trace.stop_reading();
        // One event was read already.
        assert!(started.count() <= 1 && all > 2);
        assert_eq!(trace.events.iter().count(), 0);
    }

    #[test]
    fn symbols_of_forgotten_processes_are_written_again() {
        const PROCESSES: u32 = 700;
        let trace = crowd(PROCESSES);
        let mut stream = Vec::new();
        write(&trace, &mut stream).unwrap();
        let symbol = records::Record::ProcessSymbol.kind();
        let mut reader = Reader::open(&*stream).unwrap();
        let mut symbols: HashMap<u64, u32> = HashMap::new();
        while let Some(event) = reader.next_event().unwrap() {
            if event.metadata.id == symbol.id && event.metadata.provider == symbol.provider {
                *symbols.entry(event.thread.process.unwrap()).or_default() += 1;
            }
        }
        assert_eq!(symbols.len() as u32, PROCESSES);
        let last = u64::from(PROCESSES);
        for (process, count) in symbols {
            // The first process was forgotten before its second sample, the last was not.
            let expected = if process == 1 { 2 * DEPTH } else { DEPTH };
            assert_eq!(count, expected, "process {process} of {last}");
        }
        let mut again = Vec::new();
        rewrite(&trace, &*stream, &mut again, &|| false).unwrap();
        assert!(stream == again);
    }
}
