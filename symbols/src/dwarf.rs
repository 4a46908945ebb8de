//! Functions, inlined functions and lines of addresses, from DWARF debug information.
//!
//! Format: [DWARF](https://dwarfstd.org/), versions 2 to 5.
//!
//! ```
//! use perfcollect_symbols::{demangle::demangle, dwarf::Detail, elf::ElfFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("/proc/self/exe")?;
//! let elf = ElfFile::open(file)?;
//! let symbols = elf.symbols()?;
//! let address = symbols.iter().next().ok_or("no symbols")?.start;
//! if let Some(sections) = elf.dwarf_sections() {
//!     let debug_info = sections.into_debug_info()?;
//!     for frame in debug_info.frames(address, Detail::Lines)? {
//!         println!("{:?} at {:?}:{:?}", frame.name.map(demangle), frame.file, frame.line);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use gimli::DwoId;
use self_cell::self_cell;
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

/// Limit of frames at one address. Compilers inline to a much smaller depth.
///
/// Above it, the innermost frames are replaced by one frame with the name [`TRUNCATED`].
pub const MAX_FRAMES: usize = 256;
/// Name of the frame that replaces inlined functions above [`MAX_FRAMES`].
pub const TRUNCATED: &[u8] = b"[truncated: more inlined functions]";

/// Why debug information cannot be used.
#[derive(Clone, Debug, Error)]
pub enum DwarfError {
    /// The debug information is corrupt.
    #[error("corrupt DWARF: {0}")]
    Corrupt(#[from] gimli::Error),
    /// A section is outside the file, does not decompress, or [`MAX_DWARF_BYTES`] is exceeded.
    #[error("{0}")]
    Unreadable(#[source] Arc<ElfError>),
    /// Reading exceeds the step limit, which no valid debug information is known to exceed.
    #[error("cannot read DWARF: too many steps")]
    BudgetExceeded,
}

impl DwarfSections {
    /// Reads the units and their address ranges. The rest is read when it is looked up.
    ///
    /// Split units are read from the package only.
    ///
    /// # Errors
    /// The list of units or the index of the package is corrupt, a section cannot be read, or
    /// reading takes too many steps.
    pub fn into_debug_info(self) -> Result<DebugInfo, DwarfError> {
        self.into_debug_info_with(|_| None)
    }

    /// Reads the units, and opens the files of split units that are not in the package.
    ///
    /// `open` is called once per split unit, when an address in it is looked up.
    ///
    /// # Errors
    /// As [`DwarfSections::into_debug_info`].
    pub fn into_debug_info_with(
        self,
        open: impl Fn(&SplitUnit) -> Option<SplitSections> + Send + Sync + 'static,
    ) -> Result<DebugInfo, DwarfError> {
        let open = Box::new(open);
        let cell = DebugInfoCell::try_new(self, |sections| ParsedSections::new(sections, open));
        cell.map(DebugInfo)
    }
}

/// The data to read for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Functions only.
    Functions,
    /// Functions, files and lines.
    Lines,
}

/// A function at an address, inlined or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SourceFrame<'a> {
    /// Linkage name, or else the name in the source. Not demangled.
    pub name: Option<&'a [u8]>,
    /// File of the address in the innermost function; file of the inlined call in all others.
    pub file: Option<&'a str>,
    /// Line in `file`.
    pub line: Option<u32>,
}

type OpenSplit = Box<dyn Fn(&SplitUnit) -> Option<SplitSections> + Send + Sync>;

/// Functions and lines by address.
///
/// It owns the sections, and reads on demand. Threads may share it.
pub struct DebugInfo(DebugInfoCell);

self_cell! {
    struct DebugInfoCell {
        owner: DwarfSections,
        #[not_covariant]
        dependent: ParsedSections,
    }
}

impl DebugInfo {
    /// Returns the functions at an address (SVMA), innermost first.
    ///
    /// Each function is inlined into the next one. The result is empty if the address has no debug
    /// information. It is one frame without a name if the address has only a line.
    ///
    /// # Errors
    /// The debug information of the address is corrupt or cannot be read, or all lookups together
    /// take too many steps.
    pub fn frames(&self, address: u64, detail: Detail) -> Result<Vec<SourceFrame<'_>>, DwarfError> {
        self.0
            .with_dependent(|_, parsed| parsed.frames(address, detail))
    }
}

/// The sections, of which as much is parsed as was looked up.
struct ParsedSections<'a> {
    units: Units<'a>,
    package: Option<Package<'a>>,
    open: OpenSplit,
}

impl<'a> ParsedSections<'a> {
    fn new(sections: &'a DwarfSections, open: OpenSplit) -> Result<Self, DwarfError> {
        let budget = &sections.budget;
        let package = sections.package.as_ref();
        let package = package.map(|package| package.borrow(budget)).transpose();
        let parsed = package.map_err(DwarfError::from).and_then(|package| {
            Ok(Self {
                units: Units::with_ranges(sections)?,
                package,
                open,
            })
        });
        parsed.map_err(|error| budget.explain(error))
    }

    fn frames(&self, address: u64, detail: Detail) -> Result<Vec<SourceFrame<'_>>, DwarfError> {
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

    /// Returns the functions at an address, or `None` if the unit has neither function nor line.
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
            let path = |(lines, index): (&'s Lines<'a>, _)| lines.path(index, unit, units);
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
        let (inlined, mut is_truncated) = function.inlined_at(address, code, code_units)?;
        let mut frames = Vec::with_capacity(inlined.len() + 1);
        let mut location = here;
        for inner in inlined.iter().rev() {
            let name = match std::mem::take(&mut is_truncated) {
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

    /// Returns the unit with the functions: the split unit of a skeleton, else the unit itself.
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

    /// Reads a split unit from the package or its own file. Returns `None` if neither has it.
    fn split_units(
        &self,
        skeleton: &Unit<'a>,
        id: DwoId,
    ) -> Result<Option<Box<Units<'a>>>, DwarfError> {
        let package = self.package.as_ref();
        let packaged = package.map(|package| package.unit(id, &self.units.dwarf));
        let sections = match packaged.transpose()?.flatten() {
            None => self.open_split(skeleton, id)?,
            packaged => packaged,
        };
        let Some(mut sections) = sections else {
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
    ) -> Result<Option<DwarfSections>, DwarfError> {
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
