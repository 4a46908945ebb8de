//! The units of `.debug_info` by offset and by address. A unit is parsed on demand.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use gimli::{
    Abbreviations, ArangeHeader, AttributeValue, DebugAbbrevOffset, DebugInfoOffset, Reader,
    ReaderOffsetId, SectionId, UnitOffset,
};

use super::DwarfError;
use super::sections::DwarfSections;
use super::step_budget::{BudgetedReader, KEEP_COST};
use super::unit::{Bases, Unit};
use crate::demangle::KEPT_NAME_BYTES;

/// Minimal size of a unit: length, version, abbreviation offset and address size.
const MIN_UNIT_BYTES: u64 = 11;
/// Cost of a unit, in steps. Each unit takes about a hundred bytes, parsed or not.
pub(super) const UNIT_COST: u64 = 4 * KEEP_COST;
/// Cost of keeping abbreviations, per step for reading them.
///
/// An abbreviation of the minimal size of five bytes takes 130 bytes of memory.
const ABBREVIATIONS_COST: u64 = 3;

/// Offset and size of a unit, and its bytes after they are read.
#[derive(Debug)]
pub(super) struct UnitSlice {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Whether the unit may have code; type units do not.
    has_code: bool,
    pub(super) info: OnceLock<Vec<u8>>,
    pub(super) line: OnceLock<Vec<u8>>,
    /// The sections of the split unit of a skeleton.
    pub(super) split: OnceLock<Box<DwarfSections>>,
}

/// Finds all units by their lengths.
fn unit_slices(sections: &DwarfSections) -> Result<Vec<UnitSlice>, DwarfError> {
    let end = sections.size(&sections.info)?;
    let mut slices = Vec::new();
    let mut offset = 0;
    while offset < end {
        sections.budget.charge(UNIT_COST)?;
        // The length of up to 12 bytes, the version, the unit type.
        let (start, read) = sections.start::<15>(&sections.info, offset)?;
        let mut start = sections.reader(start.get(..read).unwrap_or_default());
        let (length, format) = start.read_initial_length()?;
        let version = start.read_u16()?;
        let kind = match version {
            5.. => gimli::DwUt(start.read_u8()?),
            _ => gimli::DW_UT_compile,
        };
        let size = (length as u64).saturating_add(u64::from(format.initial_length_size()));
        if !(MIN_UNIT_BYTES..=end - offset).contains(&size) {
            return Err(gimli::Error::UnexpectedEof(ReaderOffsetId(offset)).into());
        }
        slices.push(UnitSlice {
            offset,
            size,
            has_code: matches!(
                kind,
                gimli::DW_UT_compile | gimli::DW_UT_skeleton | gimli::DW_UT_split_compile
            ),
            info: OnceLock::new(),
            line: OnceLock::new(),
            split: OnceLock::new(),
        });
        offset += size;
    }
    Ok(slices)
}

/// An address range of a unit.
struct UnitRange {
    start: u64,
    end: u64,
    unit: usize,
    /// Lowest start of this range and all that follow.
    min_start: u64,
}

/// All units of a file.
pub(super) struct Units<'a> {
    pub(super) sections: &'a DwarfSections,
    /// The sections for addresses and ranges. The other sections are empty in it.
    pub(super) dwarf: gimli::Dwarf<BudgetedReader<'a>>,
    /// The units of the supplementary file.
    supplementary: Option<Box<Units<'a>>>,
    /// The bases of the skeleton, in the file of a split unit.
    pub(super) skeleton: Option<Bases>,
    slices: &'a [UnitSlice],
    units: Vec<OnceLock<Result<Box<Unit<'a>>, DwarfError>>>,
    /// Sorted by end.
    ranges: Vec<UnitRange>,
    /// Abbreviations by offset: many units share them.
    abbreviations: Mutex<HashMap<usize, Arc<Abbreviations>>>,
}

impl<'a> Units<'a> {
    /// Reads the units of a program and their address ranges.
    pub(super) fn with_ranges(sections: &'a DwarfSections) -> Result<Self, DwarfError> {
        let mut units = Self::new(sections)?;
        let supplementary = sections.supplementary.as_deref().map(Self::new);
        units.supplementary = supplementary.transpose()?.map(Box::new);
        units.ranges = units.find_ranges()?;
        Ok(units)
    }

