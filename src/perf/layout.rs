//! Layout of the fields of a record, which depends on the sample type of its event.
//!
//! See `perf_event_open(2)`.

use perf_event_open_sys::bindings as sys;
use thiserror::Error;

use super::record::{Ksymbol, MmapRecord, Record};
use crate::bytes::Bytes;
use crate::ids::{Cpu, Nanos, Pid, Tid};

const HEADER_BYTES: usize = 8;

/// Bytes of a KSYMBOL record between its header and its name.
const KSYMBOL_BYTES: usize = 16;
/// Fields of the trailer (`sample_id`) of all records but samples, in order.
///
/// Each has 8 bytes. The flag is set for a pair of 32-bit fields.
pub(crate) const TRAILER: [(u32, bool); 6] = [
    (sys::PERF_SAMPLE_TID, true),
    (sys::PERF_SAMPLE_TIME, false),
    (sys::PERF_SAMPLE_ID, false),
    (sys::PERF_SAMPLE_STREAM_ID, false),
    (sys::PERF_SAMPLE_CPU, true),
    (sys::PERF_SAMPLE_IDENTIFIER, false),
];
/// Sample fields that [`Layout`] supports. It rejects sample types with other fields.
const KNOWN_FIELDS: u32 = sys::PERF_SAMPLE_IDENTIFIER
    | sys::PERF_SAMPLE_IP
    | sys::PERF_SAMPLE_TID
    | sys::PERF_SAMPLE_TIME
    | sys::PERF_SAMPLE_ADDR
    | sys::PERF_SAMPLE_ID
    | sys::PERF_SAMPLE_STREAM_ID
    | sys::PERF_SAMPLE_CPU
    | sys::PERF_SAMPLE_PERIOD
    | sys::PERF_SAMPLE_CALLCHAIN
    | sys::PERF_SAMPLE_RAW
    | sys::PERF_SAMPLE_READ
    | sys::PERF_SAMPLE_BRANCH_STACK
    | sys::PERF_SAMPLE_REGS_USER
    | sys::PERF_SAMPLE_STACK_USER
    | FIELDS_AFTER_STACK;

/// Fields after the user stack, which perfcollect does not read.
const FIELDS_AFTER_STACK: u32 = sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_DATA_SRC
    | sys::PERF_SAMPLE_TRANSACTION
    | sys::PERF_SAMPLE_REGS_INTR
    | sys::PERF_SAMPLE_PHYS_ADDR
    | sys::PERF_SAMPLE_AUX
    | sys::PERF_SAMPLE_CGROUP
    | sys::PERF_SAMPLE_DATA_PAGE_SIZE
    | sys::PERF_SAMPLE_CODE_PAGE_SIZE
    | sys::PERF_SAMPLE_WEIGHT_STRUCT;

/// Reason why a record or a sample type was rejected.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// The record ends before a field of its type.
    #[error("record type {kind} with {size} bytes ends before its field {field}")]
    Short {
        /// Record type (PERF_RECORD_*).
        kind: u32,
        /// Size of the record, including its header.
        size: usize,
        /// Name of the first missing field.
        field: &'static str,
    },
    /// The sample type has unsupported fields.
    #[error("sample type {sample_type:#x} has unsupported fields {unknown:#x}")]
    UnknownFields {
        /// perf_event_attr.sample_type.
        sample_type: u64,
        /// The unsupported bits.
        unknown: u64,
    },
}

/// The members of `perf_event_attr` that determine the record layout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RecordFormat {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_type: u64,
    /// `sample_regs_user`.
    pub user_regs: u64,
    /// Whether all records but samples end in a `sample_id`.
    pub sample_id_all: bool,
    /// Whether the registers belong to another architecture than x86 and must be skipped.
    pub foreign_registers: bool,
}

impl RecordFormat {
    /// Whether samples have a field.
    #[must_use]
    pub fn has(&self, field: u32) -> bool {
        self.sample_type & u64::from(field) != 0
    }

    /// Returns the size of the trailer of all records but samples, in bytes.
    #[must_use]
    pub fn trailer_bytes(&self) -> usize {
        let present = TRAILER.iter().filter(|(field, _)| self.has(*field));
        match self.sample_id_all {
            true => 8 * present.count(),
            false => 0,
        }
    }
}

/// Record layout of one event.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub(super) format: RecordFormat,
}

