//! The contents of a file by address, as the loader maps them before any load bias.

use std::ops::Range;
use std::sync::Arc;

use object::elf;

use super::ElfError;
use super::headers::{Headers, Section, Segment};
use super::relative::Relocations;
use super::source::Source;
use crate::memory::Memory;

/// The contents of a file by SVMA. Each read is a `pread`; nothing is kept.
#[derive(Debug, Clone)]
pub(crate) struct LoadedImage {
    source: Source,
    headers: Arc<Headers>,
}

/// An address range that the loader maps from the file and that is not executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DataRange {
    pub(crate) range: Range<u64>,
    pub(crate) writable: bool,
}

impl LoadedImage {
    pub(super) fn new(source: Source, headers: Arc<Headers>) -> Self {
        Self { source, headers }
    }

    pub(crate) fn is_big_endian(&self) -> bool {
        self.headers.endian == object::Endianness::Big
    }

    /// Returns the size of a pointer in bytes: 4 or 8.
    pub(crate) fn word_bytes(&self) -> u8 {
        self.headers.address_bytes()
    }

    /// Returns whether the file has section headers.
    pub(crate) fn has_sections(&self) -> bool {
        !self.headers.sections.is_empty()
    }

    /// Returns whether a section's name satisfies a condition.
    pub(crate) fn has_section(&self, is_match: impl Fn(&[u8]) -> bool) -> bool {
        let mut sections = self.headers.sections.iter();
        sections.any(|section| is_match(&section.name))
    }

    /// Returns the address range of a section that the loader maps from the file.
    pub(crate) fn section_range(&self, name: &[u8]) -> Option<Range<u64>> {
        let is_match = |section: &&Section| {
            section.name == name && section.has_data() && section.flags.contains(elf::SHF_ALLOC)
        };
        let section = self.headers.sections.iter().find(is_match)?;
        Some(section.address..section.end())
    }

    /// Returns the contents of all non-executable segments, in file order.
    pub(crate) fn data_ranges(&self) -> Vec<DataRange> {
        let segments = self.loads().filter(|s| !s.flags.contains(elf::PF_X));
        segments
            .map(|segment| DataRange {
                range: segment.address..segment.address.saturating_add(segment.file_size),
                writable: segment.flags.contains(elf::PF_W),
            })
            .collect()
    }

    /// Reads a range and applies the relative relocations, with a load bias of zero.
    ///
    /// The caller has bounded the size.
    ///
    /// # Errors
    /// The range is not inside one segment or not inside the file, or reading fails.
    pub(crate) fn relocated(
        &self,
        what: &'static str,
        range: Range<u64>,
    ) -> Result<Vec<u8>, ElfError> {
        let size = range.end.saturating_sub(range.start);
        let outside = || ElfError::Corrupt {
            what,
            why: format!(
                "{size} bytes at address {:#x} are not in one segment",
                range.start
            ),
        };
        let (offset, available) = self.file_range(range.start).ok_or_else(outside)?;
        if size > available {
            return Err(outside());
        }
        let mut bytes = self.source.read_exact(what, offset, size)?;
        let is_big_endian = self.is_big_endian();
        self.relocations()?.for_each(|address, target| {
            let at = address.checked_sub(range.start);
            let at = at.and_then(|at| usize::try_from(at).ok());
            if let Some(at) = at
                && let Some(word) = bytes.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<8>)
            {
                *word = match is_big_endian {
                    true => target.to_be_bytes(),
                    false => target.to_le_bytes(),
                };
            }
        })?;
        Ok(bytes)
    }

    /// Returns the addresses of up to `limit` words that a relocation sets to `target`.
    ///
    /// # Errors
    /// The relocations cannot be read.
    pub(crate) fn relocated_to(&self, target: u64, limit: usize) -> Result<Vec<u64>, ElfError> {
        let mut found = Vec::new();
        self.relocations()?.for_each(|address, to| {
            if to == target && found.len() < limit {
                found.push(address);
            }
        })?;
        Ok(found)
    }

    fn relocations(&self) -> Result<Relocations<'_>, ElfError> {
        Relocations::read(self, &self.headers)
    }

    fn loads(&self) -> impl Iterator<Item = &Segment> {
        let segments = self.headers.segments.iter();
        segments.filter(|segment| segment.kind == elf::PT_LOAD)
    }

    /// Returns the file offset of an address, and how many bytes of its segment follow there.
    fn file_range(&self, address: u64) -> Option<(u64, u64)> {
        self.loads().find_map(|segment| {
            let into = address.checked_sub(segment.address)?;
            let available = segment
                .file_size
                .checked_sub(into)
                .filter(|&rest| rest > 0)?;
            Some((segment.offset.checked_add(into)?, available))
        })
    }
}

impl Memory for LoadedImage {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let Some((offset, available)) = self.file_range(address) else {
            return 0;
        };
        let length = usize::try_from(available).map_or(buffer.len(), |all| all.min(buffer.len()));
        let mut filled = 0;
        while let Some(rest) = buffer
            .get_mut(filled..length)
            .filter(|rest| !rest.is_empty())
        {
            match self
                .source
                .read_at(rest, offset.saturating_add(filled as u64))
            {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}
