//! The names of functions.

use std::sync::OnceLock;

use gimli::{AttributeValue, UnitOffset};

use super::DwarfError;
use super::unit::Unit;
use super::units::Units;
use crate::demangle::MAX_NAME_BYTES;

/// Limit of references from an entry to the one that has the name. Usually there are up to three.
const MAX_ORIGINS: usize = 16;

/// An entry (DIE) of a unit, whose name is read on demand.
pub(super) struct Die {
    pub(super) offset: UnitOffset,
    name: OnceLock<Result<Option<Box<[u8]>>, DwarfError>>,
}

impl Die {
    pub(super) fn new(offset: UnitOffset) -> Self {
        Self {
            offset,
            name: OnceLock::new(),
        }
    }

    pub(super) fn name<'a>(
        &self,
        unit: &Unit<'a>,
        units: &Units<'a>,
    ) -> Result<Option<&[u8]>, DwarfError> {
        let read = || {
            let name = read_name(self.offset, unit, units)?;
            // Reading was charged before; this charges the memory for keeping the name.
            let bytes = name.as_ref().map_or(0, |name| name.len());
            units.sections.budget.charge_bytes(2 * bytes)?;
            Ok(name)
        };
        let name = self.name.get_or_init(read);
        name.as_ref().map(Option::as_deref).map_err(Clone::clone)
    }
}

/// Returns the linkage name, else the source name, else the name of the entry it refers to.
///
/// A name of more than [`MAX_NAME_BYTES`] is used only if the entry has no other.
fn read_name<'n, 'a>(
    mut offset: UnitOffset,
    mut unit: &'n Unit<'a>,
    mut units: &'n Units<'a>,
) -> Result<Option<Box<[u8]>>, DwarfError> {
    for _ in 0..MAX_ORIGINS {
        let header = &unit.unit.header;
        let mut entries = header.entries_raw(&unit.unit.abbreviations, Some(offset))?;
        let abbreviation = entries.read_abbreviation()?;
        let no_entry = gimli::Error::NoEntryAtGivenOffset(offset.0 as u64);
        let (mut linkage, mut source, mut origin) = (None, None, None);
        for &specification in abbreviation.ok_or(no_entry)?.attributes() {
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
            Some(AttributeValue::UnitRef(target)) => offset = target,
            Some(AttributeValue::DebugInfoRef(target)) => (unit, offset) = units.unit_at(target)?,
            Some(AttributeValue::DebugInfoRefSup(target)) => match units.supplementary() {
                Some(supplementary) => {
                    units = supplementary;
                    (unit, offset) = units.unit_at(target)?;
                }
                None => break,
            },
            _ => break,
        }
    }
    Ok(None)
}
