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

use addr2line::{Context, LookupResult};
use gimli::{AbbreviationsCacheStrategy, RunTimeEndian, SectionId};
use thiserror::Error;

use guard::{Guard, Guarded};

mod guard;

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
#[derive(Debug)]
pub struct DwarfSections {
    sections: gimli::DwarfSections<Vec<u8>>,
    endian: RunTimeEndian,
    guard: Guard,
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
            endian: match is_big_endian {
                false => RunTimeEndian::Little,
                true => RunTimeEndian::Big,
            },
            guard: Guard::default(),
        })
    }

    /// Reads what units there are; the rest is read when an address asks for it.
    ///
    /// # Errors
    /// The list of units is damaged.
    pub fn debug_info(&self) -> Result<DebugInfo<'_>, DwarfError> {
        self.guard.enter();
        let mut dwarf = self
            .sections
            .borrow(|section| Guarded::new(section, self.endian, &self.guard));
        // Of Rust programs five units have one table.
        dwarf.populate_abbreviations_cache(AbbreviationsCacheStrategy::Duplicates);
        let context = Context::from_dwarf(dwarf).map_err(|error| self.guard.explain(error))?;
        Ok(DebugInfo {
            context,
            guard: &self.guard,
        })
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

/// Addresses to functions and lines.
pub struct DebugInfo<'a> {
    context: Context<Guarded<'a>>,
    guard: &'a Guard,
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
        self.guard.enter();
        self.read_frames(address)
            .map_err(|error| self.guard.explain(error))
    }

    fn read_frames(&self, address: u64) -> Result<Vec<SourceFrame<'a>>, gimli::Error> {
        // What is in files of its own (split DWARF) is passed over.
        let mut found = match self.context.find_frames(address) {
            LookupResult::Output(found) => found?,
            load => load.skip_all_loads()?,
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
}
