//! The records of a stream that perfcollect wrote.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use thiserror::Error;

use super::records::{self, Record};
use crate::nettrace::{Event, EventMetadata, NettraceError};
use crate::trace::Pid;

/// Limit on the mappings, symbols, processes, threads and event kinds of a stream.
pub(super) const MAX_ROWS: usize = 1 << 20;

/// A stream cannot be read, or is not of the trace.
#[derive(Debug, Error)]
pub enum OldStreamError {
    /// The stream cannot be read.
    #[error(transparent)]
    Read(#[from] NettraceError),
    /// A part of the stream is not that of the trace.
    #[error("its {0} are not those of the trace")]
    Differs(&'static str),
}

/// A process instance of the stream.
#[derive(Debug)]
pub(super) struct OldInstance {
    /// A number that is not reused.
    pub(super) number: usize,
    pub(super) name: String,
}

#[derive(Debug)]
pub(super) struct OldFunction {
    pub(super) module: Arc<str>,
    pub(super) name: String,
}

/// Processes and functions of a stream, up to its current event.
#[derive(Debug, Default)]
pub(super) struct OldStream {
    /// Record of each event kind, by address. The `Arc` keeps the address unique.
    kinds: FxHashMap<*const EventMetadata, (Arc<EventMetadata>, Option<Record>)>,
    /// Current instance of each process id.
    instances: FxHashMap<Pid, OldInstance>,
    instance_count: usize,
    /// Module names by the id of the mapping.
    mappings: FxHashMap<u64, Arc<str>>,
    /// Functions by the address of their frames.
    functions: FxHashMap<u64, OldFunction>,
}

impl OldStream {
    /// Reads an event if it is a record. Returns the record.
    pub(super) fn read(&mut self, event: &Event<'_>) -> Result<Option<Record>, OldStreamError> {
        let is_full = self.kinds.len() >= MAX_ROWS
            || self.instances.len() >= MAX_ROWS
            || self.mappings.len() >= MAX_ROWS
            || self.functions.len() >= MAX_ROWS;
        if is_full {
            return Err(OldStreamError::Differs("records"));
        }
        let record = self.record(event.metadata);
        let is_read = match record {
            Some(Record::ExistingProcess | Record::ProcessCreate) => self.process(event.payload),
            Some(Record::ProcessMapping) => self.mapping(event.payload),
            Some(Record::ProcessSymbol) => self.symbol(event.payload),
            Some(Record::ProcessInfo | Record::Cpu) | None => Some(()),
        };
        is_read.ok_or(OldStreamError::Differs("records"))?;
        Ok(record)
    }

    /// Returns the record of an event kind. Each record has one kind.
    fn record(&mut self, kind: &Arc<EventMetadata>) -> Option<Record> {
        if let Some((_, record)) = self.kinds.get(&Arc::as_ptr(kind)) {
            return *record;
        }
        let is_new = |record: &Record| self.kinds.values().all(|known| known.1 != Some(*record));
        let record = Record::ALL
            .into_iter()
            .find(|record| record.kind() == **kind && is_new(record));
        self.kinds
            .insert(Arc::as_ptr(kind), (Arc::clone(kind), record));
        record
    }

    fn process(&mut self, payload: &[u8]) -> Option<()> {
        let (pid, name) = records::parse_process(payload)?;
        let number = self.instance_count;
        self.instance_count += 1;
        self.instances.insert(pid, OldInstance { number, name });
        Some(())
    }

    fn mapping(&mut self, payload: &[u8]) -> Option<()> {
        let (id, name) = records::parse_mapping(payload)?;
        self.mappings.insert(id, name.into());
        Some(())
    }

    fn symbol(&mut self, payload: &[u8]) -> Option<()> {
        let (mapping, address, name) = records::parse_symbol(payload)?;
        let module = Arc::clone(self.mappings.get(&mapping)?);
        self.functions.insert(address, OldFunction { module, name });
        Some(())
    }

    /// Returns the current instance of a process id.
    pub(super) fn instance(&self, pid: Pid) -> Option<&OldInstance> {
        self.instances.get(&pid)
    }

    /// Returns the function of a frame of a sample, or the root of a runtime event's stack.
    pub(super) fn function(&self, address: u64) -> Option<&OldFunction> {
        self.functions.get(&address)
    }
}

/// Returns the id of an event's process.
pub(super) fn process_id(event: &Event<'_>) -> Result<Pid, OldStreamError> {
    let pid = event.thread.process.and_then(|id| i32::try_from(id).ok());
    pid.map(Pid).ok_or(OldStreamError::Differs("threads"))
}
