//! Symbols, debug information and ReadyToRun tables of one file.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::debug_files::{DebugFile, DebugFiles, Problem};
use super::frame::{Evidence, Frame, Unresolved};
use super::go::{self, GoFunctions};
use super::images::Images;
use super::{FileIdentity, Options};
use crate::binding::Aliases;
use crate::build_id::BuildId;
use crate::dwarf::{DebugInfo, Detail, SourceFrame};
use crate::elf::{
    CallFrames, DebugLink, ElfError, ElfFile, FrameSection, FunctionRanges, LoadSegment,
};
use crate::go::GoFunction;
use crate::memory_budget::{HeldMemory, MemoryUse};
use crate::process::Root;
use crate::table::{Symbol, SymbolTable};

/// A file to symbolize.
#[derive(Debug)]
pub struct FileSource {
    /// The contents.
    pub content: FileContent,
    /// Absolute path, beside which debug files may be.
    pub path: PathBuf,
    /// Root directories to search for debug files, in order.
    ///
    /// Without any, only the directories and caches of [`Options`] are searched.
    pub roots: Vec<Arc<Root>>,
}

impl FileSource {
    /// Opens a file of this host.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().canonicalize()?;
        Ok(Self {
            content: FileContent::File(Arc::new(File::open(&path)?)),
            path,
            roots: vec![Arc::new(Root::host()?)],
        })
    }
}

/// The contents of a file.
#[derive(Debug)]
pub enum FileContent {
    /// An open file.
    File(Arc<File>),
    /// An ELF image in memory, such as the vDSO.
    Image(Vec<u8>),
    /// Nothing: the ELF file with this build id is not here, but its debug file may be.
    Missing(BuildId),
}

/// Symbolizes the addresses of one file.
///
/// Everything is read on demand and once. Threads may share it.
pub struct FileSymbolizer {
    is_elf: bool,
    build_id: Option<BuildId>,
    debug_link: Option<DebugLink>,
    own: Option<ElfFile>,
    segments: Vec<LoadSegment>,
    images: Option<Images>,
    debug_files: Arc<DebugFiles>,
    debug_file: OnceLock<Option<DebugFile>>,
    tables: OnceLock<Vec<(SymbolTable, Evidence)>>,
    ranges: OnceLock<FunctionRanges>,
    debug_info: OnceLock<Option<DebugInfo>>,
    go: GoFunctions,
}

impl FileSymbolizer {
    pub(super) fn new(source: FileSource, options: Arc<Options>, memory: Arc<MemoryUse>) -> Self {
        let FileSource {
            content,
            path,
            roots,
        } = source;
        let owner = match &content {
            FileContent::File(file) => file.metadata().ok().map(|metadata| metadata.uid()),
            FileContent::Image(_) | FileContent::Missing(_) => None,
        };
        let debug_files = Arc::new(DebugFiles {
            path,
            roots,
            owner,
            options,
            memory,
            problems: Mutex::default(),
        });
        let memory = debug_files.memory.clone();
        let _reading = memory.read();
        let mut build_id = None;
        let (own, file) = match content {
            FileContent::File(file) => {
                let elf = ElfFile::open_mapped_charged(file.clone(), &debug_files.memory);
                (elf, Some(file))
            }
            FileContent::Image(bytes) => (ElfFile::parse(&bytes), None),
            FileContent::Missing(id) => {
                build_id = Some(id);
                (Err(ElfError::NotElf), None)
            }
        };
        let is_other = matches!(
            own,
            Err(ElfError::NotElf | ElfError::NotRegular | ElfError::Read(_))
        );
        let is_elf = build_id.is_some() || !is_other;
        let own = match own {
            Ok(mut own) => {
                if let Some(error) = own.take_section_error() {
                    debug_files.report(error);
                }
                Some(own)
            }
            Err(ElfError::NotElf) => None,
            Err(error) => {
                debug_files.report(error);
                None
            }
        };
        Self {
            build_id: build_id.or_else(|| own.as_ref()?.build_id()),
            debug_link: own.as_ref().and_then(ElfFile::debug_link),
            is_elf,
            segments: own.as_ref().map(ElfFile::load_segments).unwrap_or_default(),
            own,
            images: file.map(|file| Images::new(file, debug_files.path.clone())),
            debug_files,
            debug_file: OnceLock::new(),
            tables: OnceLock::new(),
            ranges: OnceLock::new(),
            debug_info: OnceLock::new(),
            go: GoFunctions::default(),
        }
    }

