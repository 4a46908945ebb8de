//! Writes a stream again with the stacks of a trace, whose functions have other names by now.

use std::io::{self, Read, Write};

use thiserror::Error;

use super::code::{Code, Origin};
use super::event_rows::EventHeader;
use super::old_stream::{MAX_ROWS, OldStream, OldStreamError};
use super::record_stream::RecordStream;
use super::records::{self, Record};
use super::stream::StreamHeader;
use crate::nettrace::{Event, Reader};
use crate::trace::{Pid, Sample, Tid, Trace};

/// The user is asked this often, in events, whether to cancel.
const EVENTS_PER_CHECK: u64 = 4096;

/// A stream cannot be written again.
#[derive(Debug, Error)]
pub enum RewriteError {
    /// The old stream cannot be read, or is not of the trace.
    #[error(transparent)]
    Old(#[from] OldStreamError),
    /// The new stream cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

struct Rewriter<'a, W> {
    trace: &'a Trace,
    out: RecordStream<W>,
    code: Code<'a>,
    old: OldStream,
}

/// Writes a stream of [`super::write`] again.
///
/// Its samples must have the process, thread and time of the samples of `trace`. They get their
/// stacks. All other events stay.
///
/// # Errors
/// See [`RewriteError`].
pub fn rewrite(
    trace: &Trace,
    source: impl Read,
    out: impl Write,
    is_cancelled: &dyn Fn() -> bool,
) -> Result<(), RewriteError> {
    let mut reader = Reader::open(source).map_err(OldStreamError::from)?;
    let info = reader.info();
    let header = StreamHeader {
        system_time: info.start_time,
        time: info.start_ticks,
        properties: &info.properties,
    };
    let mut rewriter = Rewriter {
        trace,
        out: RecordStream::start(out, header)?,
        code: Code::new(trace),
        old: OldStream::default(),
    };
    let mut samples = trace.samples.iter();
    let mut waits = trace.blocked.iter();
    let mut count: u64 = 0;
    while let Some(event) = reader.next_event().map_err(OldStreamError::from)? {
        count += 1;
        if count.is_multiple_of(EVENTS_PER_CHECK) && is_cancelled() {
            return Err(OldStreamError::Cancelled.into());
        }
        rewriter.event(&event, &mut samples, &mut waits)?;
    }
    if samples.next().is_some() || waits.next().is_some() {
        return Err(OldStreamError::Differs("samples").into());
    }
    let mut stream = rewriter.out.stream;
    stream.skip(reader.losses().dropped_events);
    Ok(stream.finish()?)
}

impl<W: Write> Rewriter<'_, W> {
    fn event(
        &mut self,
        event: &Event<'_>,
        samples: &mut impl Iterator<Item = Sample>,
        waits: &mut impl Iterator<Item = Sample>,
    ) -> Result<(), RewriteError> {
        let record = self.old.read(event)?;
        // The new code writes its own. That of the stacks of events stays.
        if let Some(Record::ProcessMapping | Record::ProcessSymbol) = record
            && !records::is_of_events(event.payload)
        {
            return Ok(());
        }
        let (pid, tid) = ids(event)?;
        if self.out.threads.len() >= MAX_ROWS {
            return Err(OldStreamError::Differs("threads").into());
        }
        let thread = self.out.thread(pid, tid, event.thread_name);
        let mut header = EventHeader {
            kind: 0,
            thread,
            stack: 0,
            labels: 0,
            cpu: event.processor.min(u8::MAX.into()) as u8,
            time: event.time.0,
        };
        let sample = match record {
            Some(Record::Cpu) => Some(samples.next()),
            Some(Record::Switch) => Some(waits.next()),
            _ => None,
        };
        if let Some(sample) = sample {
            let sample = sample.filter(|sample| {
                let of = &self.trace.threads[sample.thread.index()];
                let process = &self.trace.processes[of.process.index()];
                (process.pid, of.tid, sample.time) == (pid, tid, event.time)
            });
            let sample = sample.ok_or(OldStreamError::Differs("samples"))?;
            let instance = self.old.instance(pid);
            let instance = instance.ok_or(OldStreamError::Differs("processes"))?;
            let origin = Origin {
                instance: instance.number,
                process: &instance.name,
                thread,
                time: header.time,
            };
            header.stack = self
                .code
                .sample_stack(&mut self.out, origin, sample.stack)?;
        } else {
            header.stack = self.event_stack(event, pid, thread)?;
            header.labels = self.out.stream.labels(event.activity);
        }
        header.kind = match record {
            Some(record) => self.out.kind(record),
            None => self.out.event_kind(event.metadata),
        };
        Ok(self.out.stream.event(header, event.payload)?)
    }

    /// Returns the id of an event's stack. Only the root has an address that may change.
    fn event_stack(&mut self, event: &Event<'_>, pid: Pid, thread: u32) -> io::Result<u32> {
        let mut addresses: Vec<u64> = event.stack.addresses().collect();
        if let Some(last) = addresses.last_mut()
            && let Some(process) = self.old.root(*last)
            && let Some(instance) = self.old.instance(pid)
        {
            let origin = Origin {
                instance: instance.number,
                process,
                thread,
                time: event.time.0,
            };
            *last = self.code.root(&mut self.out, origin)?;
        }
        Ok(self.out.stream.stack(&addresses))
    }
}

/// Returns the ids of an event's process and thread.
fn ids(event: &Event<'_>) -> Result<(Pid, Tid), OldStreamError> {
    let id = |id: Option<u64>| id.and_then(|id| i32::try_from(id).ok());
    let process = id(event.thread.process);
    let ids = process.zip(id(event.thread.id));
    let ids = ids.map(|(pid, tid)| (Pid(pid), Tid(tid)));
    ids.ok_or(OldStreamError::Differs("threads"))
}