/// Trailer of all records but samples.
#[derive(Clone, Copy, Debug, Default)]
struct SampleId {
    time: Nanos,
    cpu: Cpu,
    event: Option<u64>,
}

/// Cursor over the fields of a record.
pub(super) struct FieldCursor<'a> {
    pub(super) bytes: Bytes<'a>,
    kind: u32,
    size: usize,
}

impl<'a> FieldCursor<'a> {
    pub(super) fn get<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Bytes<'a>) -> Option<T>,
    ) -> Result<T, ParseError> {
        read(&mut self.bytes).ok_or(ParseError::Short {
            kind: self.kind,
            size: self.size,
            field,
        })
    }

    pub(super) fn u64(&mut self, field: &'static str) -> Result<u64, ParseError> {
        self.get(field, Bytes::u64)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, ParseError> {
        self.get(field, Bytes::u32)
    }

    pub(super) fn pid(&mut self) -> Result<Pid, ParseError> {
        self.get("pid", Bytes::i32).map(Pid)
    }

    pub(super) fn tid(&mut self) -> Result<Tid, ParseError> {
        self.get("tid", Bytes::i32).map(Tid)
    }
}

impl Layout {
    /// Creates the layout for a `sample_type` and `sample_regs_user`, with `sample_id_all` set.
    ///
    /// # Errors
    /// Returns [`ParseError::UnknownFields`] if the sample type has unsupported fields.
    pub fn new(sample_type: u64, user_regs: u64) -> Result<Self, ParseError> {
        Self::from_format(RecordFormat {
            sample_type,
            user_regs,
            sample_id_all: true,
            ..RecordFormat::default()
        })
    }

    /// Creates the layout for a record format.
    ///
    /// # Errors
    /// Returns [`ParseError::UnknownFields`] if the sample type has unsupported fields.
    fn from_format(format: RecordFormat) -> Result<Self, ParseError> {
        let sample_type = format.sample_type;
        match sample_type & !u64::from(KNOWN_FIELDS) {
            0 => Ok(Self { format }),
            unknown => Err(ParseError::UnknownFields {
                sample_type,
                unknown,
            }),
        }
    }

    /// Creates the layout for a format that may have fields of a newer kernel, which are ignored.
    ///
    /// The kernel appends new fields after the existing ones.
    #[must_use]
    pub fn from_supported_fields(format: RecordFormat) -> Self {
        let sample_type = format.sample_type & u64::from(KNOWN_FIELDS);
        let format = RecordFormat {
            sample_type,
            ..format
        };
        Self { format }
    }

    pub(super) fn has(&self, field: u32) -> bool {
        self.format.has(field)
    }

    /// Returns the id of the event that wrote a record, or `None` if the record has no event id.
    #[must_use]
    pub fn event_of(&self, record: &[u8]) -> Option<u64> {
        let (fields, _) = Self::fields(record).ok()?;
        if fields.kind != sys::PERF_RECORD_SAMPLE {
            return self.sample_id(record)?.event;
        }
        if self.has(sys::PERF_SAMPLE_IDENTIFIER) {
            return Bytes(record.get(HEADER_BYTES..)?).u64();
        }
        let before = [
            sys::PERF_SAMPLE_IP,
            sys::PERF_SAMPLE_TID,
            sys::PERF_SAMPLE_TIME,
            sys::PERF_SAMPLE_ADDR,
        ];
        let before = before.iter().filter(|&&field| self.has(field)).count();
        let id = record.get(HEADER_BYTES + 8 * before..)?;
        Bytes(id).u64().filter(|_| self.has(sys::PERF_SAMPLE_ID))
    }

    /// Whether a record is a sample.
    #[must_use]
    pub fn is_sample(&self, record: &[u8]) -> bool {
        Self::fields(record).is_ok_and(|(fields, _)| fields.kind == sys::PERF_RECORD_SAMPLE)
    }

