//! The sections of DWARF.

use super::headers::{Headers, Section};
use super::source::Source;
use super::{ElfError, section_data};
use crate::dwarf::{DwarfSections, PackageSections, SplitSections};

/// Most bytes of all sections together, decompressed: what libcoreclr has, six times.
pub const MAX_DWARF_BYTES: u64 = 256 << 20;

const WHAT: &str = "debug information";

fn find<'a>(headers: &'a Headers, name: &str) -> Option<&'a Section> {
    let mut sections = headers.sections.iter();
    sections.find(|section| section.name == name.as_bytes() && section.has_data())
}

pub(super) fn is_there(headers: &Headers) -> bool {
    find(headers, ".debug_info").is_some()
}

pub(super) fn sections(
    source: Source<'_>,
    headers: &Headers,
) -> Result<Option<DwarfSections>, ElfError> {
    load(source, headers, ".debug_info", |endian, section| {
        DwarfSections::load(endian, section)
    })
}

pub(super) fn split_sections(
    source: Source<'_>,
    headers: &Headers,
) -> Result<Option<SplitSections>, ElfError> {
    load(source, headers, ".debug_info.dwo", |endian, section| {
        SplitSections::load(endian, section)
    })
}

pub(super) fn package_sections(
    source: Source<'_>,
    headers: &Headers,
) -> Result<Option<PackageSections>, ElfError> {
    load(source, headers, ".debug_cu_index", |endian, section| {
        PackageSections::load(endian, section)
    })
}

/// What `take` makes of the byte order (whether it is big-endian) and of sections by name; `None`: the most important one is not there.
fn load<T>(
    source: Source<'_>,
    headers: &Headers,
    most_important: &str,
    take: impl FnOnce(
        bool,
        &mut dyn FnMut(&'static str) -> Result<Vec<u8>, ElfError>,
    ) -> Result<T, ElfError>,
) -> Result<Option<T>, ElfError> {
    if find(headers, most_important).is_none() {
        return Ok(None);
    }
    let mut taken: u64 = 0;
    let is_big_endian = headers.endian == object::Endianness::Big;
    let mut section = |name| {
        let Some(section) = find(headers, name) else {
            return Ok(Vec::new());
        };
        let left = MAX_DWARF_BYTES.saturating_sub(taken);
        let bytes =
            section_data(source, headers, section, WHAT, left).map_err(|error| match error {
                ElfError::TooLarge { what, size, .. } => ElfError::TooLarge {
                    what,
                    size: taken.saturating_add(size),
                    limit: MAX_DWARF_BYTES,
                },
                error => error,
            })?;
        taken += bytes.len() as u64;
        Ok(bytes)
    };
    take(is_big_endian, &mut section).map(Some)
}
