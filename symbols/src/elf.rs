//! ELF files: segments, identity, unwind sections, function names.
//!
//! Format: System V ABI chapter 4 and 5, the Linux extensions of the LSB and of GNU binutils. 32 and 64 bits, both
//! byte orders. Nothing in a file is believed: sizes are bounded before memory is taken, ranges are checked against the file.

use std::fs::File;

use object::elf as raw;

use crate::binding::Aliases;
use crate::build_id::BuildId;
use crate::dwarf::{DwarfSections, PackageSections, SplitSections};
use crate::table::SymbolTable;
use headers::Headers;
use source::Source;

mod contents;
mod dwarf;
mod dynamic;
mod eh_frame_hdr;
mod error;
mod function_ranges;
mod functions;
mod headers;
mod mini_debug_info;
mod notes;
mod plt;
mod source;
mod unwind;

use contents::{check_size, section_data};
pub(crate) use dwarf::LazySection;
pub use error::ElfError;
pub use function_ranges::FunctionRanges;
pub use notes::{AltLink, DebugLink, build_id_from_notes};
pub use plt::StubSection;
pub use unwind::{Section, UnwindSections};

/// A `PT_LOAD` segment: what the loader maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSegment {
    /// Where it starts in the file, in bytes.
    pub file_offset: u64,
    /// Bytes it has there.
    pub file_size: u64,
    /// Where it starts in memory, before any load bias.
    pub address: u64,
    /// Bytes it has there; those beyond `file_size` are zero.
    pub memory_size: u64,
    /// Whether it is mapped executable.
    pub executable: bool,
}

/// An ELF file whose headers were read. The rest is read on demand.
#[derive(Debug)]
pub struct ElfFile<'a> {
    source: Source<'a>,
    headers: Headers,
    section_error: Option<ElfError>,
}

impl<'a> ElfFile<'a> {
    /// Reads the headers of a regular file, by pread: the file's position stays.
    ///
    /// # Errors
    /// Not a regular file, not ELF, damaged or cut off headers.
    pub fn open(file: &'a File) -> Result<Self, ElfError> {
        Self::new(Source::from_file(file)?)
    }

    /// The same of a file that runs: running takes no section headers, so one of which they are damaged is taken without
    /// sections, and [`ElfFile::damage`] tells.
    ///
    /// # Errors
    /// Not a regular file, not ELF, other headers damaged or cut off.
    pub fn open_mapped(file: &'a File) -> Result<Self, ElfError> {
        let source = Source::from_file(file)?;
        Self::new(source).or_else(|error| match Headers::read_segments(source) {
            Ok(headers) => Ok(Self {
                source,
                headers,
                section_error: Some(error),
            }),
            Err(_) => Err(error),
        })
    }

    /// Why the sections could not be read.
    #[must_use]
    pub fn section_error(&self) -> Option<&ElfError> {
        self.section_error.as_ref()
    }

