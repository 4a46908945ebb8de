//! Writes a stream again with the stacks of a trace, whose functions have other names by now.

use std::io::{self, Read, Write};
use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::code::{Code, Origin};
use super::event_rows::EventHeader;
use super::old_stream::{MAX_ROWS, OldStream, OldStreamError, process_id};
use super::record_stream::RecordStream;
use super::records::Record;
use super::stream::StreamHeader;
use crate::nettrace::{Event, EventMetadata, Reader};
use crate::output::synthetic_layout::ROOT;
use crate::trace::{Pid, Sample, Tid, Trace};

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
    out: RecordStream<W>,
    code: Code<'a>,
    old: OldStream,
    threads: FxHashMap<(Pid, Tid), u32>,
    /// Ids of the event kinds, by address. The `Arc` keeps the address unique.
    kinds: FxHashMap<*const EventMetadata, (Arc<EventMetadata>, u32)>,
}

/// Writes a stream of [`super::write`] again.
///
/// Samples have the stacks of the samples of `trace`, see [`super::compare`]. All other events stay.
///
/// # Errors
/// See [`RewriteError`].
pub fn rewrite(trace: &Trace, source: impl Read, out: impl Write) -> Result<(), RewriteError> {
    let mut reader = Reader::open(source).map_err(OldStreamError::from)?;
    let info = reader.info();
    let header = StreamHeader {
        system_time: info.start_time,
        time: info.start_ticks,
        properties: &info.properties,
    };
    let mut rewriter = Rewriter {
        out: RecordStream::start(out, header)?,
        code: Code::new(trace),
        old: OldStream::default(),
        threads: FxHashMap::default(),
        kinds: FxHashMap::default(),
    };
    let mut samples = trace.samples.iter();
    while let Some(event) = reader.next_event().map_err(OldStreamError::from)? {
        rewriter.event(&event, &mut samples)?;
    }
    if samples.next().is_some() {
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
    ) -> Result<(), RewriteError> {
        let record = self.old.read(event)?;
        // The new code writes its own.
        if let Some(Record::ProcessMapping | Record::ProcessSymbol) = record {
            return Ok(());
        }
        let (pid, thread) = self.thread(event)?;
        let mut header = EventHeader {
            kind: 0,
            thread,
            stack: 0,
            labels: 0,
            cpu: event.processor.min(u8::MAX.into()) as u8,
            time: event.time.0,
        };
        if record == Some(Record::Cpu) {
            let sample = samples.next().ok_or(OldStreamError::Differs("samples"))?;
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
        header.kind = self.kind(event.metadata, record);
        Ok(self.out.stream.event(header, event.payload)?)
    }

    /// Returns the id of an event's stack. Only the root has an address that may change.
    fn event_stack(&mut self, event: &Event<'_>, pid: Pid, thread: u32) -> io::Result<u32> {
        let mut addresses: Vec<u64> = event.stack.addresses().collect();
        if let Some(last) = addresses.last_mut()
            && let Some(root) = self.old.function(*last)
            && root.name == ROOT
            && let Some(instance) = self.old.instance(pid)
        {
            let origin = Origin {
                instance: instance.number,
                process: &root.module,
                thread,
                time: event.time.0,
            };
            *last = self.code.root(&mut self.out, origin)?;
        }
        Ok(self.out.stream.stack(&addresses))
    }

    /// Returns the id of an event kind.
    fn kind(&mut self, kind: &Arc<EventMetadata>, record: Option<Record>) -> u32 {
        if let Some(record) = record {
            return self.out.kind(record);
        }
        let stream = &mut self.out.stream;
        let known = self.kinds.entry(Arc::as_ptr(kind));
        let new = || (Arc::clone(kind), stream.kind(kind));
        known.or_insert_with(new).1
    }

    /// Returns the process id and the thread's id in the new stream.
    fn thread(&mut self, event: &Event<'_>) -> Result<(Pid, u32), OldStreamError> {
        let pid = process_id(event)?;
        let tid = event.thread.id.and_then(|id| i32::try_from(id).ok());
        let tid = tid.filter(|_| self.threads.len() < MAX_ROWS).map(Tid);
        let tid = tid.ok_or(OldStreamError::Differs("threads"))?;
        let stream = &mut self.out.stream;
        let thread = self.threads.entry((pid, tid));
        let thread = *thread.or_insert_with(|| stream.thread(event.thread_name, Some((pid, tid))));
        Ok((pid, thread))
    }
}
