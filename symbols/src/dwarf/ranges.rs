//! The address ranges of an entry.

use gimli::{Attribute, AttributeValue, DwAt, RangeListsOffset};

use super::step_budget::BudgetedReader;

/// The attributes of an entry that declare its address ranges.
#[derive(Default)]
pub(super) struct Ranges {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset<usize>>,
}

impl Ranges {
    /// Stores an attribute if it declares ranges. The bases of the unit must be set.
    #[inline]
    pub(super) fn add<'a>(
        &mut self,
        attribute: &Attribute<BudgetedReader<'a>>,
        dwarf: &gimli::Dwarf<BudgetedReader<'a>>,
        unit: &gimli::Unit<BudgetedReader<'a>>,
    ) -> gimli::Result<()> {
        match attribute.name() {
            gimli::DW_AT_low_pc => self.low = dwarf.attr_address(unit, attribute.value())?,
            gimli::DW_AT_high_pc => match attribute.value() {
                AttributeValue::Udata(size) => self.size = Some(size),
                value => self.high = dwarf.attr_address(unit, value)?,
            },
            gimli::DW_AT_ranges => self.list = dwarf.attr_ranges_offset(unit, attribute.value())?,
            _ => {}
        }
        Ok(())
    }

    /// Returns whether an attribute declares ranges.
    pub(super) fn is_range_attribute(name: DwAt) -> bool {
        matches!(
            name,
            gimli::DW_AT_low_pc | gimli::DW_AT_high_pc | gimli::DW_AT_ranges
        )
    }

    /// Calls `found` with each range that is not empty.
    ///
    /// Ranges at 0 and 1 and at the highest addresses are skipped: linkers move the ranges of
    /// removed functions there.
    pub(super) fn each<'a>(
        &self,
        dwarf: &gimli::Dwarf<BudgetedReader<'a>>,
        unit: &gimli::Unit<BudgetedReader<'a>>,
        mut found: impl FnMut(u64, u64),
    ) -> gimli::Result<()> {
        let mut found = |start, end| {
            if 1 < start && start < end {
                found(start, end);
            }
        };
        match (self.list, self.low, self.high, self.size) {
            (Some(list), ..) => {
                let mut ranges = dwarf.ranges(unit, list)?;
                while let Some(range) = ranges.next()? {
                    found(range.begin, range.end);
                }
            }
            (_, Some(low), Some(high), _) => found(low, high),
            (_, Some(low), _, Some(size)) => found(low, low.wrapping_add(size)),
            _ => {}
        }
        Ok(())
    }
}
