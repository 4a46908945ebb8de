//! Metadata of a recording: events, host, build ids, clock.

use std::collections::HashMap;

use perf_event_open_sys::bindings as sys;

use super::attribute::{Attribute, EventSource};
use super::event_name;
use super::numbers::{Numbers, Order};
use super::tracing_data::{FormatText, TracingData};

/// Ids of the sections, `HEADER_*` in perf's `util/header.h`.
pub(crate) mod section {
    pub(crate) const TRACING_DATA: u32 = 1;
    pub(crate) const BUILD_ID: u32 = 2;
    pub(crate) const HOSTNAME: u32 = 3;
    pub(crate) const OSRELEASE: u32 = 4;
    pub(crate) const VERSION: u32 = 5;
    pub(crate) const ARCH: u32 = 6;
    pub(crate) const NRCPUS: u32 = 7;
    pub(crate) const CMDLINE: u32 = 11;
    pub(crate) const EVENT_DESC: u32 = 12;
    pub(crate) const PMU_MAPPINGS: u32 = 16;
    pub(crate) const SAMPLE_TIME: u32 = 21;
    pub(crate) const CLOCKID: u32 = 23;
    pub(crate) const DIR_FORMAT: u32 = 24;
    pub(crate) const CLOCK_DATA: u32 = 29;
    pub(crate) const HYBRID_TOPOLOGY: u32 = 30;
}

/// Maximum number of events in a recording.
pub(super) const MAX_EVENTS: usize = 4096;
/// Maximum number of performance monitoring units of a machine.
const MAX_UNITS: usize = 4096;
/// Maximum number of files with a build id.
const MAX_BUILD_IDS: usize = 1 << 17;
const RECORD_HEADER_BYTES: usize = 8;
/// `PERF_RECORD_MISC_BUILD_ID_SIZE`: the size follows the id.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;

/// Build id as perf records it: at most 20 bytes; perf may pad a shorter one with zeros.
pub type RecordedBuildId = Box<[u8]>;

/// The same time on two clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReference {
    /// Nanoseconds on the clock of the records.
    pub record_ns: u64,
    /// Nanoseconds since 1970 (UTC).
    pub unix_ns: u64,
}

/// Metadata of a recording. All strings are untrusted.
#[derive(Clone, Debug, Default)]
pub struct RecordingInfo {
    /// Recorded events. [`super::TimedRecord::event`] is an index of this list.
    pub events: Vec<Attribute>,
    /// Host name.
    pub host: String,
    /// Kernel release (`uname -r`).
    pub release: String,
    /// Architecture (`uname -m`).
    pub arch: String,
    /// Number of online CPUs; 0 if unknown.
    pub cpus: u32,
    /// Command line of perf.
    pub command_line: Vec<String>,
    /// Build ids of files by path.
    pub build_ids: HashMap<Box<[u8]>, RecordedBuildId>,
    /// Path and build id of the kernel: `[kernel.kallsyms]`, or the `vmlinux` that perf found.
    pub kernel: Option<(Box<[u8]>, RecordedBuildId)>,
    /// Names of performance monitoring units by type.
    pub units: HashMap<u32, String>,
    /// Names of the units of a hybrid processor, one for each type of CPU.
    pub hybrid_units: Vec<String>,
    /// A time on the clock of the records and in UTC.
    pub clock: Option<ClockReference>,
    /// Tracepoint formats, as `perf record` copied them.
    pub tracing_data: Vec<u8>,
    /// Whether the file belongs to a directory whose other files contain most of the records.
    pub(super) is_in_directory: bool,
    pub(super) order: Order,
}

impl RecordingInfo {
    /// Reads a section. Ignores a corrupt one.
    pub(super) fn section(&mut self, id: u32, bytes: &[u8]) {
        let mut numbers = Numbers::new(bytes, self.order);
        match id {
            section::TRACING_DATA => self.tracing_data = bytes.to_vec(),
            section::BUILD_ID => self.add_build_ids(bytes),
            section::HOSTNAME => self.host = numbers.string().unwrap_or_default(),
            section::OSRELEASE => self.release = numbers.string().unwrap_or_default(),
            // Record layouts depend on the architecture, so it must not change.
            section::ARCH if self.arch.is_empty() => {
                self.arch = numbers.string().unwrap_or_default();
            }
            section::NRCPUS => self.cpus = numbers.u32().unwrap_or(0),
            section::CMDLINE => {
                let count = numbers.u32().unwrap_or(0);
                let arguments = (0..count).map_while(|_| numbers.string());
                self.command_line = arguments.collect();
            }
            section::EVENT_DESC => drop(self.set_event_names(numbers)),
            section::PMU_MAPPINGS => {
                let count = numbers.u32().unwrap_or(0) as usize;
                let units = (0..count.min(MAX_UNITS))
                    .map_while(|_| Some((numbers.u32()?, numbers.string()?)));
                self.units = units.collect();
            }
            section::HYBRID_TOPOLOGY => {
                let count = numbers.u32().unwrap_or(0) as usize;
                let units = (0..count.min(MAX_UNITS))
                    .map_while(|_| Some((numbers.string()?, numbers.string()?)));
                self.hybrid_units = units.map(|(unit, _cpus)| unit).collect();
            }
            section::CLOCK_DATA => self.clock = clock(numbers),
            section::DIR_FORMAT => self.is_in_directory = true,
            _ => {}
        }
    }

