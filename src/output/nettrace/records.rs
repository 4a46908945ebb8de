//! Events of the Universal providers: processes, their mappings and symbols, and samples.

use super::encode::{MAX_TEXT_BYTES, payload_text};
use crate::bytes::{Bytes, put_varuint};
use crate::nettrace::{EventMetadata, Field, FieldType};
use crate::output::sanitize::truncate;
use crate::output::synthetic_layout::{FUNCTION_BYTES, Module, SyntheticFunction};
use crate::trace::Pid;

/// Kinds of records, each with a provider, an id and a name.
///
/// Readers identify records of `Universal.System` by id, and those of `Universal.Events` by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// A process that exists at the start of the trace.
    ExistingProcess,
    /// The start of a process.
    ProcessCreate,
    /// A mapping with code in a process.
    ProcessMapping,
    /// A function of a mapping.
    ProcessSymbol,
    /// The arguments of a process.
    ProcessInfo,
    /// A sample.
    Cpu,
    /// A thread gets a CPU again.
    Switch,
}

impl Record {
    pub(super) const ALL: [Self; 7] = [
        Self::ExistingProcess,
        Self::ProcessCreate,
        Self::ProcessMapping,
        Self::ProcessSymbol,
        Self::ProcessInfo,
        Self::Cpu,
        Self::Switch,
    ];

    /// Returns the event metadata of the record.
    pub(super) fn kind(self) -> EventMetadata {
        let (provider, id, name) = match self {
            Self::ExistingProcess => ("Universal.System", 0, "ExistingProcess"),
            Self::ProcessCreate => ("Universal.System", 1, "ProcessCreate"),
            Self::ProcessMapping => ("Universal.System", 3, "ProcessMapping"),
            Self::ProcessSymbol => ("Universal.System", 4, "ProcessSymbol"),
            Self::ProcessInfo => ("Microsoft-DotNETCore-EventPipe", 1, "ProcessInfo"),
            Self::Cpu => ("Universal.Events", 1, "cpu"),
            Self::Switch => ("Universal.Events", 2, "cswitch"),
        };
        let field = |name: &str, kind| Field {
            name: name.to_owned(),
            kind,
        };
        let fields = match self {
            Self::Cpu | Self::Switch => vec![field("Value", FieldType::VarUnsigned)],
            Self::ProcessInfo => ["CommandLine", "OSInformation", "ArchInformation"]
                .map(|name| field(name, FieldType::Utf16Text))
                .into(),
            _ => Vec::new(),
        };
        EventMetadata {
            provider: provider.to_owned(),
            id,
            name: name.to_owned(),
            version: 1,
            level: 4,
            fields: Some(fields),
            ..EventMetadata::default()
        }
    }
}

/// First id of the mappings and symbols in the stacks of events.
pub(super) const FIRST_EVENT_ID: u64 = 1 << 32;

/// Returns whether a mapping or a symbol is that of code in the stacks of events.
pub(super) fn is_of_events(payload: &[u8]) -> bool {
    let id = Bytes(payload).varuint();
    id.is_some_and(|id| id >= FIRST_EVENT_ID)
}

/// Returns the payload of `ExistingProcess` and `ProcessCreate`.
pub(super) fn process(pid: Pid, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_varuint(&mut out, pid.0.cast_unsigned().into());
    payload_text(&mut out, name);
    payload_text(&mut out, name);
    out
}

/// Parses process id and name of [`process`].
pub(super) fn parse_process(payload: &[u8]) -> Option<(Pid, String)> {
    let mut bytes = Bytes(payload);
    let pid = Pid(bytes.varuint32()?.cast_signed());
    Some((pid, parse_text(&mut bytes)?))
}

pub(super) fn mapping(id: u64, module: &Module) -> Vec<u8> {
    let mut out = Vec::new();
    let file_offset = 0;
    for value in [id, module.start, module.end, file_offset] {
        put_varuint(&mut out, value);
    }
    payload_text(&mut out, &module.name);
    let metadata = 0;
    put_varuint(&mut out, metadata);
    out
}

/// Parses id and module name of [`mapping`].
pub(super) fn parse_mapping(payload: &[u8]) -> Option<(u64, String)> {
    let mut bytes = Bytes(payload);
    let id = bytes.varuint()?;
    for _start_end_offset in 0..3 {
        bytes.varuint()?;
    }
    Some((id, parse_text(&mut bytes)?))
}

pub(super) fn symbol(id: u64, mapping: u64, function: &SyntheticFunction) -> Vec<u8> {
    let mut out = Vec::new();
    for value in [id, mapping, function.start, function.last()] {
        put_varuint(&mut out, value);
    }
    payload_text(&mut out, &function.name);
    out
}

/// Parses mapping id, address of frames, and name of [`symbol`].
pub(super) fn parse_symbol(payload: &[u8]) -> Option<(u64, u64, String)> {
    let mut bytes = Bytes(payload);
    let _id = bytes.varuint()?;
    let mapping = bytes.varuint()?;
    let address = bytes.varuint()?.checked_add(FUNCTION_BYTES / 2)?;
    let _last = bytes.varuint()?;
    Some((mapping, address, parse_text(&mut bytes)?))
}

/// Returns the payload of `ProcessInfo`: command line, operating system, architecture.
pub(super) fn process_info(name: &str, arguments: &str, arch: &str) -> Vec<u8> {
    let command_line = format!("{name} {arguments}");
    let strings = [
        truncate(command_line.trim_end(), MAX_TEXT_BYTES),
        "Linux",
        arch,
    ];
    let units = strings
        .into_iter()
        .flat_map(|string| string.encode_utf16().filter(|unit| *unit != 0).chain([0]));
    units.flat_map(u16::to_le_bytes).collect()
}

/// Returns the payload of a sample, which is its milliseconds, and of a switch: the nanoseconds without a CPU.
pub(super) fn value(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    put_varuint(&mut out, value);
    out
}

fn parse_text(bytes: &mut Bytes<'_>) -> Option<String> {
    let len = usize::from(bytes.u16()?);
    let text = bytes.take(len).filter(|_| len <= MAX_TEXT_BYTES)?;
    Some(String::from_utf8_lossy(text).into_owned())
}