    /// Returns whether the file is ELF, even if its headers are corrupt.
    #[must_use]
    pub fn is_elf(&self) -> bool {
        self.is_elf
    }

    /// Returns what identifies the debug file.
    #[must_use]
    pub fn identity(&self) -> FileIdentity<'_> {
        FileIdentity {
            path: &self.debug_files.path,
            build_id: self.build_id.as_ref(),
            debug_link: self.debug_link.as_ref(),
        }
    }

    /// Keeps other files of the symbolizer from being read beyond 32 MiB after this one was, until
    /// the returned value is dropped. Drop the file before it.
    ///
    /// A thread must have at most one such value: it would wait for itself.
    #[must_use]
    pub fn hold_memory(&self) -> impl Drop + use<> {
        HeldMemory::new(self.debug_files.memory.clone())
    }

    /// Returns the path of the separate debug file, in its root directory.
    #[must_use]
    pub fn debug_file_path(&self) -> Option<&Path> {
        let _reading = self.debug_files.memory.read();
        self.debug_file()?.path()
    }

    /// Returns whether debug information was read, which takes most of the memory.
    #[must_use]
    pub fn has_read_debug_info(&self) -> bool {
        self.debug_info.get().is_some_and(Option::is_some)
    }

    /// Returns the address (SVMA) of the code at a file offset of an ELF file.
    #[must_use]
    pub fn address_of(&self, file_offset: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| {
            let delta = file_offset.checked_sub(segment.file_offset)?;
            let is_inside = segment.executable && delta < segment.file_size;
            is_inside.then(|| segment.address.checked_add(delta))?
        })
    }

    /// Returns the functions at a file offset, innermost first: of an ELF file, or else of the
    /// ReadyToRun image there. Starts of functions are SVMAs.
    ///
    /// # Errors
    /// As [`FileSymbolizer::frames`] and [`FileSymbolizer::method`].
    pub fn frames_at_offset(&self, file_offset: u64) -> Result<Vec<Frame<'_>>, Unresolved> {
        match self.address_of(file_offset) {
            Some(address) => self.frames(address),
            None => self.method(file_offset).map(|method| vec![method]),
        }
    }

    /// Returns the method at a file offset, from the ReadyToRun image there.
    ///
    /// # Errors
    /// - [`Unresolved::Unmapped`]: no image has code there.
    /// - [`Unresolved::Image`]: the image cannot be used. If it is corrupt,
    ///   [`FileSymbolizer::take_problems`] returns the cause, too.
    /// - [`Unresolved::NoMethod`]: the image names no method there.
    pub fn method(&self, file_offset: u64) -> Result<Frame<'_>, Unresolved> {
        let images = self.images.as_ref().ok_or(Unresolved::Unmapped)?;
        let frame = images.frame(file_offset, &self.debug_files);
        if let Err(Unresolved::Image(error)) = &frame
            && error.is_corrupt()
        {
            self.debug_files.report(*error);
        }
        frame
    }

    /// Returns the functions at an address (SVMA), innermost first.
    ///
    /// Corrupt debug information is no error: frames then have symbols only, and
    /// [`FileSymbolizer::take_problems`] returns the cause.
    ///
    /// # Errors
    /// [`Unresolved::NoSymbol`]: neither symbols, debug information nor a Go function table name it.
    pub fn frames(&self, address: u64) -> Result<Vec<Frame<'_>>, Unresolved> {
        let _reading = self.debug_files.memory.read();
        let symbol = self.symbol_of(address);
        let options = &self.debug_files.options;
        let (chain, chain_evidence) = match symbol {
            Some(_) if !options.inlined && !options.lines => (Vec::new(), Evidence::Dwarf),
            _ => self.source_frames(address),
        };
        let (outer, inlined) = match chain.split_last() {
            Some((outer, inlined)) => (Some(outer), inlined),
            None => (None, &[][..]),
        };
        let mut frames = Vec::with_capacity(chain.len().max(1));
        if options.inlined {
            let inlined = inlined.iter();
            frames.extend(inlined.filter_map(|frame| inlined_frame(frame, chain_evidence)));
        }
        let named = match symbol {
            Some((symbol, _)) if is_blank(symbol.name) => None,
            Some((symbol, evidence)) => Some(Frame {
                start: Some(symbol.start),
                ..Frame::new(symbol.name, evidence)
            }),
            None => outer
                .and_then(|outer| outer.name)
                .map(|name| Frame::new(name, chain_evidence)),
        };
        let start = || {
            let by_symbol = symbol.map(|(symbol, _)| symbol.start);
            by_symbol.or_else(|| self.ranges().lookup(address).map(|range| range.start))
        };
        let outermost = match named {
            Some(named) => named,
            None if frames.is_empty() => return Err(Unresolved::NoSymbol { start: start() }),
            None => Frame {
                start: start(),
                ..Frame::new(&b""[..], chain_evidence)
            },
        };
        // Without inlined frames, the location is that of the address, which is the innermost.
        let location = match options.inlined {
            true => outer,
            false => chain.first(),
        };
        frames.push(Frame {
            file: location.and_then(|frame| frame.file),
            line: location.and_then(|frame| frame.line),
            ..outermost
        });
        Ok(frames)
    }

    /// Returns the symbol at an address (SVMA), without debug information. Functions of Go programs
    /// have one even if the file is stripped.
    #[must_use]
    pub fn symbol(&self, address: u64) -> Option<Symbol<'_>> {
        let _reading = self.debug_files.memory.read();
        self.symbol_of(address).map(|(symbol, _)| symbol)
    }

    /// Returns whether unwind information of the file covers an address (SVMA). Then [`Self::symbol`] is not a
    /// symbol without a size that ends before.
    #[must_use]
    pub fn has_unwind_info(&self, address: u64) -> bool {
        let _reading = self.debug_files.memory.read();
        self.ranges().lookup(address).is_some()
    }

    fn symbol_of(&self, address: u64) -> Option<(Symbol<'_>, Evidence)> {
        let symbols = self.tables().iter();
        let mut symbols =
            symbols.filter_map(|(table, evidence)| Some((table.lookup(address)?, *evidence)));
        let symbol = match self.debug_files.options.aliases {
            Aliases::AsPerf => symbols.next(),
            Aliases::Plain => symbols.find(|(symbol, _)| {
                symbol.is_sized || !self.ranges().is_in_later_function(symbol.start, address)
            }),
        };
        if let Some((Symbol { is_sized: true, .. }, _)) = symbol {
            return symbol;
        }
        // A symbol without a size may be that of C code which precedes.
        let function = self.go_function(address);
        let function = function
            .filter(|function| symbol.is_none_or(|(symbol, _)| symbol.start < function.start));
        match function {
            Some(function) => Some((go::symbol(&function), Evidence::GoTable)),
            None => symbol,
        }
    }

    fn go_function(&self, address: u64) -> Option<GoFunction<'_>> {
        self.go
            .lookup(self.own.as_ref(), address, &self.debug_files)
    }

    /// Returns the problems since the last call, at most 64.
    ///
    /// Of corrupt debug information and of missing files of split units, the first is returned.
    #[must_use]
    pub fn take_problems(&self) -> Vec<Problem> {
        let problems = self.debug_files.problems.lock();
        std::mem::take(&mut problems.unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the symbol tables now, in the thread of the caller.
    pub fn read_symbols(&self) {
        let _reading = self.debug_files.memory.read();
        self.tables();
    }

    /// Returns whether there is a full symbol table: in the file, its `.gnu_debugdata` or its debug
    /// file. `.dynsym` is none.
    #[must_use]
    pub fn has_symbols(&self) -> bool {
        let _reading = self.debug_files.memory.read();
        let is_whole = |own: &ElfFile| own.has_all_symbols().unwrap_or(false);
        self.own.as_ref().is_some_and(is_whole) || self.debug_file().is_some()
    }

    /// Reads the rows of `.debug_frame` of the file or of its debug file, or those of `.eh_frame` of
    /// the debug file if the file itself has none.
    #[must_use]
    pub fn call_frames(&self) -> Option<CallFrames> {
        let _reading = self.debug_files.memory.read();
        let own = self.own.as_ref()?;
        let of = |elf: &ElfFile, section| {
            elf.call_frames(section).unwrap_or_else(|error| {
                self.debug_files.report(error);
                None
            })
        };
        of(own, FrameSection::Debug).or_else(|| {
            let debug = &self.debug_file()?.elf;
            of(debug, FrameSection::Debug).or_else(|| match own.has_eh_frame() {
                true => None,
                false => of(debug, FrameSection::Eh),
            })
        })
    }

    /// Returns the separate debug file, which is searched if it may add something.
    fn debug_file(&self) -> Option<&DebugFile> {
        let search = || {
            let is_whole =
                |own: &ElfFile| own.has_debug_info() && own.check_symtab().unwrap_or(false);
            if !self.is_elf || self.own.as_ref().is_some_and(is_whole) {
                return None;
            }
            self.debug_files.separate(&self.identity())
        };
        self.debug_file.get_or_init(search).as_ref()
    }

    /// The tables in search order. The debug file knows more, but lacks the stubs of `.plt`.
    fn tables(&self) -> &[(SymbolTable, Evidence)] {
        self.tables.get_or_init(|| {
            let debug = self
                .debug_file()
                .map(|file| (&file.elf, Evidence::DebugFile));
            let own = self.own.as_ref().map(|own| (own, Evidence::SymbolTable));
            let files = debug.into_iter().chain(own);
            files
                .filter_map(|(elf, evidence)| Some((self.table(elf)?, evidence)))
                .collect()
        })
    }

    fn table(&self, elf: &ElfFile) -> Option<SymbolTable> {
        let aliases = self.debug_files.options.aliases;
        match elf.symbols_with(aliases) {
            Ok(table) => Some(table),
            Err(error) => {
                self.debug_files.report(error);
                elf.dynamic_symbols_with(aliases).ok()
            }
        }
    }

    fn ranges(&self) -> &FunctionRanges {
        self.ranges.get_or_init(|| {
            let own = self.own.as_ref();
            own.and_then(|own| own.function_ranges().ok())
                .unwrap_or_default()
        })
    }

    /// Returns the functions of the debug information, or else of the Go function table, innermost
    /// first.
    fn source_frames(&self, address: u64) -> (Vec<SourceFrame<'_>>, Evidence) {
        let by_dwarf = self.dwarf_frames(address);
        if by_dwarf.is_empty()
            && let Some(function) = self.go_function(address)
        {
            return (go::source_frames(&function, address), Evidence::GoTable);
        }
        (by_dwarf, Evidence::Dwarf)
    }

    fn dwarf_frames(&self, address: u64) -> Vec<SourceFrame<'_>> {
        let Some(debug_info) = self.debug_info() else {
            return Vec::new();
        };
        let detail = match self.debug_files.options.lines {
            true => Detail::Lines,
            false => Detail::Functions,
        };
        debug_info.frames(address, detail).unwrap_or_else(|error| {
            self.debug_files.report(error);
            Vec::new()
        })
    }

    fn debug_info(&self) -> Option<&DebugInfo> {
        let read = || {
            let debug = self.debug_file();
            let mut elves = debug.map(|file| &file.elf).into_iter().chain(&self.own);
            let sections = elves.find_map(|elf| self.debug_files.sections(elf, debug))?;
            let files = self.debug_files.clone();
            let debug_info = sections.into_debug_info_with(move |unit| files.split_unit(unit));
            debug_info
                .map_err(|error| self.debug_files.report(error))
                .ok()
        };
        self.debug_info.get_or_init(read).as_ref()
    }
}

fn inlined_frame<'a>(frame: &SourceFrame<'a>, evidence: Evidence) -> Option<Frame<'a>> {
    Some(Frame {
        file: frame.file,
        line: frame.line,
        is_inlined: true,
        ..Frame::new(frame.name?, evidence)
    })
}

/// Returns whether a name is blank: such a symbol only tells where its function starts.
fn is_blank(name: &[u8]) -> bool {
    name.iter().all(u8::is_ascii_whitespace)
}
