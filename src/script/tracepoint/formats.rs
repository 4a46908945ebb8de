//! The formats of all recorded tracepoints.

use rustc_hash::FxHashMap;

use super::format::Format;
use super::print::KernelNames;
use crate::perf_data::TracingData;

/// Maximum number of strings; a kernel has some thousand.
const MAX_TEXTS: usize = 1 << 16;

/// Formats by the tracepoint's id.
#[derive(Default)]
pub(in super::super) struct Formats {
    by_id: FxHashMap<u64, Format>,
    /// Kernel strings whose addresses are in samples.
    texts: FxHashMap<u64, String>,
}

impl Formats {
    /// Reads the formats up to the first corrupt byte.
    pub(in super::super) fn read(data: &[u8]) -> Self {
        let mut formats = Self::default();
        let tracing = TracingData::parse(data);
        // The fields of samples are not converted from the other byte order.
        if !tracing.is_big_endian {
            let texts = tracing.formats.iter().map(|format| format.text);
            let parsed = texts.filter_map(|text| Format::parse(&String::from_utf8_lossy(text)));
            formats.by_id = parsed.map(|format| (format.id, format)).collect();
            formats.read_texts(tracing.printk_formats);
        }
        formats
    }

    /// Reads lines of the form `0xffffffff8281a585 : "rcu_preempt"`.
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

    /// Appends the text of a tracepoint sample. `function` returns kernel functions and their
    /// start.
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