    /// Reads the headers of an image in memory, such as the vDSO.
    ///
    /// # Errors
    /// As [`ElfFile::open`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ElfError> {
        Self::new(Source::Bytes(bytes))
    }

    fn new(source: Source<'a>) -> Result<Self, ElfError> {
        Ok(Self {
            source,
            headers: Headers::read(source)?,
            section_error: None,
        })
    }

    /// The `PT_LOAD` segments in the file's order. Those of a separate debug file have addresses but no contents.
    #[must_use]
    pub fn load_segments(&self) -> Vec<LoadSegment> {
        let loads = self
            .headers
            .segments
            .iter()
            .filter(|segment| segment.kind == raw::PT_LOAD);
        loads
            .map(|segment| LoadSegment {
                file_offset: segment.offset,
                file_size: segment.file_size,
                address: segment.address,
                memory_size: segment.memory_size,
                executable: segment.flags.contains(raw::PF_X),
            })
            .collect()
    }

    /// The build id, 20 bytes as a rule, at most 64.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        notes::build_id(self.source, &self.headers)
    }

    /// The debug file that this file names.
    #[must_use]
    pub fn debug_link(&self) -> Option<DebugLink> {
        notes::debug_link(self.source, &self.headers)
    }

    /// The file that has what this one's debug information has in common with others'.
    #[must_use]
    pub fn alt_link(&self) -> Option<AltLink> {
        notes::alt_link(self.source, &self.headers)
    }

    /// Whether the file has a `.symtab`, so that a separate debug file would add nothing to the names.
    #[must_use]
    pub fn has_symtab(&self) -> bool {
        functions::has_symtab(&self.headers)
    }

    /// The same, and whether it lies in the file: a look that reads nothing.
    ///
    /// # Errors
    /// It does not, or is over the limits of [`ElfFile::symbols`].
    pub fn check_symtab(&self) -> Result<bool, ElfError> {
        functions::check_symtab(self.source, &self.headers)
    }

    /// Whether the file names all its functions: by a `.symtab`, or by the one in `.gnu_debugdata`.
    ///
    /// # Errors
    /// As [`ElfFile::check_symtab`], and `.gnu_debugdata` does not decompress.
    pub fn has_all_symbols(&self) -> Result<bool, ElfError> {
        functions::has_all(self.source, &self.headers)
    }

    /// Copies of the sections for unwinding.
    ///
    /// # Errors
    /// A section is larger than 64 MiB, lies outside the file or does not decompress.
    pub fn unwind_sections(&self) -> Result<UnwindSections, ElfError> {
        unwind::sections(self.source, &self.headers)
    }

    /// Functions by address, from `.symtab` and `.dynsym` (the former first among equals), and `NAME@plt` for stubs. Where there is no
    /// `.symtab`, that of the file in `.gnu_debugdata` stands for it.
    ///
    /// These are the symbols of type `STT_FUNC`, `STT_GNU_IFUNC` and `STT_NOTYPE` that lie in an executable section. A symbol
    /// without a size reaches to the next symbol, none reaches past the end of its section. For one address a global name
    /// is preferred to a local one, that to a weak one; then the one with fewer leading underscores. Versions
    /// (`@@GLIBC_2.14`) are cut off.
    ///
    /// # Errors
    /// A table lies outside the file, does not decompress or is over the limits: [`crate::table::MAX_SYMBOLS`],
    /// [`crate::table::MAX_NAME_BYTES`], and for `.gnu_debugdata` 128 MiB, made with a dictionary of 64 MiB.
    pub fn symbols(&self) -> Result<SymbolTable, ElfError> {
        self.symbols_with(Aliases::Plain)
    }

    /// The same with another choice of names.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn symbols_with(&self, aliases: Aliases) -> Result<SymbolTable, ElfError> {
        functions::table(self.source, &self.headers, aliases)
    }

    /// Those from `.dynsym` and of stubs only: what is left where the others are damaged.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn dynamic_symbols_with(&self, aliases: Aliases) -> Result<SymbolTable, ElfError> {
        functions::dynamic_table(self.source, &self.headers, aliases)
    }

    /// Where functions begin and end, also where the file has no symbols.
    ///
    /// # Errors
    /// As [`ElfFile::unwind_sections`].
    pub fn function_ranges(&self) -> Result<FunctionRanges, ElfError> {
        FunctionRanges::read(self.source, &self.headers)
    }

    /// Whether the file has DWARF of its functions.
    #[must_use]
    pub fn has_debug_info(&self) -> bool {
        dwarf::has_debug_info(&self.headers)
    }

    /// The sections that tell of functions and lines, read when they are needed; `None`: there are none.
    #[must_use]
    pub fn dwarf_sections(&self) -> Option<DwarfSections<'_>> {
        dwarf::sections(self.source, &self.headers)
    }

    /// Copies of the same.
    ///
    /// # Errors
    /// They have more than [`MAX_DWARF_BYTES`](crate::dwarf::MAX_DWARF_BYTES) together, lie outside the file or do not decompress.
    pub fn copied_dwarf_sections(&self) -> Result<Option<DwarfSections<'static>>, ElfError> {
        dwarf::copied_sections(self.source, &self.headers)
    }

    /// Copies of the same of the file of a split unit (`.dwo`).
    ///
    /// # Errors
    /// As [`ElfFile::copied_dwarf_sections`].
    pub fn split_sections(&self) -> Result<Option<SplitSections>, ElfError> {
        dwarf::split_sections(self.source, &self.headers)
    }

    /// Copies of the same of a package of split units (`.dwp`).
    ///
    /// # Errors
    /// As [`ElfFile::copied_dwarf_sections`].
    pub fn package_sections(&self) -> Result<Option<PackageSections>, ElfError> {
        dwarf::package_sections(self.source, &self.headers)
    }

    /// The address of a symbol of any kind that the file defines in `.dynsym`, by its name without version.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn dynamic_symbol(&self, name: &[u8]) -> Result<Option<u64>, ElfError> {
        dynamic::address_of(self.source, &self.headers, name)
    }

    /// Addresses of the stubs through which the file calls others, by section, with what is pushed in them.
    #[must_use]
    pub fn stub_sections(&self) -> Vec<StubSection> {
        plt::sections(self.source, &self.headers)
    }

    /// The code that the .NET compiler made, in a NativeAOT program: its `.eh_frame` tells of no epilogue.
    #[must_use]
    pub fn managed_code(&self) -> Option<Section> {
        let mut sections = self.headers.sections.iter();
        let section = sections.find(|section| {
            section.name == b"__managedcode" && section.has_data() && section.is_executable()
        })?;
        let what = "managed code";
        let data =
            section_data(self.source, &self.headers, section, what, MAX_MANAGED_BYTES).ok()?;
        Some(Section {
            address: section.address,
            data,
        })
    }
}

/// A large server has some 20 MiB.
const MAX_MANAGED_BYTES: u64 = 64 << 20;
