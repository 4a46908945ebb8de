//! The identity of a file: its build id and its links to debug files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator};

use super::headers::{Headers, Section};
use super::source::Source;
use crate::build_id::BuildId;

/// Limit of one note section or segment. Larger ones, as in core files, have no build id.
const MAX_NOTES_BYTES: u64 = 1 << 20;
/// Limit of note sections and segments. Debian's binaries have 2 to 4.
const MAX_NOTE_RANGES: usize = 64;
/// Limit of `.gnu_debuglink` (file name, padding, CRC) and `.gnu_debugaltlink` (path, build id).
const MAX_DEBUG_LINK_BYTES: u64 = 4096;

/// Name and CRC-32 of a separate debug file: the section `.gnu_debuglink`.
///
/// Format: [GDB manual, "Separate Debug Files"][gdb].
///
/// [gdb]: https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLink {
    /// File name without directories.
    pub name: Vec<u8>,
    /// CRC-32 of the whole file, as zlib computes it.
    pub crc: u32,
}

/// Path and build id of a supplementary file: the section `.gnu_debugaltlink`, which `dwz` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AltLink {
    /// Absolute path, or a path relative to the directory of the file with the link.
    pub path: PathBuf,
    /// [Build id](super::ElfFile::build_id) of the supplementary file.
    pub build_id: BuildId,
}

/// Returns the contents of the note `NT_GNU_BUILD_ID`.
///
/// Sections precede segments: the program headers of a separate debug file refer to contents that
/// the file does not have.
pub(super) fn build_id(source: &Source, headers: &Headers) -> Option<BuildId> {
    let sections = headers
        .sections
        .iter()
        .filter(|section| section.kind == elf::SHT_NOTE);
    let segments = headers
        .segments
        .iter()
        .filter(|segment| segment.kind == elf::PT_NOTE);
    sections
        .map(|section| (section.offset, section.size, section.alignment))
        .chain(segments.map(|segment| (segment.offset, segment.file_size, segment.alignment)))
        .filter(|&(_, size, _)| size <= MAX_NOTES_BYTES)
        .take(MAX_NOTE_RANGES)
        .find_map(|(offset, size, alignment)| {
            let bytes = source.read_exact("note", offset, size).ok()?;
            // The only alignments in use, 4 and 8, fit into 32 bits.
            let alignment = u32::try_from(alignment).ok()?;
            if headers.is_64 {
                build_id_in::<FileHeader64<Endianness>>(
                    headers.endian,
                    u64::from(alignment),
                    &bytes,
                )
            } else {
                build_id_in::<FileHeader32<Endianness>>(headers.endian, alignment, &bytes)
            }
        })
}

/// Returns the build id in the notes of a 64-bit ELF file in the host's byte order.
///
/// `/sys/kernel/notes` has the notes of the kernel in this form.
#[must_use]
pub fn build_id_from_notes(bytes: &[u8]) -> Option<BuildId> {
    build_id_in::<FileHeader64<Endianness>>(Endianness::default(), 4, bytes)
}

fn build_id_in<Elf: FileHeader<Endian = Endianness>>(
    endian: Endianness,
    alignment: Elf::Word,
    bytes: &[u8],
) -> Option<BuildId> {
    let mut notes = NoteIterator::<Elf>::new(endian, alignment, bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        let is_build_id = note.name() == b"GNU" && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
        if let (true, Some(id)) = (is_build_id, BuildId::from_bytes(note.desc())) {
            return Some(id);
        }
    }
    None
}

/// Parses `.gnu_debuglink`: NUL-terminated name, padding to a multiple of 4, CRC.
pub(super) fn debug_link(source: &Source, headers: &Headers) -> Option<DebugLink> {
    let bytes = link_section(source, headers, ".gnu_debuglink")?;
    let name_len = memchr::memchr(0, &bytes)?;
    let name = bytes.get(..name_len)?;
    let crc: [u8; 4] = bytes
        .get((name_len + 1).next_multiple_of(4)..)?
        .get(..4)?
        .try_into()
        .ok()?;
    let crc = match headers.endian {
        Endianness::Little => u32::from_le_bytes(crc),
        Endianness::Big => u32::from_be_bytes(crc),
    };
    // A name with a directory component would escape the searched directories.
    let is_file_name = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
    is_file_name.then(|| DebugLink {
        name: name.to_vec(),
        crc,
    })
}

/// Parses `.gnu_debugaltlink`: NUL-terminated path, build id.
pub(super) fn alt_link(source: &Source, headers: &Headers) -> Option<AltLink> {
    let bytes = link_section(source, headers, ".gnu_debugaltlink")?;
    let (path, build_id) = bytes.split_at_checked(memchr::memchr(0, &bytes)?)?;
    let build_id = build_id.get(1..)?;
    let build_id = BuildId::from_bytes(build_id)?;
    (!path.is_empty()).then(|| AltLink {
        path: OsStr::from_bytes(path).into(),
        build_id,
    })
}

fn link_section(source: &Source, headers: &Headers, name: &'static str) -> Option<Vec<u8>> {
    let is_link = |section: &&Section| {
        section.name == name.as_bytes() && section.size <= MAX_DEBUG_LINK_BYTES
    };
    let section = headers.sections.iter().find(is_link)?;
    source.read_exact(name, section.offset, section.size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a padded note.
    fn note(kind: u32, name: &[u8], contents: &[u8]) -> Vec<u8> {
        let words = [name.len() as u32, contents.len() as u32, kind];
        let mut note: Vec<u8> = words.into_iter().flat_map(u32::to_ne_bytes).collect();
        for part in [name, contents] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn finds_the_build_id_among_other_notes() {
        let id = [7; 20];
        let others = [note(3, b"Xen\0", &[1; 5]), note(1, b"GNU\0", &[2; 16])].concat();
        let all = [others.clone(), note(3, b"GNU\0", &id)].concat();
        assert_eq!(build_id_from_notes(&all), BuildId::from_bytes(&id));
        for length in others.len()..all.len() {
            assert_eq!(build_id_from_notes(&all[..length]), None, "{length}");
        }
        for invalid in [&[][..], &[8; 65]] {
            assert_eq!(build_id_from_notes(&note(3, b"GNU\0", invalid)), None);
        }
    }
}