    /// Reads the units of the file of a split unit.
    pub(super) fn split(
        &self,
        sections: &'a DwarfSections,
        skeleton: &Unit<'a>,
    ) -> Result<Self, DwarfError> {
        let mut units = Self::new(sections)?;
        units.dwarf.make_dwo(&self.dwarf);
        units.skeleton = Some(Bases::from_skeleton(skeleton));
        Ok(units)
    }

    /// Reads the units without their address ranges.
    pub(super) fn new(sections: &'a DwarfSections) -> Result<Self, DwarfError> {
        let slices = match sections.units.get() {
            Some(slices) => slices,
            None => {
                let slices = unit_slices(sections)?;
                sections.units.get_or_init(|| slices)
            }
        };
        let dwarf = gimli::Dwarf::load(|id| match id {
            SectionId::DebugAbbrev => sections.whole(&sections.abbrev),
            SectionId::DebugAddr => sections.whole(&sections.addr),
            SectionId::DebugAranges => sections.whole(&sections.aranges),
            SectionId::DebugRanges => sections.whole(&sections.ranges),
            SectionId::DebugRngLists => sections.whole(&sections.rnglists),
            SectionId::DebugStrOffsets => sections.whole(&sections.str_offsets),
            _ => Ok(sections.reader(&[])),
        })?;
        Ok(Self {
            sections,
            dwarf,
            supplementary: None,
            skeleton: None,
            slices,
            units: slices.iter().map(|_| OnceLock::new()).collect(),
            ranges: Vec::new(),
            abbreviations: Mutex::default(),
        })
    }

    /// Reads address ranges from `.debug_aranges`, or else from the unit itself.
    ///
    /// Some compilers do not write `.debug_aranges`.
    fn find_ranges(&self) -> Result<Vec<UnitRange>, DwarfError> {
        let mut ranges = Vec::new();
        let mut has_aranges = vec![false; self.slices.len()];
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Some(header) = headers.next()? {
            let offset = header.debug_info_offset().0 as u64;
            let Ok(unit) = self
                .slices
                .binary_search_by_key(&offset, |slice| slice.offset)
            else {
                continue;
            };
            let before = ranges.len();
            self.add_aranges(&header, unit, &mut ranges)?;
            if let Some(has_aranges) = has_aranges.get_mut(unit) {
                *has_aranges |= ranges.len() > before;
            }
        }
        for (index, (slice, has_aranges)) in self.slices.iter().zip(has_aranges).enumerate() {
            if has_aranges || !slice.has_code {
                continue;
            }
            let unit = match self.unit(index) {
                Ok(unit) => unit,
                Err(DwarfError::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            unit.ranges.each(&self.dwarf, &unit.unit, |start, end| {
                ranges.push(UnitRange::new(start, end, index));
            })?;
        }
        ranges.sort_unstable_by_key(|range| (range.end, range.unit));
        let mut min_start = u64::MAX;
        for range in ranges.iter_mut().rev() {
            min_start = min_start.min(range.start);
            range.min_start = min_start;
        }
        Ok(ranges)
    }

    fn add_aranges(
        &self,
        header: &ArangeHeader<BudgetedReader<'a>>,
        unit: usize,
        ranges: &mut Vec<UnitRange>,
    ) -> Result<(), DwarfError> {
        let mut entries = header.entries();
        while let Some(entry) = entries.next().transpose() {
            self.sections.budget.charge(KEEP_COST)?;
            // An error is a range that wraps around. The entries after it are valid; in a truncated
            // list none follow.
            let Ok(entry) = entry else { continue };
            let range = entry.range();
            if 1 < range.begin && range.begin < range.end {
                ranges.push(UnitRange::new(range.begin, range.end, unit));
            }
        }
        Ok(())
    }

    /// Returns the units whose ranges contain an address, usually one.
    pub(super) fn containing(
        &self,
        address: u64,
    ) -> impl Iterator<Item = Result<&Unit<'a>, DwarfError>> {
        let from = self.ranges.partition_point(|range| range.end <= address);
        let ranges = self.ranges.get(from..).unwrap_or_default().iter();
        ranges
            .take_while(move |range| range.min_start <= address)
            .filter_map(move |range| match self.sections.budget.charge(1) {
                Ok(()) => (range.start <= address).then(|| self.unit(range.unit)),
                Err(error) => Some(Err(error)),
            })
    }

    /// Returns the first unit that may have code.
    pub(super) fn first_with_code(&self) -> Option<Result<&Unit<'a>, DwarfError>> {
        let index = self.slices.iter().position(|slice| slice.has_code)?;
        Some(self.unit(index))
    }

