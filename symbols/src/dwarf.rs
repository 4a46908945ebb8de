//! The functions of the source, inlined ones included, and the lines, by DWARF (versions 2 to 5).
//!
//! ```no_run
//! use perfcollect_symbols::{demangle::demangle, elf::ElfFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("/opt/app/program")?;
//! if let Some(sections) = ElfFile::open(&file)?.dwarf_sections()? {
//!     let debug_info = sections.debug_info()?;
//!     for frame in debug_info.frames(0x1234)? {
//!         println!("{:?} at {:?}:{:?}", frame.name.map(demangle), frame.file, frame.line);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

use std::sync::Arc;

use addr2line::{Context, LookupContinuation, LookupResult, SplitDwarfLoad};
use elsa::FrozenVec;
use gimli::{AbbreviationsCacheStrategy, Dwarf, DwarfPackage, RunTimeEndian, SectionId};
use thiserror::Error;

use guard::{Guard, Guarded};
pub use split::{PackageSections, SplitSections, SplitUnit};

mod guard;
mod split;

/// Longest name of a function taken, in bytes.
const MAX_NAME_BYTES: usize = 64 << 10;
/// Most functions inlined into each other; compilers stop long before. Of more, none is told.
pub const MAX_FRAMES: usize = 256;

/// Why debug information told nothing.
#[derive(Debug, Error)]
pub enum DwarfError {
    /// It contradicts itself.
    #[error("DWARF: {0}")]
    Damaged(#[source] gimli::Error),
    /// It leads to more steps, or deeper, than any honest one.
    #[error("DWARF: it takes too much work to read")]
    TooMuchWork,
}

/// Copies of the sections that tell of functions and lines.
pub struct DwarfSections {
    sections: gimli::DwarfSections<Vec<u8>>,
    endian: RunTimeEndian,
    guard: Guard,
    supplementary: Option<gimli::DwarfSections<Vec<u8>>>,
    package: Option<PackageSections>,
    /// Those that were asked for so far.
    split: FrozenVec<Box<SplitSections>>,
}

fn run_time_endian(is_big_endian: bool) -> RunTimeEndian {
    match is_big_endian {
        false => RunTimeEndian::Little,
        true => RunTimeEndian::Big,
    }
}

impl DwarfSections {
    /// Takes the sections that are needed, by their names such as `.debug_info`; one that is not there is empty.
    ///
    /// # Errors
    /// Those of `section`.
    pub fn load<E>(
        is_big_endian: bool,
        mut section: impl FnMut(&'static str) -> Result<Vec<u8>, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            sections: gimli::DwarfSections::load(|id| match id {
                SectionId::DebugAbbrev
                | SectionId::DebugAddr
                | SectionId::DebugAranges
                | SectionId::DebugInfo
                | SectionId::DebugLine
                | SectionId::DebugLineStr
                | SectionId::DebugRanges
                | SectionId::DebugRngLists
                | SectionId::DebugStr
                | SectionId::DebugStrOffsets => section(id.name()),
                _ => Ok(Vec::new()),
            })?,
            endian: run_time_endian(is_big_endian),
            guard: Guard::default(),
            supplementary: None,
            package: None,
            split: FrozenVec::new(),
        })
    }

    /// Adds what several files have in common, as `dwz` moves it to a file of its own: the one that
    /// [`ElfFile::alt_link`](crate::elf::ElfFile::alt_link) names.
    pub fn set_supplementary(&mut self, common: Self) {
        self.supplementary = Some(common.sections).filter(|_| common.endian == self.endian);
    }

    /// Adds the package of split units, `FILE.dwp`.
    pub fn set_package(&mut self, package: PackageSections) {
        self.package = Some(package).filter(|package| package.endian == self.endian);
    }

    /// Reads what units there are; the rest is read when an address asks for it. Of split units only what is in the package is known.
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
    pub fn debug_info_with<'a>(
        &'a self,
        open: impl Fn(&SplitUnit) -> Option<SplitSections> + 'a,
    ) -> Result<DebugInfo<'a>, DwarfError> {
        self.guard.enter();
        let mut dwarf = self.borrow(&self.sections);
        if let Some(common) = &self.supplementary {
            dwarf.set_sup(self.borrow(common));
        }
        let explain = |error| self.guard.explain(error);
        let package = self.package.as_ref();
        Ok(DebugInfo {
            context: Context::from_dwarf(dwarf).map_err(explain)?,
            package: package
                .map(|package| package.borrow(&self.guard))
                .transpose()
                .map_err(explain)?,
            sections: self,
            open: Box::new(open),
        })
    }

    fn borrow<'a>(&'a self, sections: &'a gimli::DwarfSections<Vec<u8>>) -> Dwarf<Guarded<'a>> {
        let mut dwarf = sections.borrow(|bytes| Guarded::new(bytes, self.endian, &self.guard));
        // Of Rust programs five units have one table; of what dwz makes, all.
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        dwarf
    }
}

