//! `.gnu_debugdata`: a whole ELF file in a section, with the symbols that stripping has taken from `.symtab`.
//!
//! Format: xz; GDB manual, "Debugging information in a special section". Fedora and its kin put it into all they build.

use std::io::{self, Read};

use lzma_rust2::XzReader;

use super::headers::Headers;
use super::source::Source;
use super::{ElfError, check_size, section_data};
use crate::large_file_permit;

const WHAT: &str = ".gnu_debugdata";
/// Most compressed bytes; a large library has 1 MB.
const MAX_COMPRESSED_BYTES: u64 = 32 << 20;
/// Most bytes of the file in it.
const MAX_BYTES: u64 = 128 << 20;
/// What decompression may take besides: `xz -9` asks for 64 MiB, the default for 8.
const MAX_DICTIONARY_KIB: u32 = 80 << 10;

/// Decompressed bytes are counted as they come: how many there are is told by nobody before.
struct Counted<R>(R);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buffer)?;
        large_file_permit::charge(read as u64);
        Ok(read)
    }
}

/// The file, if there is one. Its sections have the addresses of this one's.
pub(super) fn read(source: Source<'_>, headers: &Headers) -> Result<Option<Vec<u8>>, ElfError> {
    let mut sections = headers.sections.iter();
    let is_it =
        |section: &&super::headers::Section| section.name == WHAT.as_bytes() && section.has_data();
    let Some(section) = sections.find(is_it) else {
        return Ok(None);
    };
    let compressed = section_data(source, headers, section, WHAT, MAX_COMPRESSED_BYTES)?;
    let reader = XzReader::new_mem_limit(&*compressed, false, MAX_DICTIONARY_KIB);
    let mut bytes = Vec::new();
    Counted(reader.take(MAX_BYTES + 1))
        .read_to_end(&mut bytes)
        .map_err(|error| ElfError::Corrupt {
            what: WHAT,
            why: error.to_string(),
        })?;
    check_size(WHAT, bytes.len() as u64, MAX_BYTES)?;
    Ok(Some(bytes))
}
