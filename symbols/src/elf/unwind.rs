//! The sections that an unwinder needs.

use std::ops::Range;

use object::elf;

use super::headers::{Headers, Section as Header};
use super::source::Source;
use super::{ElfError, check_size};

/// Limit of one unwind section, in bytes. Chromium's `.eh_frame` has 12 MB.
const MAX_UNWIND_BYTES: u64 = 64 << 20;

/// The contents and the address of a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Address before any load bias (SVMA).
    pub address: u64,
    /// The decompressed bytes.
    pub data: Vec<u8>,
}

/// The sections for unwinding through a file. All addresses are SVMAs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwindSections {
    /// The section `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// The section `.eh_frame_hdr`, or `PT_GNU_EH_FRAME` in a file without section headers.
    pub eh_frame_hdr: Option<Section>,
    /// The section `.debug_frame`.
    pub debug_frame: Option<Section>,
    /// The address range of `.text`.
    pub text_range: Option<Range<u64>>,
    /// The address range of `.got`.
    pub got_range: Option<Range<u64>>,
}

pub(super) fn sections(source: &Source, headers: &Headers) -> Result<UnwindSections, ElfError> {
    Ok(UnwindSections {
        eh_frame: section(source, headers, ".eh_frame")?,
        eh_frame_hdr: eh_frame_hdr(source, headers)?,
        debug_frame: section(source, headers, ".debug_frame")?,
        text_range: range(headers, b".text"),
        got_range: range(headers, b".got"),
    })
}

fn find<'a>(headers: &'a Headers, name: &[u8]) -> Option<&'a Header> {
    headers.sections.iter().find(|section| section.name == name)
}

/// Returns the address range of a section.
pub(super) fn range(headers: &Headers, name: &[u8]) -> Option<Range<u64>> {
    find(headers, name).map(|section| section.address..section.end())
}

pub(super) fn section(
    source: &Source,
    headers: &Headers,
    name: &'static str,
) -> Result<Option<Section>, ElfError> {
    match find(headers, name.as_bytes()).filter(|section| section.has_data()) {
        Some(header) => {
            let data = super::section_data(source, headers, header, name, MAX_UNWIND_BYTES)?;
            Ok(Some(Section {
                address: header.address,
                data,
            }))
        }
        None => Ok(None),
    }
}

pub(super) fn eh_frame_hdr(
    source: &Source,
    headers: &Headers,
) -> Result<Option<Section>, ElfError> {
    match section(source, headers, ".eh_frame_hdr")? {
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
    check_size(what, segment.file_size, MAX_UNWIND_BYTES)?;
    let data = source.read_exact(what, segment.offset, segment.file_size)?;
    Ok(Some(Section {
        address: segment.address,
        data,
    }))
}
