//! Who the file is: its build id, and the name and checksum of its debug file.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::{FileHeader, NoteIterator};

use super::headers::{Headers, Section};
use super::source::Source;
use crate::build_id::BuildId;

/// Most bytes of one note section or segment looked at; core-like notes are of no use here.
const MAX_NOTES_BYTES: u64 = 1 << 20;
/// Most note sections and segments looked at; Debian's binaries have 2 to 4.
const MAX_NOTE_RANGES: usize = 64;
/// Most bytes of `.gnu_debuglink`: a file name, padding and a CRC; and of `.gnu_debugaltlink`: a path and a build id.
const MAX_DEBUG_LINK_BYTES: u64 = 4096;

/// A file name with the CRC-32 of that file's contents: the section `.gnu_debuglink` (GDB manual, "Separate Debug Files").
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DebugLink {
    /// A name without directories.
    pub name: Vec<u8>,
    /// Of the whole file, as zlib computes it.
    pub crc: u32,
}

/// A path with the build id of the file there: the section `.gnu_debugaltlink`, which `dwz` writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AltLink {
    /// Absolute, or relative to the directory of the file that has the link.
    pub path: PathBuf,
    /// [`ElfFile::build_id`](super::ElfFile::build_id) of that file.
    pub build_id: BuildId,
}

/// The contents of the note `NT_GNU_BUILD_ID`. Sections come first: the program headers of a separate debug file
/// point at places that are no longer there.
pub(super) fn build_id(source: Source<'_>, headers: &Headers) -> Option<BuildId> {
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
            // Only 4 and 8 exist; a 32-bit word holds them.
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

/// The build id in notes of a 64-bit ELF file of this machine, as `/sys/kernel/notes` has the kernel's.
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

/// A NUL-terminated name, zeros up to a multiple of 4, the CRC in the file's byte order.
pub(super) fn debug_link(source: Source<'_>, headers: &Headers) -> Option<DebugLink> {
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
    // A name with a directory would leave the places searched.
    let is_file_name = !name.is_empty() && !name.contains(&b'/') && name != b"." && name != b"..";
    is_file_name.then(|| DebugLink {
        name: name.to_vec(),
        crc,
    })
}

/// A NUL-terminated path, then the build id.
pub(super) fn alt_link(source: Source<'_>, headers: &Headers) -> Option<AltLink> {
    let bytes = link_section(source, headers, ".gnu_debugaltlink")?;
    let (path, build_id) = bytes.split_at_checked(memchr::memchr(0, &bytes)?)?;
    let build_id = build_id.get(1..)?;
    let build_id = BuildId::from_bytes(build_id)?;
    (!path.is_empty()).then(|| AltLink {
        path: OsStr::from_bytes(path).into(),
        build_id,
    })
}

fn link_section(source: Source<'_>, headers: &Headers, name: &'static str) -> Option<Vec<u8>> {
    let is_link = |section: &&Section| {
        section.name == name.as_bytes() && section.size <= MAX_DEBUG_LINK_BYTES
    };
    let section = headers.sections.iter().find(is_link)?;
    source.read_exact(name, section.offset, section.size).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A note, padded.
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
    fn the_build_id_is_found_among_other_notes() {
        let id = [7; 20];
        let others = [note(3, b"Xen\0", &[1; 5]), note(1, b"GNU\0", &[2; 16])].concat();
        let all = [others.clone(), note(3, b"GNU\0", &id)].concat();
        assert_eq!(build_id_from_notes(&all), BuildId::from_bytes(&id));
        for cut in others.len()..all.len() {
            assert_eq!(build_id_from_notes(&all[..cut]), None, "{cut}");
        }
        for bad in [&[][..], &[8; 65]] {
            assert_eq!(build_id_from_notes(&note(3, b"GNU\0", bad)), None);
        }
    }
}
