//! A unit: the attributes of its root, and the parts that are read on demand.

use std::sync::{Arc, OnceLock};

use gimli::{
    Abbreviations, AttributeValue, DebugAddrBase, DebugInfo, DebugLineOffset, DebugLocListsBase,
    DebugRngListsBase, DebugStrOffsetsBase, DwarfFileType, UnitHeader, UnitType,
};

use super::DwarfError;
use super::functions::Functions;
use super::lines::Lines;
use super::ranges::Ranges;
use super::step_budget::BudgetedReader;
use super::units::{UnitSlice, Units};

/// A unit whose root is parsed. The rest is read on demand.
pub(super) struct Unit<'a> {
    pub(super) unit: gimli::Unit<BudgetedReader<'a>>,
    pub(super) slice: &'a UnitSlice,
    pub(super) line_program: Option<DebugLineOffset>,
    pub(super) directory: Option<AttributeValue<BudgetedReader<'a>>>,
    /// Path of the file with the functions, if the unit is a skeleton.
    pub(super) split_name: Option<AttributeValue<BudgetedReader<'a>>>,
    pub(super) ranges: Ranges,
    pub(super) functions: Functions,
    pub(super) lines: OnceLock<Result<Lines<'a>, DwarfError>>,
    /// The split unit of a skeleton; `None` if its file is missing.
    pub(super) split: OnceLock<Result<Option<Box<Units<'a>>>, DwarfError>>,
}

/// The attributes of a skeleton that apply to its split unit.
pub(super) struct Bases {
    low_pc: u64,
    addr: DebugAddrBase,
    ranges: DebugRngListsBase,
}

impl Bases {
    pub(super) fn from_skeleton(skeleton: &Unit<'_>) -> Self {
        Self {
            low_pc: skeleton.unit.low_pc,
            addr: skeleton.unit.addr_base,
            ranges: skeleton.unit.rnglists_base,
        }
    }

    fn apply_to(&self, unit: &mut gimli::Unit<BudgetedReader<'_>>) {
        unit.low_pc = self.low_pc;
        unit.addr_base = self.addr;
        if unit.header.version() < 5 {
            unit.rnglists_base = self.ranges;
        }
    }
}

impl<'a> Unit<'a> {
    pub(super) fn read(units: &Units<'a>, slice: &'a UnitSlice) -> Result<Self, DwarfError> {
        let sections = units.sections;
        let bytes = sections.part(&sections.info, slice.offset, slice.size, &slice.info)?;
        let header = DebugInfo::from(bytes).units().next()?;
        let header = header.ok_or(gimli::Error::MissingUnitDie)?;
        let abbreviations = units.abbreviations(header.debug_abbrev_offset())?;
        let mut parsed = Self {
            unit: without_attributes(header, abbreviations, units.dwarf.file_type),
            slice,
            line_program: None,
            directory: None,
            split_name: None,
            ranges: Ranges::default(),
            functions: Functions::default(),
            lines: OnceLock::new(),
            split: OnceLock::new(),
        };
        if let Some(bases) = &units.skeleton {
            bases.apply_to(&mut parsed.unit);
        }
        let mut range_attributes = Vec::new();
        let root = parsed.unit.header.root_offset();
        let abbreviations = parsed.unit.abbreviations.clone();
        let mut entries = parsed.unit.header.entries_raw(&abbreviations, Some(root))?;
        let root = entries.read_abbreviation()?;
        let root = root.ok_or(gimli::Error::MissingUnitDie)?;
        for &specification in root.attributes() {
            let attribute = entries.read_attribute(specification)?;
            match (attribute.name(), attribute.value()) {
                (gimli::DW_AT_stmt_list, AttributeValue::DebugLineRef(offset)) => {
                    parsed.line_program = Some(offset);
                }
                (gimli::DW_AT_GNU_dwo_id, AttributeValue::DwoId(id)) => {
                    parsed.unit.dwo_id = Some(id)
                }
                (gimli::DW_AT_dwo_name | gimli::DW_AT_GNU_dwo_name, value) => {
                    parsed.split_name = Some(value);
                }
                (gimli::DW_AT_comp_dir, value) => parsed.directory = Some(value),
                (_, AttributeValue::DebugStrOffsetsBase(base)) => {
                    parsed.unit.str_offsets_base = base
                }
                (_, AttributeValue::DebugAddrBase(base)) => parsed.unit.addr_base = base,
                (_, AttributeValue::DebugRngListsBase(base)) => parsed.unit.rnglists_base = base,
                (name, _) if Ranges::is_range_attribute(name) => range_attributes.push(attribute),
                _ => {}
            }
        }
        // Range attributes need the bases, which may follow them.
        let mut ranges = Ranges::default();
        for attribute in range_attributes {
            if attribute.name() == gimli::DW_AT_low_pc {
                let low = units.dwarf.attr_address(&parsed.unit, attribute.value())?;
                parsed.unit.low_pc = low.unwrap_or(0);
            }
            ranges.add(&attribute, &units.dwarf, &parsed.unit)?;
        }
        parsed.ranges = ranges;
        Ok(parsed)
    }
}

fn without_attributes<'a>(
    header: UnitHeader<BudgetedReader<'a>>,
    abbreviations: Arc<Abbreviations>,
    kind: DwarfFileType,
) -> gimli::Unit<BudgetedReader<'a>> {
    let encoding = header.encoding();
    gimli::Unit {
        abbreviations,
        name: None,
        comp_dir: None,
        low_pc: 0,
        str_offsets_base: DebugStrOffsetsBase::default_for_encoding_and_file(encoding, kind),
        addr_base: DebugAddrBase(0),
        loclists_base: DebugLocListsBase::default_for_encoding_and_file(encoding, kind),
        rnglists_base: DebugRngListsBase::default_for_encoding_and_file(encoding, kind),
        line_program: None,
        dwo_id: match header.type_() {
            UnitType::Skeleton(id) | UnitType::SplitCompilation(id) => Some(id),
            _ => None,
        },
        header,
    }
}
