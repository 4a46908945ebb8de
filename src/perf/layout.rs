//! Where the fields of a record are, which depends on the sample type of its event (`perf_event_open(2)`).

use perf_event_open_sys::bindings as sys;
use thiserror::Error;

use super::record::{CodeMapping, KernelCode, Record};
use crate::bytes::Bytes;
use crate::trace::{Cpu, Nanos, Pid, Tid};

const HEADER_BYTES: usize = 8;

/// Bytes of a KSYMBOL record between its header and its name.
const KSYMBOL_BYTES: usize = 16;
/// Fields of the trailer of all records but samples, in order, 8 bytes each, and whether they are two of 32 bits.
pub(crate) const TRAILER: [(u32, bool); 6] = [
    (sys::PERF_SAMPLE_TID, true),
    (sys::PERF_SAMPLE_TIME, false),
    (sys::PERF_SAMPLE_ID, false),
    (sys::PERF_SAMPLE_STREAM_ID, false),
    (sys::PERF_SAMPLE_CPU, true),
    (sys::PERF_SAMPLE_IDENTIFIER, false),
];
/// Sample fields that [`Layout`] can place; anything else in a sample type is refused.
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
    | BEHIND_THE_STACK;

/// Fields behind all that matter here.
const BEHIND_THE_STACK: u32 = sys::PERF_SAMPLE_WEIGHT
    | sys::PERF_SAMPLE_DATA_SRC
    | sys::PERF_SAMPLE_TRANSACTION
    | sys::PERF_SAMPLE_REGS_INTR
    | sys::PERF_SAMPLE_PHYS_ADDR
    | sys::PERF_SAMPLE_AUX
    | sys::PERF_SAMPLE_CGROUP
    | sys::PERF_SAMPLE_DATA_PAGE_SIZE
    | sys::PERF_SAMPLE_CODE_PAGE_SIZE
    | sys::PERF_SAMPLE_WEIGHT_STRUCT;

/// Why a record was refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum ParseError {
    /// The record ends before a field of its type.
    #[error("record type {kind} with {size} bytes ends before its field {field}")]
    Short {
        /// PERF_RECORD_* number.
        kind: u32,
        /// Size of the record with its header.
        size: usize,
        /// Name of the first field that is not there.
        field: &'static str,
    },
    /// The sample type has fields whose place is not known.
    #[error("sample type {sample_type:#x} has fields {unknown:#x} that cannot be placed")]
    UnknownFields {
        /// perf_event_attr.sample_type.
        sample_type: u64,
        /// Its bits that are not supported.
        unknown: u64,
    },
}

/// What decides where the fields are, as `perf_event_attr` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Format {
    /// `sample_type`.
    pub sample_type: u64,
    /// `read_format`.
    pub read_format: u64,
    /// `branch_sample_type`.
    pub branch_type: u64,
    /// `sample_regs_user`.
    pub user_regs: u64,
    /// Whether records of other types than samples end in a `sample_id`.
    pub sample_id_all: bool,
    /// Whether the registers are those of another architecture than x86: they are skipped.
    pub foreign_registers: bool,
}

impl Format {
    /// Whether samples have this field.
    #[must_use]
    pub fn has(&self, field: u32) -> bool {
        self.sample_type & u64::from(field) != 0
    }

    /// Bytes of the trailer of all records but samples.
    #[must_use]
    pub fn trailer_bytes(&self) -> usize {
        let present = TRAILER.iter().filter(|(field, _)| self.has(*field));
        match self.sample_id_all {
            true => 8 * present.count(),
            false => 0,
        }
    }
}

/// Places the fields of records of one event.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    pub(super) format: Format,
}

/// The trailer of all records but samples.
#[derive(Clone, Copy, Debug, Default)]
struct SampleId {
    time: Nanos,
    cpu: Cpu,
    event: Option<u64>,
}

/// A record under the knife: what is left of it, and what to say when a field is missing.
pub(super) struct Fields<'a> {
    pub(super) bytes: Bytes<'a>,
    kind: u32,
    size: usize,
}

impl<'a> Fields<'a> {
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
    /// Records of an event with this `perf_event_attr.sample_type` and `sample_regs_user`, and `sample_id_all` set.
    pub fn new(sample_type: u64, user_regs: u64) -> Result<Self, ParseError> {
        Self::of(Format {
            sample_type,
            user_regs,
            sample_id_all: true,
            ..Format::default()
        })
    }

    /// Records of an event of any format.
    pub fn of(format: Format) -> Result<Self, ParseError> {
        let sample_type = format.sample_type;
        match sample_type & !u64::from(KNOWN_FIELDS) {
            0 => Ok(Self { format }),
            unknown => Err(ParseError::UnknownFields {
                sample_type,
                unknown,
            }),
        }
    }

