//! The header of a file, and the sections behind its records.

use std::io::{self, Read, Seek, SeekFrom};

use super::attribute::Attribute;
use super::error::{Corruption, PerfDataError};
use super::numbers::{Numbers, Order};
use super::recording_info::{MAX_EVENTS, RecordingInfo};

/// How files begin: those of today in either byte order, and those of before 2010, which do not show it.
pub(super) const MAGICS: [&[u8; 8]; 3] = [b"PERFILE2", b"2ELIFREP", b"PERFFILE"];
/// Bytes of the header after magic and size.
const HEADER_BYTES: usize = 88;
/// Bytes of the bitmap of sections at its end, which the first files did not have.
const FEATURES_BYTES: usize = 32;
/// Bytes of a section that are read.
const MAX_SECTION_BYTES: u64 = 64 << 20;
/// Bytes of an attribute with the place of its ids. The kernel allows a page.
const ATTRIBUTE_BYTES: std::ops::RangeInclusive<u64> = 64 + 16..=4096 + 16;
/// Bytes of a place in the file.
const PLACE_BYTES: usize = 16;
const FEATURES: u32 = 256;
/// Ids of all events: one each for each CPU and thread.
const MAX_IDS: u64 = 1 << 20;

/// A range of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileSection {
    pub(super) offset: u64,
    pub(super) size: u64,
}

/// What a file says at its beginning, and behind its records.
pub(super) struct PerfFileHeader {
    pub(super) about: RecordingInfo,
    /// Bytes of the records; `None`: nobody ended the recording, and they go on to the end of the file.
    pub(super) bytes: Option<u64>,
    pub(super) damage: Option<Corruption>,
}

/// Reads magic and size of the header. In files of before 2010 the size shows the byte order: it is small.
pub(super) fn magic(input: &mut impl Read) -> Result<(Order, u64), PerfDataError> {
    let mut bytes = [0; 16];
    input.read_exact(&mut bytes)?;
    let mut magic = [0; 8];
    magic.copy_from_slice(&bytes[..8]);
    let size = |order| Numbers::new(&bytes[8..], order).u64().unwrap_or(0);
    let order = match MAGICS.iter().position(|known| **known == magic) {
        Some(0) => Order::Little,
        Some(1) => Order::Big,
        Some(_) if size(Order::Little) <= u64::from(u32::MAX) => Order::Little,
        Some(_) => Order::Big,
        None => return Err(PerfDataError::Magic(magic)),
    };
    Ok((order, size(order)))
}

/// Reads attributes and sections, and leaves the file at its records. `input` stands behind magic and header size, which is
/// `size`.
pub(super) fn read<R: Read + Seek>(
    input: &mut R,
    order: Order,
    size: u64,
) -> Result<PerfFileHeader, PerfDataError> {
    let mut header = [0; HEADER_BYTES];
    // Magic and size are a part of it.
    let is_without_features = size == (16 + HEADER_BYTES - FEATURES_BYTES) as u64;
    let present = match is_without_features {
        true => HEADER_BYTES - FEATURES_BYTES,
        false => HEADER_BYTES,
    };
    input.read_exact(&mut header[..present])?;
    let mut numbers = Numbers::new(&header, order);
    let cut = PerfDataError::Header("it is cut off");
    let read = || {
        let attribute_bytes = numbers.u64()?;
        let (attributes, data) = (place(&mut numbers)?, place(&mut numbers)?);
        let _event_types = place(&mut numbers)?;
        let mut features = [0; 4];
        for word in &mut features {
            *word = numbers.u64()?;
        }
        Some((attribute_bytes, attributes, data, features))
    };
    let mut read = read;
    let (attribute_bytes, attributes, data, features) = read().ok_or(cut)?;
    let mut about = RecordingInfo {
        order,
        ..RecordingInfo::default()
    };
    if !ATTRIBUTE_BYTES.contains(&attribute_bytes) {
        return Err(PerfDataError::Header("the size of its attributes"));
    }
    read_attributes(input, attribute_bytes, attributes, &mut about)?;
    let damage = match data.size {
        0 => Some(Corruption::Unended),
        _ => {
            let is_whole = read_sections(input, data, features, &mut about)?;
            (!is_whole).then_some(Corruption::Sections)
        }
    };
    about.name_events();
    let records = input.seek(SeekFrom::Start(data.offset));
    records.map_err(|_| PerfDataError::Header("the place of its records"))?;
    Ok(PerfFileHeader {
        about,
        bytes: (data.size > 0).then_some(data.size),
        damage,
    })
}

fn place(numbers: &mut Numbers<'_>) -> Option<FileSection> {
    Some(FileSection {
        offset: numbers.u64()?,
        size: numbers.u64()?,
    })
}

fn read_attributes<R: Read + Seek>(
    input: &mut R,
    each: u64,
    all: FileSection,
    about: &mut RecordingInfo,
) -> Result<(), PerfDataError> {
    let bytes = read_place(input, all)?;
    let mut room = MAX_IDS;
    for entry in bytes.chunks_exact(each as usize).take(MAX_EVENTS) {
        let (attribute, ids) = entry.split_at(entry.len() - PLACE_BYTES);
        let attribute = Attribute::parse(attribute, about.order);
        let mut attribute = attribute.ok_or(PerfDataError::Header("an attribute"))?;
        if let Some(ids) = place(&mut Numbers::new(ids, about.order)) {
            let ids = FileSection {
                size: ids.size.min(8 * room),
                ..ids
            };
            attribute.set_ids(&read_place(input, ids)?, about.order);
            room -= attribute.ids.len() as u64;
        }
        about.events.push(attribute);
    }
    match about.events.is_empty() {
        true => Err(PerfDataError::NoEvents),
        false => Ok(()),
    }
}

/// The sections' places follow the records, in the order of the sections' numbers. Tells whether all were there.
fn read_sections<R: Read + Seek>(
    input: &mut R,
    data: FileSection,
    features: [u64; 4],
    about: &mut RecordingInfo,
) -> Result<bool, PerfDataError> {
    let has = |feature: u32| features[feature as usize / 64] >> (feature % 64) & 1 != 0;
    let present: Vec<u32> = (0..FEATURES).filter(|&feature| has(feature)).collect();
    let Some(end) = data.offset.checked_add(data.size) else {
        return Err(PerfDataError::Header("the size of its records"));
    };
    let places = FileSection {
        offset: end,
        size: (present.len() * PLACE_BYTES) as u64,
    };
    let places = read_place(input, places)?;
    let mut numbers = Numbers::new(&places, about.order);
    let mut is_whole = true;
    for feature in present {
        let Some(at) = place(&mut numbers) else {
            return Ok(false);
        };
        let bytes = read_place(input, at)?;
        is_whole &= bytes.len() as u64 == at.size;
        about.section(feature, &bytes);
    }
    Ok(is_whole)
}

/// What is there of a range, up to the limit.
fn read_place(input: &mut (impl Read + Seek), place: FileSection) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // No file reaches as far as some offsets.
    if input.seek(SeekFrom::Start(place.offset)).is_ok() {
        let size = place.size.min(MAX_SECTION_BYTES);
        input.take(size).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}
