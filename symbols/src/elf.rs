//! ELF files: segments, identity, unwind sections, function names.
//!
//! Format: [System V ABI (gABI)](https://gabi.xinuos.com/), chapters 4 and 5, with the extensions
//! of the [LSB](https://refspecs.linuxfoundation.org/lsb.shtml) and of GNU binutils.
//! 32-bit and 64-bit files of both byte orders are read.
//! Files are untrusted: sizes are bounded before memory is allocated, and ranges are checked
//! against the size of the file.
//!
//! ```
//! use perfcollect_symbols::elf::ElfFile;
//!
//! let file = std::fs::File::open("/proc/self/exe")?;
//! let elf = ElfFile::open(file)?;
//! assert!(elf.load_segments().iter().any(|segment| segment.executable));
//! let symbols = elf.symbols()?;
//! let first = symbols.iter().next().ok_or("no symbols")?;
//! assert_eq!(symbols.lookup(first.start).map(|symbol| symbol.start), Some(first.start));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::File;
use std::sync::Arc;

use object::elf as raw;

use crate::binding::Aliases;
use crate::build_id::BuildId;
use crate::dwarf::{DwarfSections, PackageSections, SplitSections};
use crate::memory_budget::MemoryUse;
use crate::table::SymbolTable;
use headers::Headers;
use source::Source;

mod call_frames;
mod cfa_register;
mod cie;
mod code;
mod contents;
mod dwarf;
mod dynamic;
mod eh_frame_hdr;
mod error;
mod function_ranges;
mod functions;
mod headers;
mod image;
mod mini_debug_info;
mod notes;
mod plt;
mod relative;
mod rule_time;
mod runtime_calls;
mod source;
mod unwind;

pub use call_frames::{CallFrameRow, CallFrames, FrameSection, Saved};
pub use code::{CodeImage, ImageSegment};
use contents::{check_size, section_data};
pub(crate) use dwarf::LazySection;
pub use error::ElfError;
pub use function_ranges::FunctionRanges;
pub(crate) use image::{DataRange, LoadedImage};
pub use notes::{AltLink, DebugLink, build_id_from_notes};
pub use plt::PltSection;
pub use unwind::{Section, UnwindSections};

/// A `PT_LOAD` segment, which the loader maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadSegment {
    /// Offset in the file.
    pub file_offset: u64,
    /// Size in the file, in bytes.
    pub file_size: u64,
    /// Address before any load bias (SVMA).
    pub address: u64,
    /// Size in memory, in bytes. The bytes after `file_size` are zero.
    pub memory_size: u64,
    /// Whether the loader maps it executable.
    pub executable: bool,
}

/// An ELF file whose headers are parsed. Everything else is read on demand.
#[derive(Debug)]
pub struct ElfFile {
    source: Source,
    headers: Arc<Headers>,
    section_error: Option<ElfError>,
}

impl ElfFile {
    /// Reads the headers of a regular file. `pread` leaves the position of the file unchanged.
    ///
    /// # Errors
    /// The file is not a regular file or not ELF, or its headers are corrupt or truncated.
    pub fn open(file: impl Into<Arc<File>>) -> Result<Self, ElfError> {
        Self::open_charged(file.into(), &Arc::default())
    }

    /// Opens a file whose contents are charged to `memory`.
    pub(crate) fn open_charged(file: Arc<File>, memory: &Arc<MemoryUse>) -> Result<Self, ElfError> {
        Self::new(Source::from_file(file, memory.clone())?)
    }

    /// Reads the headers of a file that a process has mapped; the section headers may be corrupt.
    ///
    /// The loader does not need section headers. A file with corrupt ones is opened without
    /// sections, and [`ElfFile::section_error`] returns the cause.
    ///
    /// # Errors
    /// The file is not a regular file or not ELF, or its other headers are corrupt or truncated.
    pub fn open_mapped(file: impl Into<Arc<File>>) -> Result<Self, ElfError> {
        Self::open_mapped_charged(file.into(), &Arc::default())
    }

    /// Opens a mapped file whose contents are charged to `memory`.
    pub(crate) fn open_mapped_charged(
        file: Arc<File>,
        memory: &Arc<MemoryUse>,
    ) -> Result<Self, ElfError> {
        let source = Source::from_file(file, memory.clone())?;
        let (headers, section_error) = match Headers::read(&source) {
            Ok(headers) => (headers, None),
            Err(error) => match Headers::read_segments(&source) {
                Ok(headers) => (headers, Some(error)),
                Err(_) => return Err(error),
            },
        };
        Ok(Self {
            source,
            headers: Arc::new(headers),
            section_error,
        })
    }

    /// Returns why [`ElfFile::open_mapped`] could not read the section headers.
    #[must_use]
    pub fn section_error(&self) -> Option<&ElfError> {
        self.section_error.as_ref()
    }

