//! A function, and those inlined into it.

use std::cell::OnceCell;

use gimli::{Abbreviation, AttributeValue, EntriesRaw, UnitOffset};

use super::name::Die;
use super::ranges::Ranges;
use super::step_budget::{BudgetedReader, KEEP_COST};
use super::unit::Unit;
use super::units::Units;
use super::{DwarfError, MAX_FRAMES};

/// A function that has code of its own.
pub(super) struct Subprogram {
    pub(super) entry: Die,
    /// By depth, then begin.
    inlined: OnceCell<Result<Vec<InlinedSubroutine>, DwarfError>>,
}

/// Where a function is inlined.
pub(super) struct InlinedSubroutine {
    start: u64,
    end: u64,
    /// In so many others.
    depth: usize,
    pub(super) entry: Die,
    /// The file of the call, by its number in the unit.
    pub(super) call_file: Option<u64>,
    /// The line of the call.
    pub(super) call_line: Option<u32>,
}

impl Subprogram {
    pub(super) fn new(offset: UnitOffset) -> Self {
        Self {
            entry: Die::new(offset),
            inlined: OnceCell::new(),
        }
    }

    /// What is inlined at an address, outermost first, and whether there is more: then the last stands for all of that.
    pub(super) fn inlined_at<'u, 'a>(
        &'u self,
        address: u64,
        unit: &Unit<'a>,
        units: &Units<'a>,
    ) -> Result<(Vec<&'u InlinedSubroutine>, bool), DwarfError> {
        let all = self
            .inlined
            .get_or_init(|| read_inlined(self.entry.offset, unit, units));
        let mut rest = all.as_ref().map_err(Clone::clone)?.as_slice();
        let mut found = Vec::new();
        loop {
            let depth = found.len();
            let after = rest.partition_point(|at| (at.depth, at.start) <= (depth, address));
            let last = after.checked_sub(1).and_then(|at| rest.get(at));
            let Some(inner) = last.filter(|at| at.depth == depth && address < at.end) else {
                return Ok((found, false));
            };
            if depth + 1 == MAX_FRAMES {
                return Ok((found, true));
            }
            found.push(inner);
            rest = rest.get(after..).unwrap_or_default();
        }
    }
}

/// Goes through all that is in a function, but for functions of their own.
fn read_inlined<'a>(
    function: UnitOffset,
    unit: &Unit<'a>,
    units: &Units<'a>,
) -> Result<Vec<InlinedSubroutine>, DwarfError> {
    let mut entries = (unit.unit.header).entries_raw(&unit.unit.abbreviations, Some(function))?;
    let mut found = Vec::new();
    let outermost = entries.next_depth();
    if let Some(abbreviation) = entries.read_abbreviation()? {
        entries.skip_attributes(abbreviation.attributes())?;
    }
    // Depths of the entries around the next one that are inlined functions, and of a function of its own.
    let mut open: Vec<isize> = Vec::new();
    let mut own = None;
    while entries.next_depth() > outermost {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        while open.last().is_some_and(|&around| around >= depth) {
            open.pop();
        }
        own = own.filter(|&own| own < depth);
        match abbreviation.tag() {
            gimli::DW_TAG_inlined_subroutine if own.is_none() => {
                let at = InlinedSubroutine {
                    start: 0,
                    end: 0,
                    depth: open.len(),
                    entry: Die::new(offset),
                    call_file: None,
                    call_line: None,
                };
                add_inlined(at, abbreviation, &mut entries, unit, units, &mut found)?;
                units.sections.budget.charge(1)?;
                open.push(depth);
            }
            tag => {
                if tag == gimli::DW_TAG_subprogram && own.is_none() {
                    own = Some(depth);
                }
                entries.skip_attributes(abbreviation.attributes())?;
            }
        }
    }
    found.sort_unstable_by_key(|at| (at.depth, at.start));
    Ok(found)
}

/// Adds one row for each range.
fn add_inlined<'a>(
    mut at: InlinedSubroutine,
    abbreviation: &Abbreviation,
    entries: &mut EntriesRaw<'_, BudgetedReader<'a>>,
    unit: &Unit<'a>,
    units: &Units<'a>,
    found: &mut Vec<InlinedSubroutine>,
) -> Result<(), DwarfError> {
    let mut ranges = Ranges::default();
    for &specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(specification)?;
        match attribute.name() {
            gimli::DW_AT_call_file => {
                if let AttributeValue::FileIndex(file) = attribute.value() {
                    // Before version 5 the number 0 is no file.
                    let is_file = file > 0 || unit.unit.header.version() >= 5;
                    at.call_file = is_file.then_some(file);
                }
            }
            gimli::DW_AT_call_line => {
                let line = attribute.udata_value().map(|line| line as u32);
                at.call_line = line.filter(|&line| line != 0);
            }
            _ => ranges.add(&attribute, &units.dwarf, &unit.unit)?,
        }
    }
    let before = found.len();
    ranges.each(&units.dwarf, &unit.unit, |begin, end| {
        found.push(InlinedSubroutine {
            start: begin,
            end,
            entry: Die::new(at.entry.offset),
            ..at
        });
    })?;
    let kept = (found.len() - before) as u64;
    units.sections.budget.charge(kept.saturating_mul(KEEP_COST))
}
