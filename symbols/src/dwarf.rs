//! The functions of the source, inlined ones included, and the lines, by DWARF (versions 2 to 5).
//!
//! ```no_run
//! use perfcollect_symbols::{demangle::demangle, dwarf::Detail, elf::ElfFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("/opt/app/program")?;
//! let elf = ElfFile::open(&file)?;
//! if let Some(sections) = elf.dwarf_sections() {
//!     let debug_info = sections.debug_info()?;
//!     for frame in debug_info.frames(0x1234, Detail::Lines)? {
//!         println!("{:?} at {:?}:{:?}", frame.name.map(demangle), frame.file, frame.line);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use gimli::DwoId;
use thiserror::Error;

use crate::elf::ElfError;
use lines::{Lines, Location};
use split::Package;
use unit::Unit;
use units::Units;

mod function;
mod functions;
mod lines;
mod name;
mod ranges;
mod sections;
mod split;
mod step_budget;
mod unit;
mod units;

pub use sections::{DwarfSections, MAX_DWARF_BYTES};
pub use split::{PackageSections, SplitSections, SplitUnit};

/// Most functions inlined into each other; compilers stop long before. Of more, the innermost are one frame with the name [`CUT`].
pub const MAX_FRAMES: usize = 256;
/// Stands for inlined functions that are too many to be told.
pub const TRUNCATED: &[u8] = b"[truncated: more inlined functions]";

/// Why debug information told nothing.
#[derive(Clone, Debug, Error)]
pub enum DwarfError {
    /// It contradicts itself.
    #[error("DWARF: {0}")]
    Corrupt(#[from] gimli::Error),
    /// A section is not all in the file, does not decompress, or there is more than [`MAX_DWARF_BYTES`] to read.
    #[error("DWARF: {0}")]
    Unreadable(#[source] Arc<ElfError>),
    /// It leads to more steps than any honest one.
    #[error("DWARF: it takes too much work to read")]
    BudgetExceeded,
}

impl DwarfSections<'_> {
    /// Finds out what units there are and where their code is; the rest is read when an address asks for it. Of split units only what
    /// is in the package is known.
    ///
    /// # Errors
    /// The list of units is damaged, or that of the package.
    pub fn debug_info(&self) -> Result<DebugInfo<'_>, DwarfError> {
        self.debug_info_with(|_| None)
    }

    /// The same with `open` to open the file of a split unit that is not in the package: called once for each, when an address asks for it.
    ///
    /// # Errors
    /// As [`DwarfSections::debug_info`].
    pub fn debug_info_with<'s>(
        &'s self,
        open: impl Fn(&SplitUnit) -> Option<SplitSections> + 's,
    ) -> Result<DebugInfo<'s>, DwarfError> {
        let package = self.package.as_ref();
        let package = package.map(|package| package.borrow(&self.budget));
        let package = package.transpose().map_err(DwarfError::from);
        let read = package.and_then(|package| {
            Ok(DebugInfo {
                units: Units::with_ranges(self)?,
                package,
                open: Box::new(open),
            })
        });
        read.map_err(|error| self.budget.explain(error))
    }
}

/// What is wanted of an address. What is not is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// The functions.
    Functions,
    /// The functions, files and lines.
    Lines,
}

/// A function of the source at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceFrame<'a> {
    /// Its name as the linker sees it, where the compiler tells that, else as the source has it. Not demangled.
    pub name: Option<&'a [u8]>,
    /// The file, of the innermost function where the address is, of the others where the call was inlined.
    pub file: Option<&'a str>,
    /// The line there.
    pub line: Option<u32>,
}

type OpenSplit<'a> = Box<dyn Fn(&SplitUnit) -> Option<SplitSections> + 'a>;

/// Addresses to functions and lines.
pub struct DebugInfo<'a> {
    units: Units<'a>,
    package: Option<Package<'a>>,
    open: OpenSplit<'a>,
}

