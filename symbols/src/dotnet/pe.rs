//! PE images of assemblies: separate files, files inside a single-file bundle, or in memory.
//!
//! Addresses are relative to the image base (RVA). Section headers translate them to file offsets.

use super::metadata::Metadata;
use crate::memory::Memory;

/// Magic of the optional header and offset of the data directories, for 32-bit and 64-bit images.
const PE32: (u16, u64) = (0x10b, 96);
const PE32_PLUS: (u16, u64) = (0x20b, 112);
/// Size limit of the DOS header and its program.
const MAX_DOS_BYTES: u32 = 1 << 16;
/// Limit on the sections. The Windows loader accepts 96.
const MAX_SECTIONS: u16 = 96;
/// Distance that an image may start before its first code.
///
/// The image's headers and the rounding of the mapping to a page come between.
const SEARCH_BACK: u64 = 1 << 16;
const PAGE_BYTES: u64 = 4096;
/// Size limit of an image that is searched for from inside. The core library has 16 MB.
const MAX_IMAGE_BYTES: u64 = 64 << 20;
/// Flag of an executable section (`IMAGE_SCN_MEM_EXECUTE`).
const EXECUTABLE: u32 = 0x2000_0000;
const DIRECTORIES: usize = 16;
/// Index of the COR header's data directory, and size of that header.
const COR_DIRECTORY: usize = 14;
const COR_BYTES: usize = 72;
/// Size limit of metadata. The metadata of the core library has 4 MB.
const MAX_METADATA_BYTES: usize = 64 << 20;

/// A PE image in a file, or in memory with the layout of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeImage {
    /// The file offset of the image.
    start: u64,
    /// The target machine. ReadyToRun images combine it with a code for the operating system.
    pub machine: u16,
    sections: Vec<Section>,
    directories: [Directory; DIRECTORIES],
}

/// Position of a part of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Directory {
    /// The address, relative to the image base.
    pub address: u32,
    /// The size in bytes.
    pub size: u32,
}

/// A section. Its address is relative to the image base, its offset to the image's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Section {
    address: u64,
    offset: u64,
    bytes: u64,
    executable: bool,
}

