//! The sections that an unwinder needs.

use std::ops::Range;

use bytes::Bytes;
use object::elf;

use super::headers::{Headers, Section as Header};
use super::source::Source;
use super::{ElfError, check_size};

/// Limit of a section that the loader maps, in bytes. Chromium's `.eh_frame` has 12 MB.
pub(super) const MAX_MAPPED_BYTES: u64 = 32 << 20;
/// Limit of `.debug_frame`, in bytes. It may be compressed, which Go does. kubelet has 5 MB.
const MAX_DEBUG_FRAME_BYTES: u64 = 16 << 20;
/// Limit of `.eh_frame` for the ranges of functions, which are not read while capturing.
pub(super) const MAX_RANGES_BYTES: u64 = 64 << 20;

/// The contents and the address of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Address before any load bias (SVMA).
    pub address: u64,
    /// The decompressed bytes.
    pub data: Bytes,
}

/// The sections for unwinding through a file. All addresses are SVMAs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwindSections {
    /// The section `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// The section `.eh_frame_hdr`, or `PT_GNU_EH_FRAME` in a file without section headers.
    pub eh_frame_hdr: Option<Section>,
    /// The address range of `.text`.
    pub text_range: Option<Range<u64>>,
    /// The address range of `.got`.
    pub got_range: Option<Range<u64>>,
}

pub(super) fn sections(source: &Source, headers: &Headers) -> Result<UnwindSections, ElfError> {
    Ok(UnwindSections {
        eh_frame: mapped(source, headers, ".eh_frame", MAX_MAPPED_BYTES)?,
        eh_frame_hdr: eh_frame_hdr(source, headers)?,
        text_range: range(headers, b".text"),
        got_range: range(headers, b".got"),
    })
}

/// Reads `.debug_frame`, which the loader does not map.
pub(super) fn debug_frame(source: &Source, headers: &Headers) -> Result<Option<Section>, ElfError> {
    let (name, limit) = (".debug_frame", MAX_DEBUG_FRAME_BYTES);
    let header = find(headers, name.as_bytes());
    let section = header.map(|header| read(source, headers, header, name, limit));
    section.transpose()
}

/// Finds a section that has data.
fn find<'a>(headers: &'a Headers, name: &[u8]) -> Option<&'a Header> {
    let mut sections = headers.sections.iter();
    sections.find(|section| section.name == name && section.has_data())
}

/// Returns whether a section has data.
pub(super) fn has(headers: &Headers, name: &[u8]) -> bool {
    find(headers, name).is_some()
}

/// Returns the address range of a section.
pub(super) fn range(headers: &Headers, name: &[u8]) -> Option<Range<u64>> {
    let mut sections = headers.sections.iter();
    let section = sections.find(|section| section.name == name)?;
    Some(section.address..section.end())
}

fn read(
    source: &Source,
    headers: &Headers,
    header: &Header,
    name: &'static str,
    limit: u64,
) -> Result<Section, ElfError> {
    Ok(Section {
        address: header.address,
        data: super::section_data(source, headers, header, name, limit)?.into(),
    })
}

/// Reads a section that the loader maps, if the file has it.
pub(super) fn mapped(
    source: &Source,
    headers: &Headers,
    name: &'static str,
    limit: u64,
) -> Result<Option<Section>, ElfError> {
    let header = find(headers, name.as_bytes()).filter(|header| header.is_mapped());
    let section = header.map(|header| read(source, headers, header, name, limit));
    section.transpose()
}

pub(super) fn eh_frame_hdr(
    source: &Source,
    headers: &Headers,
) -> Result<Option<Section>, ElfError> {
    match mapped(source, headers, ".eh_frame_hdr", MAX_MAPPED_BYTES)? {
        Some(section) => Ok(Some(section)),
        None => eh_frame_hdr_by_segment(source, headers),
    }
}

fn eh_frame_hdr_by_segment(
    source: &Source,
    headers: &Headers,
) -> Result<Option<Section>, ElfError> {
    let what = "PT_GNU_EH_FRAME";
    // A file with section headers but without this section is a separate debug file, which does
    // not have the contents of the segment.
    let segment = headers
        .segments
        .iter()
        .find(|segment| segment.kind == elf::PT_GNU_EH_FRAME);
    let Some(segment) = segment.filter(|_| headers.sections.is_empty()) else {
        return Ok(None);
    };
    check_size(what, segment.file_size, MAX_MAPPED_BYTES)?;
    let data = source.read_exact(what, segment.offset, segment.file_size)?;
    Ok(Some(Section {
        address: segment.address,
        data: data.into(),
    }))
}