/// A function of the source at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFrame<'a> {
    /// Its name as the linker sees it, where the compiler tells that, else as the source has it. Not demangled.
    pub name: Option<&'a [u8]>,
    /// The file, of the innermost function where the address is, of the others where the call was inlined.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
}

type OpenSplit<'a> = Box<dyn Fn(&SplitUnit) -> Option<SplitSections> + 'a>;

/// Addresses to functions and lines.
pub struct DebugInfo<'a> {
    context: Context<Guarded<'a>>,
    sections: &'a DwarfSections,
    package: Option<DwarfPackage<Guarded<'a>>>,
    open: OpenSplit<'a>,
}

impl<'a> DebugInfo<'a> {
    /// The functions at an address of the file, innermost first: all but the last are inlined into the next. None if nothing is known.
    ///
    /// # Errors
    /// What tells of this address is damaged, or all addresses together took too much work.
    pub fn frames(&self, address: u64) -> Result<Vec<SourceFrame<'a>>, DwarfError> {
        if address == u64::MAX {
            return Ok(Vec::new());
        }
        let guard = &self.sections.guard;
        guard.enter();
        self.read_frames(address)
            .map_err(|error| guard.explain(error))
    }

    fn read_frames(&self, address: u64) -> Result<Vec<SourceFrame<'a>>, gimli::Error> {
        let mut lookup = self.context.find_frames(address);
        let mut found = loop {
            lookup = match lookup {
                LookupResult::Output(found) => break found?,
                LookupResult::Load { load, continuation } => {
                    // addr2line wants it so; no other thread sees it.
                    #[allow(clippy::arc_with_non_send_sync)]
                    let unit = self.split_unit(&load)?.map(Arc::new);
                    continuation.resume(unit)
                }
            };
        };
        let mut frames = Vec::new();
        while let Some(frame) = found.next()? {
            if frames.len() == MAX_FRAMES {
                return Ok(Vec::new());
            }
            let name = frame.function.map(|function| function.name.bytes());
            let (file, line) = frame
                .location
                .map_or((None, None), |location| (location.file, location.line));
            frames.push(SourceFrame {
                name: name
                    .transpose()?
                    .filter(|name| !name.is_empty() && name.len() <= MAX_NAME_BYTES),
                file: file.map(str::to_owned),
                line,
            });
        }
        Ok(frames)
    }

    /// What the package or a file of its own has of a unit; `None`: neither is there.
    fn split_unit(
        &self,
        load: &SplitDwarfLoad<Guarded<'a>>,
    ) -> Result<Option<Dwarf<Guarded<'a>>>, gimli::Error> {
        if let Some(package) = &self.package
            && let Some(dwarf) = package.find_cu(load.dwo_id, &load.parent)?
        {
            return Ok(Some(dwarf));
        }
        let DwarfSections { guard, split, .. } = self.sections;
        guard.charge(split::WORK_OF_OPENING)?;
        let Some(unit) = SplitUnit::of(load)? else {
            return Ok(None);
        };
        let Some(sections) = (self.open)(&unit).filter(|sections| sections.holds(&unit)) else {
            return Ok(None);
        };
        guard.charge(sections.work())?;
        let mut dwarf = split.push_get(Box::new(sections)).borrow(guard);
        dwarf.make_dwo(&load.parent);
        Ok(Some(dwarf))
    }
}
