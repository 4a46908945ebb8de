//! File, program and section headers of both classes and byte orders, decoded to one form.

use gimli::RunTimeEndian;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, ReadRef};

use super::ElfError;
use super::source::{Cursor, Source};

/// Limit of section headers. Executables have about 40; only object files have more than 65 280.
const MAX_SECTIONS: u32 = 1 << 16;
/// Limit of program headers. Executables have about 12.
const MAX_PROGRAM_HEADERS: u32 = 1 << 12;
/// Limit of `.shstrtab`, in bytes.
const MAX_SECTION_NAMES_BYTES: u64 = 16 << 20;

/// A section header with the name of the section.
#[derive(Debug, Clone)]
pub(super) struct Section {
    pub(super) name: Vec<u8>,
    pub(super) kind: elf::SectionType,
    pub(super) flags: elf::SectionFlags,
    pub(super) address: u64,
    pub(super) offset: u64,
    pub(super) size: u64,
    pub(super) link: u32,
    pub(super) alignment: u64,
}

impl Section {
    /// Returns whether the loader maps it, which never decompresses.
    pub(super) fn is_mapped(&self) -> bool {
        self.flags.contains(elf::SHF_ALLOC)
    }

    pub(super) fn is_executable(&self) -> bool {
        self.flags.contains(elf::SHF_EXECINSTR) && self.is_mapped()
    }

    pub(super) fn end(&self) -> u64 {
        self.address.saturating_add(self.size)
    }

    pub(super) fn is_compressed(&self) -> bool {
        self.flags.contains(elf::SHF_COMPRESSED) || self.is_compressed_by_name()
    }

    /// Returns whether it is compressed in the older GNU form: `.zdebug_info` for `.debug_info`.
    pub(super) fn is_compressed_by_name(&self) -> bool {
        self.name.starts_with(b".zdebug_")
    }

    /// Returns whether the section has this name, or the name of its older compressed form.
    pub(super) fn is_named(&self, name: &str) -> bool {
        let base = self.name.strip_prefix(b".z");
        self.name == name.as_bytes()
            || base.is_some_and(|base| {
                name.strip_prefix('.')
                    .is_some_and(|name| base == name.as_bytes() && self.is_compressed_by_name())
            })
    }

    /// Returns whether the file has the contents. In a separate debug file `.text` has none.
    pub(super) fn has_data(&self) -> bool {
        self.kind != elf::SHT_NOBITS && self.kind != elf::SHT_NULL
    }
}

/// A program header.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    pub(super) kind: elf::ProgramType,
    pub(super) flags: elf::ProgramFlags,
    pub(super) offset: u64,
    pub(super) file_size: u64,
    pub(super) address: u64,
    pub(super) memory_size: u64,
    pub(super) alignment: u64,
}

/// The decoded headers of a file.
#[derive(Debug)]
pub(super) struct Headers {
    pub(super) is_64: bool,
    pub(super) endian: Endianness,
    pub(super) machine: elf::Machine,
    pub(super) segments: Vec<Segment>,
    pub(super) sections: Vec<Section>,
}

impl Headers {
    /// Returns the byte order as gimli's type.
    pub(super) fn run_time_endian(&self) -> RunTimeEndian {
        match self.endian {
            Endianness::Little => RunTimeEndian::Little,
            Endianness::Big => RunTimeEndian::Big,
        }
    }

    pub(super) fn address_bytes(&self) -> u8 {
        if self.is_64 { 8 } else { 4 }
    }

    pub(super) fn read(source: &Source) -> Result<Self, ElfError> {
        Self::read_parts(source, Parts::All)
    }

    /// Reads all but the section headers, which the loader does not need.
    pub(super) fn read_segments(source: &Source) -> Result<Self, ElfError> {
        Self::read_parts(source, Parts::Segments)
    }

    fn read_parts(source: &Source, parts: Parts) -> Result<Self, ElfError> {
        let mut ident = [0; 5];
        let read = source.read_at(&mut ident, 0).map_err(ElfError::Read)?;
        match (read, ident) {
            (5, [0x7f, b'E', b'L', b'F', class]) if class == elf::ELFCLASS64.0 => {
                read_headers::<FileHeader64<Endianness>>(source, parts)
            }
            (5, [0x7f, b'E', b'L', b'F', class]) if class == elf::ELFCLASS32.0 => {
                read_headers::<FileHeader32<Endianness>>(source, parts)
            }
            _ => Err(ElfError::NotElf),
        }
    }
}