    /// Reads `EVENT_DESC`: the number of events, the size of an attribute, then the events.
    ///
    /// Each event has an attribute, the number of its ids, its name and the ids.
    fn set_event_names(&mut self, mut numbers: Numbers<'_>) -> Option<()> {
        let (count, attribute_bytes) = (numbers.u32()?, numbers.u32()? as usize);
        for at in 0..count as usize {
            numbers.bytes.take(attribute_bytes)?;
            let ids = numbers.u32()? as usize;
            let name = numbers.string()?;
            numbers.bytes.take(ids.checked_mul(8)?)?;
            // perf writes both lists in the same order.
            self.events.get_mut(at)?.name = name;
        }
        Some(())
    }

    fn add_build_ids(&mut self, bytes: &[u8]) {
        let mut numbers = Numbers::new(bytes, self.order);
        while let Some(record) = build_id_record(&mut numbers) {
            self.add_build_id(record, numbers.order);
        }
    }

    /// Reads a record with a build id.
    ///
    /// It has a header, a pid, 20 bytes of build id, the size of the build id, padding and a path.
    pub(super) fn add_build_id(&mut self, record: &[u8], order: Order) {
        let mut numbers = Numbers::new(record, order);
        let read = || {
            let (_kind, misc, _size) = (numbers.u32()?, numbers.u16()?, numbers.u16()?);
            let _pid = numbers.u32()?;
            let id = numbers.bytes.take(24)?;
            let size = match misc & MISC_BUILD_ID_SIZE {
                0 => 20,
                _ => usize::from(id[20]).min(20),
            };
            Some((numbers.bytes.c_string(), &id[..size], misc))
        };
        let mut read = read;
        if let Some((path, id, misc)) = read()
            && self.build_ids.len() < MAX_BUILD_IDS
            && id.iter().any(|&byte| byte != 0)
        {
            if is_kernel(path, misc) {
                self.kernel.get_or_insert_with(|| (path.into(), id.into()));
            }
            self.build_ids.insert(path.into(), id.into());
        }
    }

    /// Derives the names of events that the recording does not name.
    ///
    /// Removes control characters from all names, because names are printed to terminals.
    pub(super) fn name_events(&mut self) {
        for event in &mut self.events {
            event.name = printable(&event.name);
        }
        let is_unnamed = |event: &Attribute| event.name.is_empty();
        if !self.events.iter().any(is_unnamed) {
            return;
        }
        let tracing = TracingData::parse(&self.tracing_data);
        let tracepoints = tracing.formats.iter().filter_map(FormatText::id_and_name);
        let tracepoints: HashMap<u64, String> = tracepoints.collect();
        for event in self.events.iter_mut().filter(|event| is_unnamed(event)) {
            let (kind, config) = (event.kind, event.config);
            let derived = match event.source() {
                EventSource::Tracepoint(id) => tracepoints.get(&id).cloned(),
                _ => event_name::derived(event),
            };
            let by_unit = || {
                let unit = self.units.get(&kind)?;
                Some(format!("{unit}/config={config:#x}/"))
            };
            let derived = derived.or_else(by_unit);
            let name = derived.unwrap_or_else(|| format!("event-{kind}-{config:#x}"));
            event.name = printable(&name);
        }
    }
}

/// Replaces control characters by `?`.
pub(super) fn printable(name: &str) -> String {
    name.replace(char::is_control, "?")
}

/// Whether a file with a build id is the kernel, not a module or a user-space file.
///
/// `misc` contains the processor mode. The path of a module is `[name]` or contains `.ko`.
fn is_kernel(path: &[u8], misc: u16) -> bool {
    const MASK: u16 = sys::PERF_RECORD_MISC_CPUMODE_MASK as u16;
    const KERNEL_MODE: u16 = sys::PERF_RECORD_MISC_KERNEL as u16;
    let is_module = match path {
        [b'[', ..] => !path.starts_with(b"[kernel."),
        _ => path.windows(3).any(|part| part == b".ko"),
    };
    misc & MASK == KERNEL_MODE && !is_module
}

/// Returns the next record, including its header.
fn build_id_record<'a>(numbers: &mut Numbers<'a>) -> Option<&'a [u8]> {
    let mut header = *numbers;
    header.bytes.take(RECORD_HEADER_BYTES - 2)?;
    let size = usize::from(header.u16()?);
    numbers
        .bytes
        .take(size)
        .filter(|_| size > RECORD_HEADER_BYTES)
}

/// Reads `CLOCK_DATA`: version, clock id, time of day, time on the clock.
fn clock(mut numbers: Numbers<'_>) -> Option<ClockReference> {
    let (_version, _clock) = (numbers.u32()?, numbers.u32()?);
    Some(ClockReference {
        unix_ns: numbers.u64()?,
        record_ns: numbers.u64()?,
    })
}