    fn fields<'a>(record: &'a [u8]) -> Result<(FieldCursor<'a>, u16), ParseError> {
        let mut fields = FieldCursor {
            bytes: Bytes(record),
            kind: 0,
            size: record.len(),
        };
        fields.kind = fields.u32("type")?;
        let misc = fields.get("misc", Bytes::u16)?;
        fields.get("size", Bytes::u16)?;
        Ok((fields, misc))
    }

    /// Returns the time of a record without parsing the rest of it.
    ///
    /// # Errors
    /// Returns [`ParseError::Short`] if a sample ends before its time.
    pub fn time_of(&self, record: &[u8]) -> Result<Nanos, ParseError> {
        let (mut fields, _) = Self::fields(record)?;
        if fields.kind != sys::PERF_RECORD_SAMPLE {
            return Ok(self.sample_id(record).unwrap_or_default().time);
        }
        if !self.has(sys::PERF_SAMPLE_TIME) {
            return Ok(Nanos(0));
        }
        for field in [
            sys::PERF_SAMPLE_IDENTIFIER,
            sys::PERF_SAMPLE_IP,
            sys::PERF_SAMPLE_TID,
        ] {
            if self.has(field) {
                fields.u64("fields before time")?;
            }
        }
        fields.u64("time").map(Nanos)
    }

    /// Reads the trailer, which has those fields of [`TRAILER`] that the sample type has.
    fn sample_id(&self, record: &[u8]) -> Option<SampleId> {
        if !self.format.sample_id_all {
            return None;
        }
        let record = self.without_excess(record);
        let from_end = |fields: &[u32]| {
            let present = fields.iter().filter(|&&field| self.has(field)).count();
            let at = record.len().checked_sub(8 * present)?;
            Some(Bytes(record.get(at..).filter(|_| at >= HEADER_BYTES)?))
        };
        let from_cpu = [sys::PERF_SAMPLE_CPU, sys::PERF_SAMPLE_IDENTIFIER];
        let from_time = [
            sys::PERF_SAMPLE_TIME,
            sys::PERF_SAMPLE_ID,
            sys::PERF_SAMPLE_STREAM_ID,
            sys::PERF_SAMPLE_CPU,
            sys::PERF_SAMPLE_IDENTIFIER,
        ];
        let mut id = SampleId::default();
        if self.has(sys::PERF_SAMPLE_TIME) {
            id.time = Nanos(from_end(&from_time)?.u64()?);
        }
        if self.has(sys::PERF_SAMPLE_CPU) {
            id.cpu = Cpu(from_end(&from_cpu)?.u32()?);
        }
        if self.has(sys::PERF_SAMPLE_IDENTIFIER) {
            id.event = from_end(&from_cpu[1..])?.u64();
        } else if self.has(sys::PERF_SAMPLE_ID) {
            id.event = from_end(&from_time[1..])?.u64();
        }
        Some(id)
    }

    /// Returns a record up to the end of its trailer.
    ///
    /// The kernel passes one KSYMBOL record to all events that request it and adds the trailer of each to its size
    /// (`perf_event_ksymbol_output`). So all but the first have zeros after the trailer.
    fn without_excess<'a>(&self, record: &'a [u8]) -> &'a [u8] {
        let end_of_ksymbol = || {
            let (fields, _) = Self::fields(record).ok()?;
            let name = record.get(HEADER_BYTES + KSYMBOL_BYTES..)?;
            let length = name.iter().position(|&byte| byte == 0)? + 1;
            let end = record.len() - name.len() + length.next_multiple_of(8);
            (fields.kind == sys::PERF_RECORD_KSYMBOL).then_some(end + self.format.trailer_bytes())
        };
        let whole = end_of_ksymbol().and_then(|end| record.get(..end));
        whole.unwrap_or(record)
    }

    /// Returns the thread in the trailer of a record.
    pub(super) fn trailer_tid(&self, record: &[u8]) -> Option<Tid> {
        let has_tid = self.format.sample_id_all && self.has(sys::PERF_SAMPLE_TID);
        let at = self.trailer_start(record).filter(|_| has_tid)?;
        let mut trailer = Bytes(record.get(at..)?);
        let _pid = trailer.u32()?;
        trailer.u32().map(|tid| Tid(tid as i32))
    }

    /// Returns the offset of the trailer of a record that is not a sample.
    pub(super) fn trailer_start(&self, record: &[u8]) -> Option<usize> {
        let at = record.len().checked_sub(self.format.trailer_bytes())?;
        (at >= HEADER_BYTES).then_some(at)
    }

    /// Parses one whole record, including its header.
    ///
    /// # Errors
    /// Returns [`ParseError::Short`] if the record ends before a field of its type.
    pub fn parse<'a>(&self, record: &'a [u8]) -> Result<Record<'a>, ParseError> {
        let (mut fields, misc) = Self::fields(record)?;
        let misc = u32::from(misc);
        let id = || self.sample_id(record).unwrap_or_default();
        Ok(match fields.kind {
            sys::PERF_RECORD_SAMPLE => Record::Sample(self.sample(fields, misc)?),
            sys::PERF_RECORD_MMAP | sys::PERF_RECORD_MMAP2
                if misc & sys::PERF_RECORD_MISC_MMAP_DATA != 0 =>
            {
                Record::Other
            }
            sys::PERF_RECORD_MMAP | sys::PERF_RECORD_MMAP2 => {
                Record::Mapping(mapping(fields, misc)?)
            }
            sys::PERF_RECORD_COMM => Record::Comm {
                pid: fields.pid()?,
                tid: fields.tid()?,
                exec: misc & sys::PERF_RECORD_MISC_COMM_EXEC != 0,
                name: fields.bytes.c_string(),
            },
            sys::PERF_RECORD_FORK | sys::PERF_RECORD_EXIT => {
                let exit = fields.kind == sys::PERF_RECORD_EXIT;
                let (pid, parent_pid) = (fields.pid()?, fields.pid()?);
                let (tid, parent_tid) = (fields.tid()?, fields.tid()?);
                if exit {
                    Record::Exit { pid, tid }
                } else {
                    Record::Fork {
                        pid,
                        tid,
                        parent_pid,
                        parent_tid,
                    }
                }
            }
            sys::PERF_RECORD_LOST => {
                fields.u64("id")?;
                let SampleId { cpu, event, .. } = id();
                Record::Lost {
                    records: fields.u64("lost")?,
                    cpu,
                    event,
                }
            }
            sys::PERF_RECORD_LOST_SAMPLES => Record::LostSamples {
                samples: fields.u64("lost")?,
                cpu: id().cpu,
            },
            sys::PERF_RECORD_THROTTLE => {
                let SampleId { cpu, event, .. } = id();
                Record::Throttle { cpu, event }
            }
            sys::PERF_RECORD_UNTHROTTLE => {
                let SampleId { cpu, event, .. } = id();
                Record::Unthrottle { cpu, event }
            }
            sys::PERF_RECORD_KSYMBOL => Record::Ksymbol(ksymbol(fields)?),
            _ => Record::Other,
        })
    }
}

