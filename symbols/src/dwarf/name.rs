//! The names of functions.

use std::cell::OnceCell;

use gimli::{AttributeValue, UnitOffset};

use super::DwarfError;
use super::unit::Unit;
use super::units::Units;
use crate::demangle::MAX_NAME_BYTES;

/// Most entries gone through from one that has no name of its own to the one that has: three as a rule.
const MAX_ORIGINS: usize = 16;

/// An entry of a unit, whose name is read when asked for.
pub(super) struct Die {
    pub(super) offset: UnitOffset,
    name: OnceCell<Result<Option<Box<[u8]>>, DwarfError>>,
}

impl Die {
    pub(super) fn new(offset: UnitOffset) -> Self {
        Self {
            offset,
            name: OnceCell::new(),
        }
    }

    pub(super) fn name<'a>(
        &self,
        unit: &Unit<'a>,
        units: &Units<'a>,
    ) -> Result<Option<&[u8]>, DwarfError> {
        let read = || {
            let name = read_name(self.offset, unit, units)?;
            // It is not only read: it is kept.
            let bytes = name.as_ref().map_or(0, |name| name.len());
            units.sections.budget.charge_bytes(2 * bytes)?;
            Ok(name)
        };
        let name = self.name.get_or_init(read);
        name.as_ref().map(Option::as_deref).map_err(Clone::clone)
    }
}

/// The name for the linker, else that of the source, else that of the entry this one was made from. One that is too long is taken if there
/// is no other.
fn read_name<'n, 'a>(
    mut offset: UnitOffset,
    mut unit: &'n Unit<'a>,
    mut units: &'n Units<'a>,
) -> Result<Option<Box<[u8]>>, DwarfError> {
    for _ in 0..MAX_ORIGINS {
        let header = &unit.unit.header;
        let mut entries = header.entries_raw(&unit.unit.abbreviations, Some(offset))?;
        let abbreviation = entries.read_abbreviation()?;
        let none = gimli::Error::NoEntryAtGivenOffset(offset.0 as u64);
        let (mut linkage, mut source, mut origin) = (None, None, None);
        for &specification in abbreviation.ok_or(none)?.attributes() {
            let attribute = entries.read_attribute(specification)?;
            match attribute.name() {
                gimli::DW_AT_linkage_name | gimli::DW_AT_MIPS_linkage_name => {
                    linkage = Some(attribute.value());
                }
                gimli::DW_AT_name => source = Some(attribute.value()),
                gimli::DW_AT_abstract_origin | gimli::DW_AT_specification => {
                    origin = Some(attribute.value());
                }
                _ => {}
            }
        }
        let mut too_long = None;
        for value in [linkage, source].iter().flatten() {
            match units.string(unit, value)? {
                Some(name) if name.len() > MAX_NAME_BYTES => too_long = too_long.or(Some(name)),
                Some(name) if !name.trim_ascii().is_empty() => return Ok(Some(name)),
                _ => {}
            }
        }
        if too_long.is_some() {
            return Ok(too_long);
        }
        match origin {
            Some(AttributeValue::UnitRef(at)) => offset = at,
            Some(AttributeValue::DebugInfoRef(at)) => (unit, offset) = units.unit_at(at)?,
            Some(AttributeValue::DebugInfoRefSup(at)) => match units.supplementary() {
                Some(common) => {
                    units = common;
                    (unit, offset) = units.unit_at(at)?;
                }
                None => break,
            },
            _ => break,
        }
    }
    Ok(None)
}