    pub(crate) fn take_section_error(&mut self) -> Option<ElfError> {
        self.section_error.take()
    }

    /// Copies an image, such as the vDSO, and reads its headers.
    ///
    /// # Errors
    /// The image is not ELF, or its headers are corrupt or truncated.
    pub fn parse(bytes: &[u8]) -> Result<Self, ElfError> {
        Self::new(Source::from_bytes(bytes.to_vec(), Arc::default()))
    }

    fn new(source: Source) -> Result<Self, ElfError> {
        Ok(Self {
            headers: Arc::new(Headers::read(&source)?),
            source,
            section_error: None,
        })
    }

    /// Returns the `PT_LOAD` segments in file order.
    ///
    /// The segments of a separate debug file have addresses but no contents.
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

    /// Returns the build id, usually 20 bytes.
    #[must_use]
    pub fn build_id(&self) -> Option<BuildId> {
        notes::build_id(&self.source, &self.headers)
    }

    /// Returns the link to the separate debug file (`.gnu_debuglink`).
    #[must_use]
    pub fn debug_link(&self) -> Option<DebugLink> {
        notes::debug_link(&self.source, &self.headers)
    }

    /// Returns the link to the supplementary file, which `dwz` writes (`.gnu_debugaltlink`).
    #[must_use]
    pub fn alt_link(&self) -> Option<AltLink> {
        notes::alt_link(&self.source, &self.headers)
    }

    /// Returns whether the file has a `.symtab`: a separate debug file then adds no symbols.
    #[must_use]
    pub fn has_symtab(&self) -> bool {
        functions::has_symtab(&self.headers)
    }

    /// Returns whether the file has a `.symtab`, and checks its range without reading it.
    ///
    /// # Errors
    /// The table is outside the file, or exceeds the limits of [`ElfFile::symbols`].
    pub fn check_symtab(&self) -> Result<bool, ElfError> {
        functions::check_symtab(&self.source, &self.headers)
    }

    /// Returns whether the file has a `.symtab`, either its own or the one in `.gnu_debugdata`.
    ///
    /// # Errors
    /// As [`ElfFile::check_symtab`], or `.gnu_debugdata` does not decompress.
    pub fn has_all_symbols(&self) -> Result<bool, ElfError> {
        functions::has_all(&self.source, &self.headers)
    }

    /// Reads the sections for unwinding.
    ///
    /// # Errors
    /// A section is larger than 32 MiB, compressed, or outside the file.
    pub fn unwind_sections(&self) -> Result<UnwindSections, ElfError> {
        unwind::sections(&self.source, &self.headers)
    }

    /// Reads the section `.debug_frame`.
    ///
    /// # Errors
    /// The section is larger than 16 MiB, is outside the file, or does not decompress.
    pub fn debug_frame(&self) -> Result<Option<Section>, ElfError> {
        unwind::debug_frame(&self.source, &self.headers)
    }

    /// Reads a section that describes the frames of functions.
    ///
    /// Returns `None` for other machines than x86-64, and if the section describes no function.
    ///
    /// # Errors
    /// As [`ElfFile::debug_frame`] and [`ElfFile::unwind_sections`].
    pub fn call_frames(&self, section: FrameSection) -> Result<Option<CallFrames>, ElfError> {
        CallFrames::read(&self.source, &self.headers, section)
    }

    /// Returns whether the file has the contents of `.eh_frame`.
    pub(crate) fn has_eh_frame(&self) -> bool {
        unwind::has(&self.headers, b".eh_frame")
    }

    /// Reads the functions of `.symtab` and `.dynsym`, and adds `NAME@plt` for each PLT stub.
    ///
    /// A file without `.symtab` uses the one in `.gnu_debugdata`. Among equal symbols `.symtab`
    /// precedes `.dynsym`.
    ///
    /// - Functions are the symbols of type `STT_FUNC`, `STT_GNU_IFUNC` and `STT_NOTYPE` in
    ///   executable sections.
    /// - A symbol without a size extends to the next symbol. No symbol extends past its section.
    /// - At one address a global symbol is preferred to a local one, and a local one to a weak
    ///   one. Then the name with fewer leading underscores is preferred.
    /// - Symbol versions (`@@GLIBC_2.14`) are removed.
    ///
    /// # Errors
    /// A table is outside the file, does not decompress, or exceeds a limit:
    /// [`crate::table::MAX_SYMBOLS`], [`crate::table::MAX_NAME_BYTES`], and for `.gnu_debugdata`
    /// 128 MiB and a dictionary of 64 MiB.
    pub fn symbols(&self) -> Result<SymbolTable, ElfError> {
        self.symbols_with(Aliases::Plain)
    }

