//! PE images, as assemblies are: in files of their own, inside a single-file program, or in memory.
//!
//! Addresses are relative to the image's base (RVA). Sections have to be taken from their headers.

use super::metadata::Metadata;
use crate::memory::Memory;

/// Optional headers of 32-bit and 64-bit images, and where their data directories are.
const PE32: (u16, u64) = (0x10b, 96);
const PE32_PLUS: (u16, u64) = (0x20b, 112);
/// Longest DOS header with its program.
const MAX_DOS_BYTES: u32 = 1 << 16;
/// Most sections; the loaders of Windows take 96.
const MAX_SECTIONS: u16 = 96;
/// How far before its first code an image may begin: its headers, and the rounding of the mapping to a page.
const SEARCH_BACK: u64 = 1 << 16;
const PAGE_BYTES: u64 = 4096;
/// Largest image that is looked for from its middle; the core library has 16 MB.
const MAX_IMAGE_BYTES: u64 = 64 << 20;
/// Flag of a section: it holds code.
const EXECUTABLE: u32 = 0x2000_0000;
const DIRECTORIES: usize = 16;
/// Data directory of the header that makes an image an assembly, and the bytes of that header.
const COR_DIRECTORY: usize = 14;
const COR_BYTES: usize = 72;
/// Largest metadata that is read; that of the core library has 4 MB.
const MAX_METADATA_BYTES: usize = 64 << 20;

/// A PE image within a file, or within memory that holds it as the file does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeImage {
    /// Where in the file it begins.
    begins_at: u64,
    /// The processor it is for, and with what mark.
    pub machine: u16,
    sections: Vec<Section>,
    directories: [Directory; DIRECTORIES],
}

/// A part of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// Where it is.
    pub address: u32,
    /// Bytes it has.
    pub size: u32,
}

/// Addresses are relative to the image's base, offsets to its first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    address: u64,
    offset: u64,
    bytes: u64,
    executable: bool,
}

impl PeImage {
    /// The image whose code is mapped from `mapped_from` in a file on. `file` gives the file's bytes by offset.
    ///
    /// A file of its own begins with the image. Inside a single-file program it may begin anywhere, shortly before its code.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Option<Self> {
        let covers = |image: &Self| image.address_of_page(mapped_from).is_some();
        if let Some(image) = Self::parse(file, 0).filter(covers) {
            return Some(image);
        }
        let from = mapped_from.saturating_sub(SEARCH_BACK);
        Self::last_in(file, from, mapped_from - from + PAGE_BYTES, covers)
    }

    /// The image that holds the code at an offset of a file, wherever it begins.
    pub fn around(file: &impl Memory, offset: u64) -> Option<Self> {
        let holds = |image: &Self| image.address_of(offset).is_some();
        if let Some(image) = Self::parse(file, 0).filter(holds) {
            return Some(image);
        }
        let lowest = offset.saturating_sub(MAX_IMAGE_BYTES) / SEARCH_BACK;
        (lowest..=offset / SEARCH_BACK).rev().find_map(|window| {
            let from = window * SEARCH_BACK;
            let to = offset.min(from.saturating_add(SEARCH_BACK));
            Self::last_in(file, from, to - from, holds)
        })
    }

    /// The last image that begins in a part of a file and is the wanted one.
    fn last_in(
        file: &impl Memory,
        from: u64,
        len: u64,
        is_wanted: impl Fn(&Self) -> bool,
    ) -> Option<Self> {
        let mut window = vec![0; usize::try_from(len).ok()?];
        let read = file.read(from, &mut window);
        window.truncate(read);
        // Bundled files are aligned to 16 bytes at least.
        let aligned = window.chunks(16).zip((from..).step_by(16));
        let begins = aligned.filter(|(bytes, _)| bytes.starts_with(b"MZ"));
        let found: Vec<_> = begins.map(|(_, at)| at).collect();
        found
            .into_iter()
            .rev()
            .filter_map(|at| Self::parse(file, at))
            .find(is_wanted)
    }

    /// The image that begins at an offset of a file.
    pub fn parse(file: &impl Memory, begins_at: u64) -> Option<Self> {
        let at = |offset: u64| begins_at.checked_add(offset);
        if file.bytes(begins_at)? != *b"MZ" {
            return None;
        }
        let pe = file.u32(at(0x3c)?)?;
        if pe > MAX_DOS_BYTES {
            return None;
        }
        let pe = u64::from(pe);
        if file.bytes(at(pe)?)? != *b"PE\0\0" {
            return None;
        }
        let machine = file.u16(at(pe + 4)?)?;
        let sections = file.u16(at(pe + 6)?)?;
        let optional_bytes = u64::from(file.u16(at(pe + 20)?)?);
        if sections > MAX_SECTIONS {
            return None;
        }
        let optional = pe + 24;
        let kind = file.u16(at(optional)?)?;
        let (_, directories_at) = [PE32, PE32_PLUS].into_iter().find(|(k, _)| *k == kind)?;
        let mut directories = [Directory::default(); DIRECTORIES];
        let count = file.u32(at(optional + directories_at - 4)?)?;
        for (directory, index) in directories.iter_mut().zip(0..u64::from(count)) {
            let entry = optional + directories_at + index * 8;
            *directory = Directory {
                address: file.u32(at(entry)?)?,
                size: file.u32(at(entry + 4)?)?,
            };
        }
        let table = optional + optional_bytes;
        Some(Self {
            begins_at,
            machine,
            sections: (0..u64::from(sections))
                .map(|index| section(&file.bytes(at(table + index * 40)?)?))
                .collect::<Option<_>>()?,
            directories,
        })
    }

    /// A data directory, unless it is empty.
    #[must_use]
    pub fn directory(&self, index: usize) -> Option<Directory> {
        let directory = self.directories.get(index)?;
        (directory.size > 0).then_some(*directory)
    }

    /// Where the byte at an address is in the file, and how many follow it in its section.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.sections.iter().find_map(|section| {
            let within = address.checked_sub(section.address)?;
            let left = section.bytes.checked_sub(within).filter(|left| *left > 0)?;
            let offset = self.begins_at.checked_add(section.offset)?;
            Some((offset.checked_add(within)?, left))
        })
    }

    /// The address of a byte of code by its place in the file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let within = file_offset.checked_sub(self.begins_at)?;
        self.code_at(|section| within.checked_sub(section.offset))
    }

    /// The same for the start of a mapping, which may lie before the section by up to a page.
    fn address_of_page(&self, file_offset: u64) -> Option<u64> {
        self.code_at(|section| {
            let starts_at = self.begins_at.checked_add(section.offset)?;
            file_offset.checked_sub(starts_at & !(PAGE_BYTES - 1))
        })
    }

    fn code_at(&self, within: impl Fn(&Section) -> Option<u64>) -> Option<u64> {
        self.sections.iter().find_map(|section| {
            let at = within(section).filter(|at| *at < section.bytes && section.executable)?;
            section.address.checked_add(at)
        })
    }

    /// The bytes of the image by address, from those of its file.
    pub fn by_address<M>(&self, file: M) -> ByAddress<'_, M> {
        ByAddress { image: self, file }
    }

    /// What makes the image an assembly. `image` gives its bytes by address.
    pub fn cor_header(&self, image: &impl Memory) -> Option<CorHeader> {
        let directory = self.directory(COR_DIRECTORY)?;
        let header: [u8; COR_BYTES] = image.bytes(directory.address.into())?;
        let at = |offset: usize| {
            Some(Directory {
                address: u32_at(&header, offset)?,
                size: u32_at(&header, offset + 4)?,
            })
        };
        Some(CorHeader {
            metadata: at(8)?,
            native: at(64)?,
        })
    }

    /// The metadata of the image in a file.
    pub fn metadata(&self, file: &impl Memory) -> Option<Metadata> {
        let image = self.by_address(file);
        metadata(&image, self.cor_header(&image)?)
    }
}

