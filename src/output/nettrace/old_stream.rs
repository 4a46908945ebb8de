//! The records of a stream that perfcollect wrote.

use std::collections::HashMap;
use std::sync::Arc;

use thiserror::Error;

use super::code::MAX_FRAMES;
use super::records::{self, Record};
use super::stream::MAX_PAYLOAD_BYTES;
use crate::nettrace::{Event, EventMetadata, NettraceError};
use crate::output::synthetic_layout::ROOT;
use crate::trace::Pid;

/// Limit on the processes, mappings, roots, threads and event kinds of a stream.
pub(super) const MAX_ROWS: usize = 1 << 20;
/// Limit on the event kinds, and on the names of all processes and mappings, in bytes.
const MAX_BYTES: usize = 64 << 20;

/// A stream cannot be read, or is not of the trace.
#[derive(Debug, Error)]
pub enum OldStreamError {
    /// The stream cannot be read.
    #[error(transparent)]
    Read(#[from] NettraceError),
    /// A part of the stream is not that of the trace.
    #[error("its {0} are not those of the trace")]
    Differs(&'static str),
    /// The user cancelled it.
    #[error("cancelled")]
    Cancelled,
}

/// A process instance of the stream.
#[derive(Debug)]
pub(super) struct OldInstance {
    /// A number that is not reused.
    pub(super) number: usize,
    pub(super) name: String,
}

/// Processes and roots of a stream, up to its current event.
#[derive(Debug, Default)]
pub(super) struct OldStream {
    /// Record of each event kind, by address. The `Arc` keeps the address unique.
    kinds: HashMap<*const EventMetadata, (Arc<EventMetadata>, Option<Record>)>,
    /// Which records have a kind.
    found: [bool; Record::ALL.len()],
    /// Current instance of each process id.
    instances: HashMap<Pid, OldInstance>,
    instance_count: usize,
    /// Module names by the id of the mapping.
    mappings: HashMap<u64, Arc<str>>,
    /// Modules of the functions that end the stacks of runtime events, by the address of the frame.
    roots: HashMap<u64, Arc<str>>,
    bytes: usize,
}

impl OldStream {
    /// Reads an event if it is a record. Returns the record.
    pub(super) fn read(&mut self, event: &Event<'_>) -> Result<Option<Record>, OldStreamError> {
        let rows = [
            self.kinds.len(),
            self.instances.len(),
            self.mappings.len(),
            self.roots.len(),
        ];
        if rows.into_iter().any(|rows| rows >= MAX_ROWS) || self.bytes >= MAX_BYTES {
            return Err(OldStreamError::Differs("records"));
        }
        if event.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(OldStreamError::Differs("events"));
        }
        // The root follows the frames.
        if event.stack.addresses().nth(MAX_FRAMES + 1).is_some() {
            return Err(OldStreamError::Differs("stacks"));
        }
        let record = self.record(event.metadata);
        let is_read = match record {
            Some(Record::ExistingProcess | Record::ProcessCreate) => self.process(event.payload),
            Some(Record::ProcessMapping) => self.mapping(event.payload),
            Some(Record::ProcessSymbol) => self.symbol(event.payload),
            Some(Record::ProcessInfo | Record::Cpu | Record::Switch) | None => Some(()),
        };
        is_read.ok_or(OldStreamError::Differs("records"))?;
        Ok(record)
    }

    /// Returns the record of an event kind. Each record has one kind.
    fn record(&mut self, kind: &Arc<EventMetadata>) -> Option<Record> {
        let found = &mut self.found;
        let known = self.kinds.entry(Arc::as_ptr(kind)).or_insert_with(|| {
            let is_new = |record: &Record| !found[*record as usize] && record.kind() == **kind;
            let record = Record::ALL.into_iter().find(is_new);
            self.bytes += kind.bytes();
            if let Some(record) = record {
                found[record as usize] = true;
            }
            (Arc::clone(kind), record)
        });
        known.1
    }

    fn process(&mut self, payload: &[u8]) -> Option<()> {
        let (pid, name) = records::parse_process(payload)?;
        self.bytes += name.len();
        let number = self.instance_count;
        self.instance_count += 1;
        self.instances.insert(pid, OldInstance { number, name });
        Some(())
    }

    fn mapping(&mut self, payload: &[u8]) -> Option<()> {
        let (id, name) = records::parse_mapping(payload)?;
        self.bytes += name.len();
        self.mappings.insert(id, name.into());
        Some(())
    }

    fn symbol(&mut self, payload: &[u8]) -> Option<()> {
        let (mapping, address, name) = records::parse_symbol(payload)?;
        if name == ROOT {
            let module = Arc::clone(self.mappings.get(&mapping)?);
            self.roots.insert(address, module);
        }
        Some(())
    }

    /// Returns the current instance of a process id.
    pub(super) fn instance(&self, pid: Pid) -> Option<&OldInstance> {
        self.instances.get(&pid)
    }

    /// Returns the module of the root at an address.
    pub(super) fn root(&self, address: u64) -> Option<&str> {
        self.roots.get(&address).map(|module| &**module)
    }
}
