//! The units of `.debug_info`: where they are, which of them hold an address. One is read when something in it is asked for.

use std::cell::{OnceCell, RefCell};
use std::collections::HashMap;
use std::sync::Arc;

use gimli::{
    Abbreviations, ArangeHeader, AttributeValue, DebugAbbrevOffset, DebugInfoOffset, Reader,
    ReaderOffsetId, SectionId, UnitOffset,
};

use super::DwarfError;
use super::sections::DwarfSections;
use super::step_budget::{BudgetedReader, KEEP_COST};
use super::unit::{Bases, Unit};
use crate::demangle::KEPT_NAME_BYTES;

/// What the length, version, table of abbreviations and size of an address take.
const MIN_UNIT_BYTES: u64 = 11;
/// A hundred bytes or so of each unit are kept, whether it is read or not.
const UNIT_COST: u64 = 4 * KEEP_COST;

/// For each read: an abbreviation of the least five bytes takes 130.
const ABBREVIATIONS_COST: u64 = 3;

/// Where a unit is, and its bytes once they were read.
#[derive(Debug)]
pub(super) struct UnitSlice {
    pub(super) offset: u64,
    pub(super) size: u64,
    /// Whether it may hold code; units of types do not.
    has_code: bool,
    pub(super) info: OnceCell<Vec<u8>>,
    pub(super) line: OnceCell<Vec<u8>>,
    /// Of a skeleton, what is in another file.
    pub(super) split: OnceCell<Box<DwarfSections<'static>>>,
}

/// Goes from unit to unit by their lengths.
fn unit_slices(sections: &DwarfSections<'_>) -> Result<Vec<UnitSlice>, DwarfError> {
    let end = sections.size(&sections.info)?;
    let mut places = Vec::new();
    let mut offset = 0;
    while offset < end {
        sections.budget.charge(UNIT_COST)?;
        // A length of up to 12 bytes, the version, the kind of unit.
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
        places.push(UnitSlice {
            offset,
            size,
            has_code: matches!(
                kind,
                gimli::DW_UT_compile | gimli::DW_UT_skeleton | gimli::DW_UT_split_compile
            ),
            info: OnceCell::new(),
            line: OnceCell::new(),
            split: OnceCell::new(),
        });
        offset += size;
    }
    Ok(places)
}

/// Addresses of a unit.
struct UnitRange {
    start: u64,
    end: u64,
    unit: usize,
    /// Of this range and all behind it.
    min_start: u64,
}

/// All units.
pub(super) struct Units<'a> {
    pub(super) sections: &'a DwarfSections<'a>,
    /// For addresses and ranges; the other sections are not in it.
    pub(super) dwarf: gimli::Dwarf<BudgetedReader<'a>>,
    /// Of what `dwz` moved to another file.
    supplementary: Option<Box<Units<'a>>>,
    /// Of a split unit.
    pub(super) skeleton: Option<Bases>,
    slices: &'a [UnitSlice],
    units: Vec<OnceCell<Result<Box<Unit<'a>>, DwarfError>>>,
    /// By end.
    ranges: Vec<UnitRange>,
    /// By their offset: many units share a table.
    abbreviations: RefCell<HashMap<usize, Arc<Abbreviations>>>,
}

impl<'a> Units<'a> {
    /// All of a program.
    pub(super) fn with_ranges(sections: &'a DwarfSections<'a>) -> Result<Self, DwarfError> {
        let mut units = Self::new(sections)?;
        let supplementary = sections.supplementary.as_deref().map(Self::new);
        units.supplementary = supplementary.transpose()?.map(Box::new);
        units.ranges = units.find_ranges()?;
        Ok(units)
    }

    /// Those of the file that has the functions of a split unit.
    pub(super) fn split(
        &self,
        sections: &'a DwarfSections<'a>,
        skeleton: &Unit<'a>,
    ) -> Result<Self, DwarfError> {
        let mut units = Self::new(sections)?;
        units.dwarf.make_dwo(&self.dwarf);
        units.skeleton = Some(Bases::from_skeleton(skeleton));
        Ok(units)
    }

    /// By offset only.
    pub(super) fn new(sections: &'a DwarfSections<'a>) -> Result<Self, DwarfError> {
        let places = match sections.units.get() {
            Some(places) => places,
            None => {
                let places = unit_slices(sections)?;
                sections.units.get_or_init(|| places)
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
            slices: places,
            units: places.iter().map(|_| OnceCell::new()).collect(),
            ranges: Vec::new(),
            abbreviations: RefCell::default(),
        })
    }