/// The header that makes an image an assembly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorHeader {
    /// The metadata.
    pub metadata: Directory,
    /// What is known of precompiled code; empty if there is none.
    pub native: Directory,
}

/// The metadata of the image at an address of a process's memory, laid out by address or as in its file.
pub fn metadata_in_memory(memory: &impl Memory, base: u64) -> Option<Metadata> {
    let image = PeImage::parse(memory, base)?;
    let loaded = Loaded { memory, base };
    image
        .cor_header(&loaded)
        .and_then(|header| metadata(&loaded, header))
        .or_else(|| image.metadata(memory))
}

fn metadata(image: &impl Memory, header: CorHeader) -> Option<Metadata> {
    let Directory { address, size } = header.metadata;
    // Cheaply, before much is read from a place that may be the wrong one.
    if image.bytes(address.into())? != *b"BSJB" {
        return None;
    }
    Metadata::open(image.vec(address.into(), size.into(), MAX_METADATA_BYTES)?)
}

/// The bytes of an image by address.
pub struct ByAddress<'a, M> {
    image: &'a PeImage,
    file: M,
}

impl<M: Memory> Memory for ByAddress<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((offset, available)) = self.image.offset_of(address) else {
            return 0;
        };
        let wanted = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        buffer
            .get_mut(..wanted)
            .map_or(0, |buffer| self.file.read(offset, buffer))
    }
}

/// An image that is laid out by address already.
struct Loaded<M> {
    memory: M,
    base: u64,
}

impl<M: Memory> Memory for Loaded<M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let at = self.base.checked_add(address);
        at.map_or(0, |at| self.memory.read(at, buffer))
    }
}

fn section(header: &[u8; 40]) -> Option<Section> {
    let number = |offset| u32_at(header, offset).map(u64::from);
    Some(Section {
        address: number(12)?,
        bytes: number(16)?,
        offset: number(20)?,
        executable: u32_at(header, 36)? & EXECUTABLE != 0,
    })
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}