    /// Returns the units of the supplementary file.
    pub(super) fn supplementary(&self) -> Option<&Self> {
        self.supplementary.as_deref()
    }

    /// Returns the unit at an offset of `.debug_info`, and the offset in the unit.
    pub(super) fn unit_at(
        &self,
        offset: DebugInfoOffset,
    ) -> Result<(&Unit<'a>, UnitOffset), DwarfError> {
        let no_entry = gimli::Error::NoEntryAtGivenOffset(offset.0 as u64);
        let after = self
            .slices
            .partition_point(|slice| slice.offset <= offset.0 as u64);
        let index = after.checked_sub(1).ok_or(no_entry)?;
        let start = self.slices.get(index).map_or(0, |slice| slice.offset);
        Ok((
            self.unit(index)?,
            UnitOffset((offset.0 as u64 - start) as usize),
        ))
    }

    fn unit(&self, index: usize) -> Result<&Unit<'a>, DwarfError> {
        let no_unit = gimli::Error::MissingUnitDie;
        let unit = self.units.get(index).ok_or(no_unit)?;
        let unit = unit.get_or_init(|| {
            let slice = self.slices.get(index).ok_or(no_unit)?;
            Unit::read(self, slice).map(Box::new)
        });
        unit.as_deref().map_err(Clone::clone)
    }

    pub(super) fn abbreviations(
        &self,
        offset: DebugAbbrevOffset,
    ) -> Result<Arc<Abbreviations>, DwarfError> {
        let cache = self.abbreviations.lock();
        let mut cache = cache.unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = cache.get(&offset.0) {
            return Ok(cached.clone());
        }
        let read = || self.dwarf.debug_abbrev.abbreviations(offset);
        let budget = &self.sections.budget;
        let read = Arc::new(budget.charge_kept(ABBREVIATIONS_COST, read)?);
        cache.insert(offset.0, read.clone());
        Ok(read)
    }

    /// Returns the string of an attribute, truncated to [`KEPT_NAME_BYTES`].
    pub(super) fn string(
        &self,
        unit: &Unit<'a>,
        value: &AttributeValue<BudgetedReader<'a>>,
    ) -> Result<Option<Box<[u8]>>, DwarfError> {
        let sections = self.sections;
        let (section, offset) = match value {
            AttributeValue::String(string) => {
                let string = string.bytes()?;
                let string = string.get(..KEPT_NAME_BYTES).unwrap_or(string);
                return Ok(Some(string.into()));
            }
            AttributeValue::DebugStrRef(offset) => (&sections.str, offset.0),
            AttributeValue::DebugStrRefSup(offset) => match self.supplementary() {
                Some(supplementary) => {
                    let sections = supplementary.sections;
                    return sections.string(&sections.str, offset.0);
                }
                None => return Ok(None),
            },
            AttributeValue::DebugLineStrRef(offset) => (&sections.line_str, offset.0),
            AttributeValue::DebugStrOffsetsIndex(index) => {
                let offset = self.dwarf.debug_str_offsets.get_str_offset(
                    unit.unit.header.format(),
                    unit.unit.str_offsets_base,
                    *index,
                )?;
                (&sections.str, offset.0)
            }
            _ => return Ok(None),
        };
        sections.string(section, offset)
    }
}

impl UnitRange {
    fn new(start: u64, end: u64, unit: usize) -> Self {
        Self {
            start,
            end,
            unit,
            min_start: start,
        }
    }
}