    /// By `.debug_aranges`, which some compilers make and some do not; of units that it does not tell of, by the unit itself.
    fn find_ranges(&self) -> Result<Vec<UnitRange>, DwarfError> {
        let mut ranges = Vec::new();
        let mut is_told = vec![false; self.slices.len()];
        let mut headers = self.dwarf.debug_aranges.headers();
        while let Some(header) = headers.next()? {
            let offset = header.debug_info_offset().0 as u64;
            let Ok(unit) = self
                .slices
                .binary_search_by_key(&offset, |place| place.offset)
            else {
                continue;
            };
            let before = ranges.len();
            self.add_aranges(&header, unit, &mut ranges)?;
            if let Some(is_told) = is_told.get_mut(unit) {
                *is_told |= ranges.len() > before;
            }
        }
        for (index, (place, is_told)) in self.slices.iter().zip(is_told).enumerate() {
            if is_told || !place.has_code {
                continue;
            }
            let unit = match self.unit(index) {
                Ok(unit) => unit,
                Err(DwarfError::Corrupt(_)) => continue,
                Err(error) => return Err(error),
            };
            unit.ranges.each(&self.dwarf, &unit.unit, |begin, end| {
                ranges.push(UnitRange::new(begin, end, index));
            })?;
        }
        ranges.sort_unstable_by_key(|range| (range.end, range.unit));
        let mut min_begin = u64::MAX;
        for range in ranges.iter_mut().rev() {
            min_begin = min_begin.min(range.start);
            range.min_start = min_begin;
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
            // One that wraps around; those behind it are read all the same, of a cut list there are none.
            let Ok(entry) = entry else { continue };
            let range = entry.range();
            if 1 < range.begin && range.begin < range.end {
                ranges.push(UnitRange::new(range.begin, range.end, unit));
            }
        }
        Ok(())
    }

    /// The units that say they hold an address: one as a rule.
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

    /// The first that may hold code.
    pub(super) fn first_with_code(&self) -> Option<Result<&Unit<'a>, DwarfError>> {
        let index = self.slices.iter().position(|place| place.has_code)?;
        Some(self.unit(index))
    }

    /// What `dwz` moved to another file.
    pub(super) fn supplementary(&self) -> Option<&Self> {
        self.supplementary.as_deref()
    }

    /// The unit at an offset of `.debug_info`, and the offset in it.
    pub(super) fn unit_at(
        &self,
        offset: DebugInfoOffset,
    ) -> Result<(&Unit<'a>, UnitOffset), DwarfError> {
        let none = gimli::Error::NoEntryAtGivenOffset(offset.0 as u64);
        let after = self
            .slices
            .partition_point(|place| place.offset <= offset.0 as u64);
        let index = after.checked_sub(1).ok_or(none)?;
        let start = self.slices.get(index).map_or(0, |place| place.offset);
        Ok((
            self.unit(index)?,
            UnitOffset((offset.0 as u64 - start) as usize),
        ))
    }

    fn unit(&self, index: usize) -> Result<&Unit<'a>, DwarfError> {
        let none = gimli::Error::MissingUnitDie;
        let unit = self.units.get(index).ok_or(none)?;
        let unit = unit.get_or_init(|| {
            let place = self.slices.get(index).ok_or(none)?;
            Unit::read(self, place).map(Box::new)
        });
        unit.as_deref().map_err(Clone::clone)
    }

    pub(super) fn abbreviations(
        &self,
        offset: DebugAbbrevOffset,
    ) -> Result<Arc<Abbreviations>, DwarfError> {
        if let Some(known) = self.abbreviations.borrow().get(&offset.0) {
            return Ok(known.clone());
        }
        let read = || self.dwarf.debug_abbrev.abbreviations(offset);
        let budget = &self.sections.budget;
        let read = Arc::new(budget.charge_kept(ABBREVIATIONS_COST, read)?);
        let mut known = self.abbreviations.borrow_mut();
        known.insert(offset.0, read.clone());
        Ok(read)
    }

    /// A string that an attribute tells.
    pub(super) fn string(
        &self,
        unit: &Unit<'a>,
        value: &AttributeValue<BudgetedReader<'a>>,
    ) -> Result<Option<Box<[u8]>>, DwarfError> {
        let sections = self.sections;
        let (section, offset) = match value {
            AttributeValue::String(text) => {
                let text = text.bytes()?;
                let kept = text.get(..KEPT_NAME_BYTES).unwrap_or(text);
                return Ok(Some(kept.into()));
            }
            AttributeValue::DebugStrRef(offset) => (&sections.str, offset.0),
            AttributeValue::DebugStrRefSup(offset) => match self.supplementary() {
                Some(common) => return common.sections.string(&common.sections.str, offset.0),
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
    fn new(begin: u64, end: u64, unit: usize) -> Self {
        Self {
            start: begin,
            end,
            unit,
            min_start: begin,
        }
    }
}
