//! The header of a file, and the sections after its records.

use std::io::{self, Read, Seek, SeekFrom};

use super::attribute::Attribute;
use super::error::{Corruption, PerfDataError};
use super::magic::MAGICS;
use super::numbers::{Numbers, Order};
use super::recording_info::{MAX_EVENTS, RecordingInfo};

/// Size of the header after magic and size.
const HEADER_BYTES: usize = 88;
/// Size of the bitmap of sections at the end of the header, which the first files did not have.
const FEATURES_BYTES: usize = 32;
/// Maximum number of bytes to read from a section.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// Valid sizes of an attribute with the section of its ids. The kernel allows a page.
const ATTRIBUTE_BYTES: std::ops::RangeInclusive<u64> = 64 + 16..=4096 + 16;
/// Size of a `perf_file_section`.
const FILE_SECTION_BYTES: usize = 16;
const FEATURES: u32 = 256;
/// Maximum number of ids of all events, each of which has one per CPU and thread.
const MAX_IDS: u64 = 1 << 20;

/// A range of the file (`perf_file_section`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSection {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// Metadata from the header and the sections of a file.
pub(super) struct PerfFileHeader {
    pub(super) info: RecordingInfo,
    /// Size of the records. `None` if perf was killed; the records then end with the file.
    pub(super) bytes: Option<u64>,
    pub(super) corruption: Option<Corruption>,
}

/// Reads the magic and the size of the header.
///
/// In files before 2010 the size reveals the byte order: it is small.
pub(super) fn magic(input: &mut impl Read) -> Result<(Order, u64), PerfDataError> {
    let mut bytes = [0; 16];
    input.read_exact(&mut bytes)?;
    let mut magic = [0; 8];
    magic.copy_from_slice(&bytes[..8]);
    let size = |order| Numbers::new(&bytes[8..], order).u64().unwrap_or(0);
    let order = match MAGICS.iter().position(|other| **other == magic) {
        Some(0) => Order::Little,
        Some(1) => Order::Big,
        Some(_) if size(Order::Little) <= u64::from(u32::MAX) => Order::Little,
        Some(_) => Order::Big,
        None => return Err(PerfDataError::Magic(magic)),
    };
    Ok((order, size(order)))
}

/// Reads attributes and sections, and positions `input` at the first record.
///
/// `input` is positioned after the magic and the header size, which is `size`.
pub(super) fn read<R: Read + Seek>(
    input: &mut R,
    order: Order,
    size: u64,
) -> Result<PerfFileHeader, PerfDataError> {
    let mut header = [0; HEADER_BYTES];
    // The header size includes magic and size.
    let is_without_features = size == (16 + HEADER_BYTES - FEATURES_BYTES) as u64;
    let present = match is_without_features {
        true => HEADER_BYTES - FEATURES_BYTES,
        false => HEADER_BYTES,
    };
    input.read_exact(&mut header[..present])?;
    let mut numbers = Numbers::new(&header, order);
    let truncated = PerfDataError::Header("it is truncated");
    let read = || {
        let attribute_bytes = numbers.u64()?;
        let (attributes, data) = (file_section(&mut numbers)?, file_section(&mut numbers)?);
        let _event_types = file_section(&mut numbers)?;
        let mut features = [0; 4];
        for word in &mut features {
            *word = numbers.u64()?;
        }
        Some((attribute_bytes, attributes, data, features))
    };
    let mut read = read;
    let (attribute_bytes, attributes, data, features) = read().ok_or(truncated)?;
    let mut info = RecordingInfo {
        order,
        ..RecordingInfo::default()
    };
    if !ATTRIBUTE_BYTES.contains(&attribute_bytes) {
        return Err(PerfDataError::Header("invalid size of the attributes"));
    }
    read_attributes(input, attribute_bytes, attributes, &mut info)?;
    let corruption = match data.size {
        0 => Some(Corruption::IncompleteHeader),
        _ => {
            let is_complete = read_sections(input, data, features, &mut info)?;
            (!is_complete).then_some(Corruption::Sections)
        }
    };
    info.name_events();
    let records = input.seek(SeekFrom::Start(data.offset));
    records.map_err(|_| PerfDataError::Header("invalid offset of the records"))?;
    Ok(PerfFileHeader {
        info,
        bytes: (data.size > 0).then_some(data.size),
        corruption,
    })
}

fn file_section(numbers: &mut Numbers<'_>) -> Option<FileSection> {
    Some(FileSection {
        offset: numbers.u64()?,
        size: numbers.u64()?,
    })
}

fn read_attributes<R: Read + Seek>(
    input: &mut R,
    attribute_bytes: u64,
    attributes: FileSection,
    info: &mut RecordingInfo,
) -> Result<(), PerfDataError> {
    let bytes = read_section(input, attributes)?;
    let mut remaining_ids = MAX_IDS;
    for entry in bytes
        .chunks_exact(attribute_bytes as usize)
        .take(MAX_EVENTS)
    {
        let (attribute, ids) = entry.split_at(entry.len() - FILE_SECTION_BYTES);
        let attribute = Attribute::parse(attribute, info.order);
        let mut attribute = attribute.ok_or(PerfDataError::Header("invalid attribute"))?;
        if let Some(ids) = file_section(&mut Numbers::new(ids, info.order)) {
            let ids = FileSection {
                size: ids.size.min(8 * remaining_ids),
                ..ids
            };
            attribute.set_ids(&read_section(input, ids)?, info.order);
            remaining_ids -= attribute.ids.len() as u64;
        }
        info.events.push(attribute);
    }
    match info.events.is_empty() {
        true => Err(PerfDataError::NoEvents),
        false => Ok(()),
    }
}

/// Reads the sections. Returns whether all of them are complete.
///
/// The list of their `perf_file_section`s follows the records, in the order of the section ids.
fn read_sections<R: Read + Seek>(
    input: &mut R,
    data: FileSection,
    features: [u64; 4],
    info: &mut RecordingInfo,
) -> Result<bool, PerfDataError> {
    let has = |feature: u32| features[feature as usize / 64] >> (feature % 64) & 1 != 0;
    let present: Vec<u32> = (0..FEATURES).filter(|&feature| has(feature)).collect();
    let Some(end) = data.offset.checked_add(data.size) else {
        return Err(PerfDataError::Header("invalid size of the records"));
    };
    let list = FileSection {
        offset: end,
        size: (present.len() * FILE_SECTION_BYTES) as u64,
    };
    let list = read_section(input, list)?;
    let mut numbers = Numbers::new(&list, info.order);
    let mut is_complete = true;
    for feature in present {
        let Some(section) = file_section(&mut numbers) else {
            return Ok(false);
        };
        let bytes = read_section(input, section)?;
        is_complete &= bytes.len() as u64 == section.size;
        info.section(feature, &bytes);
    }
    Ok(is_complete)
}

/// Reads a section up to the end of the file and [`MAX_SECTION_BYTES`].
fn read_section(input: &mut (impl Read + Seek), section: FileSection) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // Seeking fails for offsets beyond the maximum file size.
    if input.seek(SeekFrom::Start(section.offset)).is_ok() {
        let size = section.size.min(MAX_SECTION_BYTES);
        input.take(size).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
