//! The addresses that an entry of DWARF says it covers.

use gimli::{Attribute, AttributeValue, DwAt, RangeListsOffset};

use super::step_budget::BudgetedReader;

/// The attributes that tell them.
#[derive(Default)]
pub(super) struct Ranges {
    low: Option<u64>,
    high: Option<u64>,
    size: Option<u64>,
    list: Option<RangeListsOffset<usize>>,
}

impl Ranges {
    /// Takes an attribute, if it is one of them. That of the unit's bases must be known.
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

    /// Whether an attribute is one of them.
    pub(super) fn is_range_attribute(name: DwAt) -> bool {
        matches!(
            name,
            gimli::DW_AT_low_pc | gimli::DW_AT_high_pc | gimli::DW_AT_ranges
        )
    }

    /// Those that are not empty. At 0 and 1, and at the end of all addresses, linkers put what they have dropped.
    pub(super) fn each<'a>(
        &self,
        dwarf: &gimli::Dwarf<BudgetedReader<'a>>,
        unit: &gimli::Unit<BudgetedReader<'a>>,
        mut found: impl FnMut(u64, u64),
    ) -> gimli::Result<()> {
        let mut found = |begin, end| {
            if 1 < begin && begin < end {
                found(begin, end);
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
