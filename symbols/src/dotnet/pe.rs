//! PE images of assemblies: separate files, files inside a single-file bundle, or in memory.
//!
//! Addresses are relative to the image base (RVA). Section headers translate them to file offsets.

use crate::memory::{Image, Memory, Structure};

pub use assembly::{CorHeader, metadata_in_memory};
pub use error::PeError;

mod assembly;
mod error;

const DOS_MAGIC: [u8; 2] = *b"MZ";
/// Magic of the optional header and offset of the data directories, for 32-bit and 64-bit images.
const PE32: (u16, u64) = (0x10b, 96);
const PE32_PLUS: (u16, u64) = (0x20b, 112);
/// Size limit of the DOS header and its program.
const MAX_DOS_BYTES: u64 = 1 << 16;
/// Limit on the sections. The Windows loader accepts 96.
const MAX_SECTIONS: u64 = 96;
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
    ///
    /// # Errors
    /// No image has code there. If the file starts with a corrupt image: what is corrupt.
    pub fn find(file: &impl Memory, mapped_from: u64) -> Result<Self, PeError> {
        let covers = |image: &Self| image.address_of_page(mapped_from).is_some();
        let search = || {
            let start = mapped_from.saturating_sub(SEARCH_BACK);
            Self::find_last(file, start, mapped_from - start + PAGE_BYTES, covers)
        };
        Self::first_or(file, mapped_from, covers, search)
    }

    /// Finds the image that contains the code at a file offset, wherever the image starts.
    ///
    /// # Errors
    /// As [`PeImage::find`].
    pub fn around(file: &impl Memory, offset: u64) -> Result<Self, PeError> {
        let contains = |image: &Self| image.address_of(offset).is_some();
        let search = || {
            let lowest = offset.saturating_sub(MAX_IMAGE_BYTES) / SEARCH_BACK;
            (lowest..=offset / SEARCH_BACK).rev().find_map(|window| {
                let start = window * SEARCH_BACK;
                let end = offset.min(start.saturating_add(SEARCH_BACK));
                Self::find_last(file, start, end - start, contains)
            })
        };
        Self::first_or(file, offset, contains, search)
    }

    /// Returns the image at the start of a file if `matches` accepts it, or else searches.
    fn first_or(
        file: &impl Memory,
        offset: u64,
        matches: impl Fn(&Self) -> bool,
        search: impl FnOnce() -> Option<Self>,
    ) -> Result<Self, PeError> {
        let first = Self::parse(file, 0);
        let error = match first {
            Ok(image) if matches(&image) => return Ok(image),
            Err(error) if file.bytes(0) == Ok(DOS_MAGIC) => error,
            _ => PeError::NoImage(offset),
        };
        search().ok_or(error)
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
        let candidates = aligned.filter(|(bytes, _)| bytes.starts_with(&DOS_MAGIC));
        let offsets: Vec<_> = candidates.map(|(_, offset)| offset).collect();
        offsets
            .into_iter()
            .rev()
            .filter_map(|offset| Self::parse(file, offset).ok())
            .find(matches)
    }

    /// Parses the image that starts at a file offset.
    ///
    /// # Errors
    /// No image starts there, or its headers are corrupt.
    pub fn parse(file: &impl Memory, start: u64) -> Result<Self, PeError> {
        let image = Structure::new(file, start);
        expect_magic(&image, 0, DOS_MAGIC, "DOS header")?;
        let pe = u64::from(image.u32(0x3c)?);
        expect_at_most(MAX_DOS_BYTES, pe, "offset of the PE header")?;
        expect_magic(&image, pe, *b"PE\0\0", "PE header")?;
        let machine = image.u16(pe + 4)?;
        let sections = u64::from(image.u16(pe + 6)?);
        let optional_bytes = u64::from(image.u16(pe + 20)?);
        expect_at_most(MAX_SECTIONS, sections, "number of sections")?;
        let optional = pe + 24;
        let kind = image.u16(optional)?;
        let known = [PE32, PE32_PLUS].into_iter().find(|(k, _)| *k == kind);
        let (_, directories_at) = known.ok_or(PeError::OptionalHeader(kind))?;
        let mut directories = [Directory::default(); DIRECTORIES];
        let count = image.u32(optional + directories_at - 4)?;
        for (directory, index) in directories.iter_mut().zip(0..u64::from(count)) {
            let entry = optional + directories_at + index * 8;
            *directory = Directory {
                address: image.u32(entry)?,
                size: image.u32(entry + 4)?,
            };
        }
        let table = optional + optional_bytes;
        Ok(Self {
            start,
            machine,
            sections: (0..sections)
                .map(|index| Section::parse(&image, table + index * 40))
                .collect::<Result<_, _>>()?,
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

impl Section {
    /// Parses the section header at an offset of an image.
    fn parse(image: &impl Memory, at: u64) -> Result<Self, PeError> {
        let header: [u8; 40] = image.bytes(at)?;
        let header = Image {
            start: 0,
            bytes: &header,
        };
        Ok(Self {
            address: header.u32(12)?.into(),
            bytes: header.u32(16)?.into(),
            offset: header.u32(20)?.into(),
            executable: header.u32(36)? & EXECUTABLE != 0,
        })
    }
}

/// Checks the magic of a header.
fn expect_magic<const N: usize>(
    memory: &impl Memory,
    address: u64,
    expected: [u8; N],
    what: &'static str,
) -> Result<(), PeError> {
    let bytes: [u8; N] = memory.bytes(address)?;
    if bytes == expected {
        return Ok(());
    }
    let mut found = [0; 4];
    for (to, from) in found.iter_mut().zip(bytes) {
        *to = from;
    }
    Err(PeError::Magic {
        what,
        address,
        found,
    })
}

/// Checks a number in a header.
fn expect_at_most(limit: u64, value: u64, what: &'static str) -> Result<(), PeError> {
    match value <= limit {
        true => Ok(()),
        false => Err(PeError::TooLarge { what, value, limit }),
    }
}
