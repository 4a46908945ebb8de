//! The DWARF sections of a file: read on demand, or copied into memory at once.

use std::sync::Arc;

use super::headers::{Headers, Section};
use super::source::Source;
use super::{ElfError, section_data};
use crate::dwarf::{DwarfSections, MAX_DWARF_BYTES, PackageSections, SplitSections};

const WHAT: &str = "debug information";

fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a Section> {
    all(headers, name).next()
}

/// Returns all sections of a name. A split unit's file has one `.debug_info.dwo` per type unit.
fn all<'a>(headers: &'a Headers, name: &str) -> impl Iterator<Item = &'a Section> {
    let sections = headers.sections.iter();
    sections.filter(move |section| section.is_named(name) && section.has_data())
}

pub(super) fn has_debug_info(headers: &Headers) -> bool {
    find(headers, ".debug_info").is_some()
}

pub(super) fn sections(source: &Source, headers: &Arc<Headers>) -> Option<DwarfSections> {
    let is_big_endian = headers.endian == object::Endianness::Big;
    let section = |name| {
        find(headers, name).map(|section| LazySection {
            source: source.clone(),
            headers: headers.clone(),
            section: section.clone(),
        })
    };
    has_debug_info(headers).then(|| DwarfSections::lazy(is_big_endian, &source.memory, section))
}

pub(super) fn copied_sections(
    source: &Source,
    headers: &Headers,
) -> Result<Option<DwarfSections>, ElfError> {
    load(source, headers, ".debug_info", |endian, section| {
        DwarfSections::load_charged(endian, source.memory.clone(), section)
    })
}

pub(super) fn split_sections(
    source: &Source,
    headers: &Headers,
) -> Result<Option<SplitSections>, ElfError> {
    load(source, headers, ".debug_info.dwo", |endian, section| {
        SplitSections::load_charged(endian, source.memory.clone(), section)
    })
}

pub(super) fn package_sections(
    source: &Source,
    headers: &Headers,
) -> Result<Option<PackageSections>, ElfError> {
    load(source, headers, ".debug_cu_index", |endian, section| {
        PackageSections::load(endian, section)
    })
}

/// Calls `build` with the byte order (`true` if big-endian) and a function that reads a section.
///
/// Returns `None` if the section `required` is missing.
fn load<T>(
    source: &Source,
    headers: &Headers,
    required: &str,
    build: impl FnOnce(
        bool,
        &mut dyn FnMut(&'static str) -> Result<Vec<u8>, ElfError>,
    ) -> Result<T, ElfError>,
) -> Result<Option<T>, ElfError> {
    if find(headers, required).is_none() {
        return Ok(None);
    }
    let mut total: u64 = 0;
    let is_big_endian = headers.endian == object::Endianness::Big;
    let mut read = |section| -> Result<_, ElfError> {
        let left = MAX_DWARF_BYTES.saturating_sub(total);
        let bytes =
            section_data(source, headers, section, WHAT, left).map_err(|error| match error {
                ElfError::TooLarge { what, size, .. } => ElfError::TooLarge {
                    what,
                    size: total.saturating_add(size),
                    limit: MAX_DWARF_BYTES,
                },
                error => error,
            })?;
        total += bytes.len() as u64;
        Ok(bytes)
    };
    let mut section = |name| {
        let mut sections = all(headers, name);
        let mut bytes = sections.next().map_or(Ok(Vec::new()), &mut read)?;
        if name.ends_with(".dwo") {
            for section in sections {
                bytes.extend(read(section)?);
            }
        }
        Ok(bytes)
    };
    build(is_big_endian, &mut section).map(Some)
}

/// A section that is read on demand.
#[derive(Debug)]
pub(crate) struct LazySection {
    source: Source,
    headers: Arc<Headers>,
    section: Section,
}

impl LazySection {
    /// Reads and decompresses the section.
    ///
    /// # Errors
    /// The section exceeds `limit` bytes, is outside the file, or does not decompress.
    pub(crate) fn whole(&self, limit: u64) -> Result<Vec<u8>, ElfError> {
        section_data(&self.source, &self.headers, &self.section, WHAT, limit)
    }

    /// Returns the size in bytes, or `None` if the section is compressed: it has no readable parts.
    pub(crate) fn size(&self) -> Option<u64> {
        (!self.section.is_compressed()).then_some(self.section.size)
    }

    /// Reads a part of a section that is not compressed.
    ///
    /// # Errors
    /// The part is outside the file, or reading fails.
    pub(crate) fn part(&self, offset: u64, size: u64) -> Result<Vec<u8>, ElfError> {
        let start = self.section.offset.saturating_add(offset);
        self.source.read_exact(WHAT, start, size)
    }
}
