//! `.gnu_debugdata`: an ELF file in a section, with the symbols that `strip` removed.
//!
//! Format: an ELF file, compressed with xz ([GDB manual, "MiniDebugInfo"][gdb]). Fedora and its
//! derivatives add it to all packages.
//!
//! [gdb]: https://sourceware.org/gdb/current/onlinedocs/gdb.html/MiniDebugInfo.html

use std::io::{self, Read};

use lzma_rust2::XzReader;

use super::headers::Headers;
use super::source::Source;
use super::{ElfError, check_size, section_data};
use crate::memory_budget::MemoryUse;

const WHAT: &str = ".gnu_debugdata";
/// Limit of the compressed size. A large library has 1 MB.
const MAX_COMPRESSED_BYTES: u64 = 32 << 20;
/// Limit of the decompressed size.
const MAX_BYTES: u64 = 128 << 20;
/// Memory limit of the decompressor. `xz -9` needs a dictionary of 64 MiB, the default 8 MiB.
const MAX_DICTIONARY_KIB: u32 = 80 << 10;

/// Counts decompressed bytes as they are read: the format does not declare the total size.
struct Counted<'m, R> {
    inner: R,
    memory: &'m MemoryUse,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.memory.charge(read as u64);
        Ok(read)
    }
}

/// Reads the ELF file in the section, if the section exists. Both files use the same addresses.
pub(super) fn read(source: &Source, headers: &Headers) -> Result<Option<Source>, ElfError> {
    let mut sections = headers.sections.iter();
    let is_debug_data =
        |section: &&super::headers::Section| section.name == WHAT.as_bytes() && section.has_data();
    let Some(section) = sections.find(is_debug_data) else {
        return Ok(None);
    };
    let compressed = section_data(source, headers, section, WHAT, MAX_COMPRESSED_BYTES)?;
    let reader = XzReader::new_mem_limit(&*compressed, false, MAX_DICTIONARY_KIB);
    let mut bytes = Vec::new();
    let mut reader = Counted {
        inner: reader.take(MAX_BYTES + 1),
        memory: &source.memory,
    };
    let read = reader.read_to_end(&mut bytes);
    read.map_err(|error| ElfError::Corrupt {
        what: WHAT,
        why: error.to_string(),
    })?;
    check_size(WHAT, bytes.len() as u64, MAX_BYTES)?;
    Ok(Some(Source::from_bytes(bytes, source.memory.clone())))
}
