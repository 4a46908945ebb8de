//! The formats of all recorded tracepoints, as perf copies them out of tracefs (`trace-event-read.c`):
//!
//! ```text
//! 17 08 44 "tracing" | version\0 | big-endian? | bytes of a long | page size
//! "header_page\0" size bytes | "header_event\0" size bytes | count of ftrace's own formats, each size and text
//! count of systems, each name\0, count of its formats, each size and text | ...
//! ```

use rustc_hash::FxHashMap;

use super::format::Format;
use crate::bytes::Bytes;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Formats that are read; a kernel has some 2000.
const MAX_FORMATS: u32 = 1 << 16;
/// Bytes of one format.
const MAX_FORMAT_BYTES: usize = 1 << 20;

/// Formats by the tracepoint's id.
#[derive(Default)]
pub(in super::super) struct Formats {
    by_id: FxHashMap<u64, Format>,
}

impl Formats {
    /// Reads what it can; damaged data gives the formats before the damage.
    pub(in super::super) fn read(data: &[u8]) -> Self {
        let mut formats = Self::default();
        // Nothing is lost in silence: a sample whose format is missing says so.
        let _ = formats.read_all(Bytes(data));
        formats
    }

    fn read_all(&mut self, mut data: Bytes<'_>) -> Option<()> {
        data.take(MAGIC.len()).filter(|magic| *magic == MAGIC)?;
        text(&mut data)?;
        let is_big = data.u8()? != 0;
        data.take(1 + 4)?;
        if is_big {
            return None;
        }
        for _ in ["header_page", "header_event"] {
            text(&mut data)?;
            let size = usize::try_from(data.u64()?).ok()?;
            data.take(size)?;
        }
        for _ in 0..data.u32()?.min(MAX_FORMATS) {
            self.read_format("ftrace", &mut data)?;
        }
        for _ in 0..data.u32()?.min(MAX_FORMATS) {
            let system = String::from_utf8_lossy(text(&mut data)?).into_owned();
            for _ in 0..data.u32()?.min(MAX_FORMATS) {
                self.read_format(&system, &mut data)?;
            }
        }
        Some(())
    }

    fn read_format(&mut self, _system: &str, data: &mut Bytes<'_>) -> Option<()> {
        let size = usize::try_from(data.u64()?).ok()?;
        let text = data.take(size)?;
        if text.len() <= MAX_FORMAT_BYTES
            && let Some(format) = Format::parse(&String::from_utf8_lossy(text))
        {
            self.by_id.insert(format.id, format);
        }
        Some(())
    }

    /// Appends what a sample of a tracepoint says.
    pub(in super::super) fn print(&self, id: u64, raw: &[u8], out: &mut Vec<u8>) {
        match self.by_id.get(&id) {
            Some(format) => format.print(raw, out),
            None => out.extend_from_slice(b"[no format]"),
        }
    }
}

/// Bytes up to a NUL, which is passed over.
fn text<'a>(data: &mut Bytes<'a>) -> Option<&'a [u8]> {
    let text = data.c_string();
    data.take(1)?;
    Some(text)
}
