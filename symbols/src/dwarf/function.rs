//! A function and the functions inlined into it.

use std::sync::OnceLock;

use gimli::{Abbreviation, AttributeValue, EntriesRaw, UnitOffset};

use super::name::Die;
use super::ranges::Ranges;
use super::step_budget::{BudgetedReader, KEEP_COST};
use super::unit::Unit;
use super::units::Units;
use super::{DwarfError, MAX_FRAMES};

/// A function with separate code (`DW_TAG_subprogram`).
pub(super) struct Subprogram {
    pub(super) entry: Die,
    /// Sorted by depth, then start.
    inlined: OnceLock<Result<Vec<InlinedSubroutine>, DwarfError>>,
}

/// A range of an inlined function (`DW_TAG_inlined_subroutine`).
pub(super) struct InlinedSubroutine {
    start: u64,
    end: u64,
    /// Number of inlined functions around it.
    depth: usize,
    pub(super) entry: Die,
    /// File of the call, as index in the line program of the unit.
    pub(super) call_file: Option<u64>,
    /// Line of the call.
    pub(super) call_line: Option<u32>,
}

impl Subprogram {
    pub(super) fn new(offset: UnitOffset) -> Self {
        Self {
            entry: Die::new(offset),
            inlined: OnceLock::new(),
        }
    }

    /// Returns the inlined functions at an address, outermost first.
    ///
    /// Also returns whether there are more. If so, the last one represents them.
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
        let mut inlined = Vec::new();
        loop {
            let depth = inlined.len();
            let after =
                rest.partition_point(|inner| (inner.depth, inner.start) <= (depth, address));
            let last = after.checked_sub(1).and_then(|index| rest.get(index));
            let Some(inner) = last.filter(|inner| inner.depth == depth && address < inner.end)
            else {
                return Ok((inlined, false));
            };
            if depth + 1 == MAX_FRAMES {
                return Ok((inlined, true));
            }
            inlined.push(inner);
            rest = rest.get(after..).unwrap_or_default();
        }
    }
}

/// Reads all inlined functions of a function, but not those of nested subprograms.
fn read_inlined<'a>(
    function: UnitOffset,
    unit: &Unit<'a>,
    units: &Units<'a>,
) -> Result<Vec<InlinedSubroutine>, DwarfError> {
    let mut entries = (unit.unit.header).entries_raw(&unit.unit.abbreviations, Some(function))?;
    let mut inlined = Vec::new();
    let outermost = entries.next_depth();
    if let Some(abbreviation) = entries.read_abbreviation()? {
        entries.skip_attributes(abbreviation.attributes())?;
    }
    // Depths of the inlined functions and of the nested subprogram that contain the next entry.
    let mut enclosing: Vec<isize> = Vec::new();
    let mut nested = None;
    while entries.next_depth() > outermost {
        let (offset, depth) = (entries.next_offset(), entries.next_depth());
        let Some(abbreviation) = entries.read_abbreviation()? else {
            continue;
        };
        while enclosing.last().is_some_and(|&outer| outer >= depth) {
            enclosing.pop();
        }
        nested = nested.filter(|&nested| nested < depth);
        match abbreviation.tag() {
            gimli::DW_TAG_inlined_subroutine if nested.is_none() => {
                let subroutine = InlinedSubroutine {
                    start: 0,
                    end: 0,
                    depth: enclosing.len(),
                    entry: Die::new(offset),
                    call_file: None,
                    call_line: None,
                };
                add_inlined(
                    subroutine,
                    abbreviation,
                    &mut entries,
                    unit,
                    units,
                    &mut inlined,
                )?;
                units.sections.budget.charge(1)?;
                enclosing.push(depth);
            }
            tag => {
                if tag == gimli::DW_TAG_subprogram && nested.is_none() {
                    nested = Some(depth);
                }
                entries.skip_attributes(abbreviation.attributes())?;
            }
        }
    }
    inlined.sort_unstable_by_key(|inner| (inner.depth, inner.start));
    Ok(inlined)
}

/// Adds one element per address range.
fn add_inlined<'a>(
    mut subroutine: InlinedSubroutine,
    abbreviation: &Abbreviation,
    entries: &mut EntriesRaw<'_, BudgetedReader<'a>>,
    unit: &Unit<'a>,
    units: &Units<'a>,
    inlined: &mut Vec<InlinedSubroutine>,
) -> Result<(), DwarfError> {
    let mut ranges = Ranges::default();
    for &specification in abbreviation.attributes() {
        let attribute = entries.read_attribute(specification)?;
        match attribute.name() {
            gimli::DW_AT_call_file => {
                if let AttributeValue::FileIndex(file) = attribute.value() {
                    // Before version 5, index 0 is not a file.
                    let is_file = file > 0 || unit.unit.header.version() >= 5;
                    subroutine.call_file = is_file.then_some(file);
                }
            }
            gimli::DW_AT_call_line => {
                let line = attribute.udata_value().map(|line| line as u32);
                subroutine.call_line = line.filter(|&line| line != 0);
            }
            _ => ranges.add(&attribute, &units.dwarf, &unit.unit)?,
        }
    }
    let before = inlined.len();
    ranges.each(&units.dwarf, &unit.unit, |start, end| {
        inlined.push(InlinedSubroutine {
            start,
            end,
            entry: Die::new(subroutine.entry.offset),
            ..subroutine
        });
    })?;
    let kept = (inlined.len() - before) as u64;
    units.sections.budget.charge(kept.saturating_mul(KEEP_COST))
}
