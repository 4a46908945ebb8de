//! The formats of all recorded tracepoints, as perf copies them out of tracefs (`trace-event-read.c`):
//!
//! ```text
//! 17 08 44 "tracing" | version\0 | big-endian? | bytes of a long | page size
//! "header_page\0" size bytes | "header_event\0" size bytes | count of ftrace's own formats, each size and text
//! count of systems, each name\0, count of its formats, each size and text
//! size /proc/kallsyms, mostly empty | size printk_formats | ...
//! ```

use rustc_hash::FxHashMap;

use super::format::Format;
use super::print::KernelNames;
use crate::bytes::Bytes;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";
/// Formats that are read; a kernel has some 2000.
const MAX_FORMATS: u32 = 1 << 16;
/// Texts that are kept; a kernel has some thousand.
const MAX_TEXTS: usize = 1 << 16;
/// Bytes of one format.
const MAX_FORMAT_BYTES: usize = 1 << 20;

/// Formats by the tracepoint's id.
#[derive(Default)]
pub(in super::super) struct Formats {
    by_id: FxHashMap<u64, Format>,
    /// Texts of the kernel's that samples have the address of.
    texts: FxHashMap<u64, String>,
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
        let kallsyms = data.u32()? as usize;
        data.take(kallsyms)?;
        let texts = data.u32()? as usize;
        self.read_texts(data.take(texts)?);
        Some(())
    }

    /// Lines of `0xffffffff8281a585 : "rcu_preempt"`.
    fn read_texts(&mut self, lines: &[u8]) {
        for line in String::from_utf8_lossy(lines).lines().take(MAX_TEXTS) {
            if let Some((address, text)) = line.split_once(" : ")
                && let Some(digits) = address.trim().strip_prefix("0x")
                && let Ok(address) = u64::from_str_radix(digits, 16)
            {
                let text = text.trim_start_matches('"');
                let text = text.strip_suffix('"').unwrap_or(text);
                let text = text.strip_suffix("\\n").unwrap_or(text);
                self.texts.insert(address, text.into());
            }
        }
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

    /// Appends what a sample of a tracepoint says. `function` finds those of the kernel, with their start.
    pub(in super::super) fn print(
        &self,
        id: u64,
        raw: &[u8],
        function: &dyn Fn(u64) -> Option<(String, u64)>,
        out: &mut Vec<u8>,
    ) {
        let names = KernelNames {
            texts: &self.texts,
            function,
        };
        match self.by_id.get(&id) {
            Some(format) => format.print(raw, &names, out),
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