impl PeImage {
    /// Finds the image whose code is mapped at file offset `mapped_from`. `file` provides the
    /// file's bytes by offset.
    ///
    /// A separate file starts with the image. In a single-file bundle the image starts anywhere,
    /// shortly before its code.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Option<Self> {
        let covers = |image: &Self| image.address_of_page(mapped_from).is_some();
        if let Some(image) = Self::parse(file, 0).filter(covers) {
            return Some(image);
        }
        let start = mapped_from.saturating_sub(SEARCH_BACK);
        Self::find_last(file, start, mapped_from - start + PAGE_BYTES, covers)
    }

    /// Finds the image that contains the code at a file offset, wherever the image starts.
    pub fn around(file: &impl Memory, offset: u64) -> Option<Self> {
        let contains = |image: &Self| image.address_of(offset).is_some();
        if let Some(image) = Self::parse(file, 0).filter(contains) {
            return Some(image);
        }
        let lowest = offset.saturating_sub(MAX_IMAGE_BYTES) / SEARCH_BACK;
        (lowest..=offset / SEARCH_BACK).rev().find_map(|window| {
            let start = window * SEARCH_BACK;
            let end = offset.min(start.saturating_add(SEARCH_BACK));
            Self::find_last(file, start, end - start, contains)
        })
    }

    /// Finds the last image that starts in a range of a file and that `matches` accepts.
    fn find_last(
        file: &impl Memory,
        start: u64,
        len: u64,
        matches: impl Fn(&Self) -> bool,
    ) -> Option<Self> {
        let mut window = vec![0; usize::try_from(len).ok()?];
        let read = file.read(start, &mut window);
        window.truncate(read);
        // Bundled files are aligned to at least 16 bytes.
        let aligned = window.chunks(16).zip((start..).step_by(16));
        let candidates = aligned.filter(|(bytes, _)| bytes.starts_with(b"MZ"));
        let offsets: Vec<_> = candidates.map(|(_, offset)| offset).collect();
        offsets
            .into_iter()
            .rev()
            .filter_map(|offset| Self::parse(file, offset))
            .find(matches)
    }

    /// Parses the image that starts at a file offset.
    pub fn parse(file: &impl Memory, start: u64) -> Option<Self> {
        let at = |offset: u64| start.checked_add(offset);
        if file.bytes(start)? != *b"MZ" {
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
            start,
            machine,
            sections: (0..u64::from(sections))
                .map(|index| section(&file.bytes(at(table + index * 40)?)?))
                .collect::<Option<_>>()?,
            directories,
        })
    }

    /// Returns a data directory, or `None` if it is empty.
    #[must_use]
    pub fn directory(&self, index: usize) -> Option<Directory> {
        let directory = self.directories.get(index)?;
        (directory.size > 0).then_some(*directory)
    }

    /// Returns the file offset of an address, and the number of bytes from there to the section's
    /// end.
    #[must_use]
    pub fn offset_of(&self, address: u64) -> Option<(u64, u64)> {
        self.sections.iter().find_map(|section| {
            let delta = address.checked_sub(section.address)?;
            let left = section.bytes.checked_sub(delta).filter(|left| *left > 0)?;
            let offset = self.start.checked_add(section.offset)?;
            Some((offset.checked_add(delta)?, left))
        })
    }

    /// Returns the address of the code at a file offset.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        let offset = file_offset.checked_sub(self.start)?;
        self.code_address(|section| offset.checked_sub(section.offset))
    }

    /// Returns the code address for the start of a mapping, which precedes the section by up to a
    /// page.
    fn address_of_page(&self, file_offset: u64) -> Option<u64> {
        self.code_address(|section| {
            let section_start = self.start.checked_add(section.offset)?;
            file_offset.checked_sub(section_start & !(PAGE_BYTES - 1))
        })
    }

    fn code_address(&self, delta_in: impl Fn(&Section) -> Option<u64>) -> Option<u64> {
        self.sections.iter().find_map(|section| {
            let delta =
                delta_in(section).filter(|delta| *delta < section.bytes && section.executable)?;
            section.address.checked_add(delta)
        })
    }

    /// Returns a view of the image's bytes by address, from the bytes of its file.
    pub fn by_address<M>(&self, file: M) -> ByAddress<'_, M> {
        ByAddress { image: self, file }
    }

    /// Reads the COR header. `image` provides the image's bytes by address.
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

    /// Reads the metadata of the image. `file` provides the file's bytes by offset.
    pub fn metadata(&self, file: &impl Memory) -> Option<Metadata> {
        let image = self.by_address(file);
        metadata(&image, self.cor_header(&image)?)
    }
}

/// The header of an assembly (ECMA-335 II.25.3.3, "CLI header").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CorHeader {
    /// The metadata.
    pub metadata: Directory,
    /// The ReadyToRun header. Empty if the image has no ReadyToRun code.
    pub native: Directory,
}

/// Reads the metadata of the image at an address of a process's memory.
///
/// The image may be laid out by address or as in its file.
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
    // A cheap check of the magic precedes the large read, because the address may be wrong.
    if image.bytes(address.into())? != *b"BSJB" {
        return None;
    }
    Metadata::open(image.vec(address.into(), size.into(), MAX_METADATA_BYTES)?)
}

/// A view of an image's bytes by address.
pub struct ByAddress<'a, M> {
    image: &'a PeImage,
    file: M,
}

impl<M: Memory> Memory for ByAddress<'_, M> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((offset, available)) = self.image.offset_of(address) else {
            return 0;
        };
        let len = buffer
            .len()
            .min(usize::try_from(available).unwrap_or(usize::MAX));
        buffer
            .get_mut(..len)
            .map_or(0, |buffer| self.file.read(offset, buffer))
    }
}

/// An image that is already laid out by address.
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
    let field = |offset| u32_at(header, offset).map(u64::from);
    Some(Section {
        address: field(12)?,
        bytes: field(16)?,
        offset: field(20)?,
        executable: u32_at(header, 36)? & EXECUTABLE != 0,
    })
}

pub(super) fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(offset..)?.first_chunk()?))
}