fn ksymbol(mut fields: FieldCursor<'_>) -> Result<Ksymbol<'_>, ParseError> {
    let (start, len) = (fields.u64("addr")?, fields.u32("len")?);
    let kind = fields.get("type", Bytes::u16)?;
    let flags = fields.get("flags", Bytes::u16)?;
    Ok(Ksymbol {
        start,
        len,
        bpf: u32::from(kind) == sys::PERF_RECORD_KSYMBOL_TYPE_BPF,
        unregistered: u32::from(flags) & sys::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0,
        name: fields.bytes.c_string(),
    })
}

fn mapping<'a>(mut fields: FieldCursor<'a>, misc: u32) -> Result<MmapRecord<'a>, ParseError> {
    let pid = fields.pid()?;
    fields.tid()?;
    let mut mapping = MmapRecord {
        pid,
        start: fields.u64("addr")?,
        len: fields.u64("len")?,
        file_offset: fields.u64("pgoff")?,
        device: (0, 0),
        inode: 0,
        build_id: &[],
        path: &[],
    };
    if fields.kind == sys::PERF_RECORD_MMAP2 {
        let identity = fields.get("file identity", |b| b.take(24))?;
        if misc & sys::PERF_RECORD_MISC_MMAP_BUILD_ID == 0 {
            let mut identity = Bytes(identity);
            let device = (identity.u32(), identity.u32());
            mapping.device = (device.0.unwrap_or(0), device.1.unwrap_or(0));
            mapping.inode = identity.u64().unwrap_or(0);
        } else {
            // `u8 size; u8 reserved[3]; u8 build_id[20]`, of which `size` bytes are valid.
            let size = usize::from(identity[0]).min(20);
            mapping.build_id = &identity[4..4 + size];
        }
        let before = fields.bytes;
        let protection = fields.u64("protection and flags")?;
        // Linux 3.12 to 3.15 and Red Hat's 3.10 record neither: the path follows directly.
        let [first, rest @ ..] = (protection as u32).to_le_bytes();
        if matches!(first, b'/' | b'[') && rest.iter().all(u8::is_ascii_graphic) {
            fields.bytes = before;
        }
    }
    mapping.path = fields.bytes.c_string();
    Ok(mapping)
}