    /// The same where a later kernel has recorded more: what is not known follows what is.
    #[must_use]
    pub fn of_known(format: Format) -> Self {
        let sample_type = format.sample_type & u64::from(KNOWN_FIELDS);
        let format = Format {
            sample_type,
            ..format
        };
        Self { format }
    }

    pub(super) fn has(&self, field: u32) -> bool {
        self.format.has(field)
    }

    /// The id of the event that made a record; `None`: the record does not tell.
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

    fn fields<'a>(record: &'a [u8]) -> Result<(Fields<'a>, u16), ParseError> {
        let mut fields = Fields {
            bytes: Bytes(record),
            kind: 0,
            size: record.len(),
        };
        fields.kind = fields.u32("type")?;
        let misc = fields.get("misc", Bytes::u16)?;
        fields.get("size", Bytes::u16)?;
        Ok((fields, misc))
    }

    /// When a record was made, without parsing the rest of it.
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

    /// The trailer: TID, TIME, ID, STREAM_ID, CPU, IDENTIFIER, 8 bytes each, as far as they are in the sample type.
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

    /// A record up to the end of its trailer. The kernel hands one KSYMBOL record to all events that request them and adds the
    /// trailer of each to its size, so it has zeros after the trailer for all but the first (`perf_event_ksymbol_output`).
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

    /// The thread that made a record of another type than samples.
    pub(super) fn tid_of_trailer(&self, record: &[u8]) -> Option<Tid> {
        let is_there = self.format.sample_id_all && self.has(sys::PERF_SAMPLE_TID);
        let at = self.trailer_start(record).filter(|_| is_there)?;
        let mut trailer = Bytes(record.get(at..)?);
        let _pid = trailer.u32()?;
        trailer.u32().map(|tid| Tid(tid as i32))
    }

    /// Where the trailer of such a record starts.
    pub(super) fn trailer_start(&self, record: &[u8]) -> Option<usize> {
        let at = record.len().checked_sub(self.format.trailer_bytes())?;
        (at >= HEADER_BYTES).then_some(at)
    }

    /// Parses one whole record, header included.
    pub fn parse<'a>(&self, record: &'a [u8]) -> Result<Record<'a>, ParseError> {
        let (mut fields, misc) = Self::fields(record)?;
        let misc = u32::from(misc);
        let cpu = || self.sample_id(record).unwrap_or_default().cpu;
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
                Record::Lost {
                    records: fields.u64("lost")?,
                    cpu: cpu(),
                }
            }
            sys::PERF_RECORD_LOST_SAMPLES => Record::LostSamples {
                samples: fields.u64("lost")?,
                cpu: cpu(),
            },
            sys::PERF_RECORD_THROTTLE => Record::Throttle(cpu()),
            sys::PERF_RECORD_UNTHROTTLE => Record::Unthrottle(cpu()),
            sys::PERF_RECORD_KSYMBOL => Record::KernelCode(kernel_code(fields)?),
            _ => Record::Other,
        })
    }
}

fn kernel_code(mut fields: Fields<'_>) -> Result<KernelCode<'_>, ParseError> {
    let (start, len) = (fields.u64("addr")?, fields.u32("len")?);
    let kind = fields.get("type", Bytes::u16)?;
    let flags = fields.get("flags", Bytes::u16)?;
    Ok(KernelCode {
        start,
        len,
        bpf: u32::from(kind) == sys::PERF_RECORD_KSYMBOL_TYPE_BPF,
        gone: u32::from(flags) & sys::PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER != 0,
        name: fields.bytes.c_string(),
    })
}

fn mapping<'a>(mut fields: Fields<'a>, misc: u32) -> Result<CodeMapping<'a>, ParseError> {
    let pid = fields.pid()?;
    fields.tid()?;
    let mut mapping = CodeMapping {
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
            // Size, three bytes of nothing, 20 bytes of which so many are the id.
            let size = usize::from(identity[0]).min(20);
            mapping.build_id = &identity[4..4 + size];
        }
        let before = fields.bytes;
        let protection = fields.u64("protection and flags")?;
        // Linux 3.12 to 3.15, and Red Hat's 3.10, have neither: this is the path.
        let [first, rest @ ..] = (protection as u32).to_le_bytes();
        if matches!(first, b'/' | b'[') && rest.iter().all(u8::is_ascii_graphic) {
            fields.bytes = before;
        }
    }
    mapping.path = fields.bytes.c_string();
    Ok(mapping)
}