/// The headers to read.
#[derive(Clone, Copy)]
enum Parts {
    Segments,
    All,
}

fn read_headers<Elf: FileHeader<Endian = Endianness>>(
    source: &Source,
    parts: Parts,
) -> Result<Headers, ElfError> {
    let cache = ReadCache::new(Cursor::new(source));
    let header = Elf::parse(&cache).map_err(corrupt("header"))?;
    let endian = header.endian().map_err(corrupt("byte order"))?;
    limit(
        "program headers",
        header
            .phnum(endian, &cache)
            .map_err(corrupt("program headers"))?,
        MAX_PROGRAM_HEADERS,
    )?;
    let segments = header
        .program_headers(endian, &cache)
        .map_err(corrupt("program headers"))?;
    let sections = match parts {
        Parts::Segments => Vec::new(),
        Parts::All => read_sections(header, endian, &cache)?,
    };
    Ok(Headers {
        is_64: header.is_type_64(),
        endian,
        machine: header.e_machine(endian),
        segments: segments
            .iter()
            .map(|segment| decode_segment::<Elf>(segment, endian))
            .collect(),
        sections,
    })
}

fn read_sections<Elf: FileHeader<Endian = Endianness>>(
    header: &Elf,
    endian: Endianness,
    cache: &ReadCache<Cursor<'_>>,
) -> Result<Vec<Section>, ElfError> {
    limit(
        "section headers",
        header
            .shnum(endian, cache)
            .map_err(corrupt("section headers"))?,
        MAX_SECTIONS,
    )?;
    let sections = header
        .section_headers(endian, cache)
        .map_err(corrupt("section headers"))?;
    let no_names = || ElfError::Corrupt {
        what: "section names",
        why: "their section is missing".to_owned(),
    };
    let names = match sections {
        [] => &[][..],
        sections => {
            let index = header
                .section_strings_index(endian, cache)
                .map_err(corrupt("section names"))?;
            let names = match index.0 {
                0 => None,
                index => Some(sections.get(index).ok_or_else(no_names)?),
            };
            let (offset, size) = names
                .and_then(|names| names.file_range(endian))
                .unwrap_or_default();
            super::check_size("section names", size, MAX_SECTION_NAMES_BYTES)?;
            let outside = |()| ElfError::OutsideFile {
                what: "section names",
                offset,
                size,
            };
            cache.read_bytes_at(offset, size).map_err(outside)?
        }
    };
    let sections = sections.iter();
    Ok(sections
        .map(|section| decode_section::<Elf>(section, endian, names))
        .collect())
}

fn corrupt(what: &'static str) -> impl Fn(object::Error) -> ElfError {
    move |error| ElfError::Corrupt {
        what,
        why: error.to_string(),
    }
}

fn limit(what: &'static str, count: u32, limit: u32) -> Result<(), ElfError> {
    super::check_size(what, u64::from(count), u64::from(limit))
}

fn decode_segment<Elf: FileHeader<Endian = Endianness>>(
    segment: &Elf::ProgramHeader,
    endian: Endianness,
) -> Segment {
    Segment {
        kind: segment.p_type(endian),
        flags: segment.p_flags(endian),
        offset: segment.p_offset(endian).into(),
        file_size: segment.p_filesz(endian).into(),
        address: segment.p_vaddr(endian).into(),
        memory_size: segment.p_memsz(endian).into(),
        alignment: segment.p_align(endian).into(),
    }
}

fn decode_section<Elf: FileHeader<Endian = Endianness>>(
    section: &Elf::SectionHeader,
    endian: Endianness,
    names: &[u8],
) -> Section {
    Section {
        name: name_at(names, section.sh_name(endian))
            .unwrap_or_default()
            .to_vec(),
        kind: section.sh_type(endian),
        flags: section.sh_flags(endian),
        address: section.sh_addr(endian).into(),
        offset: section.sh_offset(endian).into(),
        size: section.sh_size(endian).into(),
        link: section.sh_link(endian),
        alignment: section.sh_addralign(endian).into(),
    }
}

/// Limit of a section name; `.note.gnu.build-id` has 18 bytes.
///
/// It bounds the memory of 65 536 sections that all refer to one long string.
const MAX_SECTION_NAME_BYTES: usize = 64;

fn name_at(names: &[u8], offset: u32) -> Option<&[u8]> {
    let from = names.get(offset as usize..)?;
    let from = from.get(..MAX_SECTION_NAME_BYTES).unwrap_or(from);
    from.get(..memchr::memchr(0, from)?)
}
