//! The functions of a unit, by address.

use std::sync::OnceLock;

use gimli::{AttributeValue, UnitOffset};

use super::DwarfError;
use super::function::Subprogram;
use super::ranges::Ranges;
use super::step_budget::KEEP_COST;
use super::unit::Unit;
use super::units::Units;

/// The functions of a unit.
#[derive(Default)]
pub(super) struct Functions {
    outer: Chain,
    /// With nested functions, which some languages have.
    all: Chain,
}

impl Functions {
    /// Returns the function at an address.
    pub(super) fn lookup<'u, 'a>(
        &'u self,
        address: u64,
        unit: &Unit<'a>,
        units: &Units<'a>,
    ) -> Result<Option<&'u Subprogram>, DwarfError> {
        let (function, has_gaps) = self.outer.lookup(address, unit, units, false)?;
        if function.is_some() || !has_gaps {
            return Ok(function);
        }
        let (function, _) = self.all.lookup(address, unit, units, true)?;
        Ok(function)
    }
}

/// The functions of a unit that are read so far, as a linked list of parts.
///
/// Each part ends with the function whose lookup caused it to be read.
#[derive(Default)]
struct Chain(OnceLock<Result<Box<Part>, DwarfError>>);

/// Functions by address.
struct Part {
    /// Start, end and index of the function, sorted by start.
    ranges: Vec<(u64, u64, usize)>,
    functions: Vec<Subprogram>,
    /// Whether the children of functions were skipped, which may have nested functions.
    has_gaps: bool,
    /// Offset of the next part.
    end: Option<UnitOffset>,
    next: Chain,
}

impl Chain {
    /// Returns the function at an address. If there is none, returns whether there are gaps.
    fn lookup<'u, 'a>(
        &'u self,
        address: u64,
        unit: &Unit<'a>,
        units: &Units<'a>,
        all: bool,
    ) -> Result<(Option<&'u Subprogram>, bool), DwarfError> {
        let (mut chain, mut from) = (self, unit.unit.header.root_offset());
        let (mut has_gaps, mut functions) = (false, 0);
        loop {
            // A part is no shorter than all parts before it together, so that there are few parts.
            let read = || Part::read(unit, units, from, all, (address, functions)).map(Box::new);
            let part = chain.0.get_or_init(read).as_ref();
            let part = part.map_err(Clone::clone)?;
            if let Some(function) = part.lookup(address) {
                return Ok((Some(function), false));
            }
            has_gaps |= part.has_gaps;
            functions += part.functions.len();
            match part.end {
                Some(end) => (chain, from) = (&part.next, end),
                None => return Ok((None, has_gaps)),
            }
        }
    }
}

impl Part {
    /// Reads entries up to and including the function at an address and its aliases.
    ///
    /// Reads at least `at_least` functions if the unit has as many.
    fn read<'a>(
        unit: &Unit<'a>,
        units: &Units<'a>,
        from: UnitOffset,
        all: bool,
        (address, at_least): (u64, usize),
    ) -> Result<Self, DwarfError> {
        let mut part = Self {
            ranges: Vec::new(),
            functions: Vec::new(),
            has_gaps: false,
            end: None,
            next: Chain::default(),
        };
        let header = &unit.unit.header;
        let abbreviations = &unit.unit.abbreviations;
        let mut entries = header.entries_raw(abbreviations, Some(from))?;
        let mut is_found = false;
        while !entries.is_empty() {
            let offset = entries.next_offset();
            let Some(abbreviation) = entries.read_abbreviation()? else {
                continue;
            };
            if abbreviation.tag() != gimli::DW_TAG_subprogram {
                entries.skip_attributes(abbreviation.attributes())?;
                continue;
            }
            let mut ranges = Ranges::default();
            let mut next = None;
            for &specification in abbreviation.attributes() {
                let attribute = entries.read_attribute(specification)?;
                if attribute.name() != gimli::DW_AT_sibling {
                    ranges.add(&attribute, &units.dwarf, &unit.unit)?;
                } else if let AttributeValue::UnitRef(sibling) = attribute.value() {
                    next = Some(sibling);
                }
            }
            let (before, index) = (part.ranges.len(), part.functions.len());
            ranges.each(&units.dwarf, &unit.unit, |start, end| {
                part.ranges.push((start, end, index));
            })?;
            let (previous, added) = part.ranges.split_at(before);
            if let Some(first) = added.first() {
                let is_alias = previous.last().is_some_and(|last| last.0 == first.0);
                if is_found && index >= at_least && !is_alias {
                    part.ranges.truncate(before);
                    part.end = Some(offset);
                    break;
                }
                is_found |= added
                    .iter()
                    .any(|range| (range.0..range.1).contains(&address));
                let kept = added.len();
                let work = (kept as u64).saturating_mul(KEEP_COST);
                units.sections.budget.charge(work)?;
                part.functions.push(Subprogram::new(offset));
            }
            if !all && let Some(next) = next.filter(|next| *next > entries.next_offset()) {
                part.has_gaps = true;
                entries = header.entries_raw(abbreviations, Some(next))?;
            }
        }
        // Assemblers write aliases next to each other. The last one is found, as in binutils.
        part.ranges.sort_unstable_by_key(|range| (range.0, range.2));
        Ok(part)
    }

    fn lookup(&self, address: u64) -> Option<&Subprogram> {
        let after = self.ranges.partition_point(|range| range.0 <= address);
        let &(_, end, index) = self.ranges.get(after.checked_sub(1)?)?;
        (address < end).then(|| self.functions.get(index))?
    }
}
