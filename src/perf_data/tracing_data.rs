//! Formats of the recorded tracepoints, which perf copies from tracefs.
//!
//! See `tools/perf/util/trace-event-read.c`.
//!
//! ```text
//! 17 08 44 "tracing" | version\0 | big-endian? | bytes of a long | page size
//! "header_page\0" size bytes | "header_event\0" size bytes
//! count of formats of ftrace, each size and text
//! count of systems, each name\0, count of its formats, each size and text
//! size /proc/kallsyms, mostly empty | size printk_formats | ...
//! ```

use super::numbers::{Numbers, Order};
use crate::bytes::Bytes;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Maximum number of formats; a kernel has about 2000.
const MAX_FORMATS: u32 = 1 << 16;
/// Maximum size of a format.
const MAX_FORMAT_BYTES: usize = 1 << 20;

/// The tracefs files of a recording, up to the first corrupt one.
#[derive(Default)]
pub(crate) struct TracingData<'a> {
    /// Formats of the tracepoints.
    pub(crate) formats: Vec<FormatText<'a>>,
    /// `printk_formats`: strings of the kernel and their addresses.
    pub(crate) printk_formats: &'a [u8],
    /// Whether the recorded machine is big-endian.
    pub(crate) is_big_endian: bool,
}

/// Content of the file `events/SYSTEM/NAME/format` of tracefs.
pub(crate) struct FormatText<'a> {
    pub(crate) system: &'a [u8],
    pub(crate) text: &'a [u8],
}

impl<'a> TracingData<'a> {
    /// Parses the data up to its end or the first corrupt part.
    pub(crate) fn parse(data: &'a [u8]) -> Self {
        let mut parsed = Self::default();
        // Corruption is not silent: each sample without a format reports that it is missing.
        let _ = parsed.parse_all(data);
        parsed
    }

    fn parse_all(&mut self, data: &'a [u8]) -> Option<()> {
        let mut data = Bytes(data);
        data.take(MAGIC.len()).filter(|magic| *magic == MAGIC)?;
        string(&mut data)?;
        self.is_big_endian = data.u8()? != 0;
        data.take(1 + 4)?;
        let order = match self.is_big_endian {
            true => Order::Big,
            false => Order::Little,
        };
        let mut numbers = Numbers { bytes: data, order };
        for _ in ["header_page", "header_event"] {
            string(&mut numbers.bytes)?;
            let size = usize::try_from(numbers.u64()?).ok()?;
            numbers.bytes.take(size)?;
        }
        for _ in 0..numbers.u32()?.min(MAX_FORMATS) {
            self.format(b"ftrace", &mut numbers)?;
        }
        for _ in 0..numbers.u32()?.min(MAX_FORMATS) {
            let system = string(&mut numbers.bytes)?;
            for _ in 0..numbers.u32()?.min(MAX_FORMATS) {
                self.format(system, &mut numbers)?;
            }
        }
        let kallsyms = numbers.u32()? as usize;
        numbers.bytes.take(kallsyms)?;
        let size = numbers.u32()? as usize;
        self.printk_formats = numbers.bytes.take(size)?;
        Some(())
    }

    fn format(&mut self, system: &'a [u8], numbers: &mut Numbers<'a>) -> Option<()> {
        let size = usize::try_from(numbers.u64()?).ok()?;
        let text = numbers.bytes.take(size)?;
        if text.len() <= MAX_FORMAT_BYTES && self.formats.len() < MAX_FORMATS as usize {
            self.formats.push(FormatText { system, text });
        }
        Some(())
    }
}

impl FormatText<'_> {
    /// Returns the id and the name (`SYSTEM:NAME`) of the tracepoint.
    pub(super) fn id_and_name(&self) -> Option<(u64, String)> {
        let text = str::from_utf8(self.text).ok()?;
        let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let (name, id) = (value("name:")?.trim(), value("ID:")?.trim());
        let system = String::from_utf8_lossy(self.system);
        Some((id.parse().ok()?, format!("{system}:{name}")))
    }
}

/// Reads a NUL-terminated string.
fn string<'a>(data: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let string = data.c_string();
    data.take(1)?;
    Some(string)
}