    /// Reads the same functions with another choice among aliases.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn symbols_with(&self, aliases: Aliases) -> Result<SymbolTable, ElfError> {
        functions::table(&self.source, &self.headers, aliases)
    }

    /// Reads only `.dynsym` and the PLT stubs: the fallback if the other tables are corrupt.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn dynamic_symbols_with(&self, aliases: Aliases) -> Result<SymbolTable, ElfError> {
        functions::dynamic_table(&self.source, &self.headers, aliases)
    }

    /// Reads the address ranges of functions from `.eh_frame`, which stripped files have too.
    ///
    /// # Errors
    /// As [`ElfFile::unwind_sections`], but for a limit of 64 MiB.
    pub fn function_ranges(&self) -> Result<FunctionRanges, ElfError> {
        FunctionRanges::read(&self.source, &self.headers)
    }

    /// Returns the same address ranges from sections that [`ElfFile::unwind_sections`] has read.
    #[must_use]
    pub fn function_ranges_of(&self, sections: &UnwindSections) -> FunctionRanges {
        FunctionRanges::new(
            sections.eh_frame.clone(),
            sections.eh_frame_hdr.clone(),
            &self.headers,
        )
    }

    /// Returns whether the file has `.debug_info`.
    #[must_use]
    pub fn has_debug_info(&self) -> bool {
        dwarf::has_debug_info(&self.headers)
    }

    /// Returns the DWARF sections for functions and lines, which are read on demand.
    ///
    /// Returns `None` if the file has no `.debug_info`.
    #[must_use]
    pub fn dwarf_sections(&self) -> Option<DwarfSections> {
        dwarf::sections(&self.source, &self.headers)
    }

    /// Reads the DWARF sections for functions and lines into memory.
    ///
    /// Returns `None` if the file has no `.debug_info`.
    ///
    /// # Errors
    /// The sections exceed [`MAX_DWARF_BYTES`](crate::dwarf::MAX_DWARF_BYTES) in total, a section
    /// is outside the file, or it does not decompress.
    pub fn copied_dwarf_sections(&self) -> Result<Option<DwarfSections>, ElfError> {
        dwarf::copied_sections(&self.source, &self.headers)
    }

    /// Reads the DWARF sections of a split unit's file (`.dwo`) into memory.
    ///
    /// Returns `None` if the file has no `.debug_info.dwo`.
    ///
    /// # Errors
    /// As [`ElfFile::copied_dwarf_sections`].
    pub fn split_sections(&self) -> Result<Option<SplitSections>, ElfError> {
        dwarf::split_sections(&self.source, &self.headers)
    }

    /// Reads the DWARF sections of a package of split units (`.dwp`) into memory.
    ///
    /// Returns `None` if the file has no `.debug_cu_index`.
    ///
    /// # Errors
    /// As [`ElfFile::copied_dwarf_sections`].
    pub fn package_sections(&self) -> Result<Option<PackageSections>, ElfError> {
        dwarf::package_sections(&self.source, &self.headers)
    }

    /// Returns the address of a symbol of any type that `.dynsym` defines, by name without version.
    ///
    /// # Errors
    /// As [`ElfFile::symbols`].
    pub fn dynamic_symbol(&self, name: &[u8]) -> Result<Option<u64>, ElfError> {
        dynamic::address_of(&self.source, &self.headers, name)
    }

    /// Reads the PLT sections of an x86-64 file, and skips those that cannot be read.
    #[must_use]
    pub fn plt_sections(&self) -> Vec<PltSection> {
        plt::sections(&self.source, &self.headers)
    }

    /// Reads the loaded part of an x86-64 file, to analyze its code.
    ///
    /// Returns `None` for other machines.
    ///
    /// # Errors
    /// The segments are larger than 64 MiB, or a part is outside the file.
    pub fn code_image(&self) -> Result<Option<CodeImage>, ElfError> {
        CodeImage::read(&self.source, &self.headers)
    }

    /// Returns the contents by address, which are read on demand.
    pub(crate) fn loaded_image(&self) -> LoadedImage {
        LoadedImage::new(self.source.clone(), self.headers.clone())
    }

    /// Reads the .NET code of a NativeAOT program, whose `.eh_frame` does not describe epilogues.
    #[must_use]
    pub fn managed_code(&self) -> Option<Section> {
        let mut sections = self.headers.sections.iter();
        let section = sections.find(|section| {
            section.name == b"__managedcode" && section.has_data() && section.is_executable()
        })?;
        let what = "__managedcode";
        let data = section_data(
            &self.source,
            &self.headers,
            section,
            what,
            MAX_MANAGED_BYTES,
        )
        .ok()?;
        Some(Section {
            address: section.address,
            data: data.into(),
        })
    }
}

/// Limit for `__managedcode`. A large server has some 20 MiB.
const MAX_MANAGED_BYTES: u64 = 64 << 20;