impl<'a> DebugInfo<'a> {
    /// The functions at an address of the file, innermost first: all but the last are inlined into the next. None if nothing is
    /// known; one without a name where only the line is.
    ///
    /// # Errors
    /// What tells of this address is damaged, or all addresses together took too much work.
    pub fn frames(&self, address: u64, detail: Detail) -> Result<Vec<SourceFrame<'_>>, DwarfError> {
        let budget = &self.units.sections.budget;
        for unit in self.units.containing(address) {
            let frames = unit.and_then(|unit| self.frames_of(unit, address, detail));
            let frames = frames.map_err(|error| budget.explain(error))?;
            if let Some(frames) = frames {
                return Ok(frames);
            }
        }
        Ok(Vec::new())
    }

    /// `None`: the unit knows nothing of the address.
    fn frames_of<'s>(
        &'s self,
        unit: &'s Unit<'a>,
        address: u64,
        detail: Detail,
    ) -> Result<Option<Vec<SourceFrame<'s>>>, DwarfError> {
        let units = &self.units;
        let (code, code_units) = self.code_of(unit)?;
        let function = code.functions.lookup(address, code, code_units)?;
        let lines = match detail {
            Detail::Lines => Some(Lines::for_unit(unit, units)?),
            Detail::Functions => None,
        };
        let here = lines.and_then(|lines| lines.location(address));
        let frame = |name, location: Option<Location>| {
            let (file, line) = location.unwrap_or_default();
            let path = |(lines, number): (&'s Lines<'a>, _)| lines.path(number, unit, units);
            Ok::<_, DwarfError>(SourceFrame {
                name,
                file: lines.zip(file).map(path).transpose()?.flatten(),
                line,
            })
        };
        let Some(function) = function else {
            let only_line = here.map(|_| frame(None, here).map(|frame| vec![frame]));
            return only_line.transpose();
        };
        let (inlined, mut is_cut) = function.inlined_at(address, code, code_units)?;
        let mut frames = Vec::with_capacity(inlined.len() + 1);
        let mut location = here;
        for inner in inlined.iter().rev() {
            let name = match std::mem::take(&mut is_cut) {
                true => Some(TRUNCATED),
                false => inner.entry.name(code, code_units)?,
            };
            frames.push(frame(name, location)?);
            let call = (inner.call_file, inner.call_line);
            location = lines.map(|_| call);
        }
        frames.push(frame(function.entry.name(code, code_units)?, location)?);
        Ok(Some(frames))
    }

    /// Where the functions of a unit are: if it is the skeleton of a split unit, there.
    fn code_of<'s>(
        &'s self,
        unit: &'s Unit<'a>,
    ) -> Result<(&'s Unit<'a>, &'s Units<'a>), DwarfError> {
        let Some(id) = unit.unit.dwo_id else {
            return Ok((unit, &self.units));
        };
        let split = unit.split.get_or_init(|| self.split_units(unit, id));
        let Some(units) = split.as_ref().map_err(Clone::clone)? else {
            return Ok((unit, &self.units));
        };
        let code = units.first_with_code().transpose()?;
        Ok((code.unwrap_or(unit), units))
    }

    /// What the package or a file of its own has of a unit; `None`: neither is there.
    fn split_units(
        &self,
        skeleton: &Unit<'a>,
        id: DwoId,
    ) -> Result<Option<Box<Units<'a>>>, DwarfError> {
        let package = self.package.as_ref();
        let found = package.map(|package| package.unit(id, &self.units.dwarf));
        let found = match found.transpose()?.flatten() {
            None => self.open_split(skeleton, id)?,
            found => found,
        };
        let Some(mut sections) = found else {
            return Ok(None);
        };
        sections.budget = self.units.sections.budget.clone();
        let sections = skeleton.slice.split.get_or_init(|| Box::new(sections));
        let units = self.units.split(sections, skeleton)?;
        Ok(Some(Box::new(units)))
    }

    fn open_split(
        &self,
        skeleton: &Unit<'a>,
        id: DwoId,
    ) -> Result<Option<DwarfSections<'static>>, DwarfError> {
        let budget = &self.units.sections.budget;
        budget.charge(split::OPEN_COST)?;
        let Some(unit) = SplitUnit::from_skeleton(skeleton, id, &self.units)? else {
            return Ok(None);
        };
        let Some(opened) = (self.open)(&unit).filter(|sections| sections.belongs_to(&unit)) else {
            return Ok(None);
        };
        budget.charge(opened.cost())?;
        Ok(Some(opened.sections))
    }
}
