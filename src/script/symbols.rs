//! The symbols of files and of the kernel: read by a thread of their own as soon as a file is met, or by whoever needs them first.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock};

use perfcollect_symbols::Aliases;
use perfcollect_symbols::elf::{ElfFile, LoadSegment};
use perfcollect_symbols::kallsyms::{KallsymsError, KernelSymbols};
use perfcollect_symbols::table::Symbol;

use crate::machine::{CodeFile, Content};
use crate::symbolize::elf;

type Lazy<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

/// A file and its functions.
pub(super) struct FileSymbols {
    pub(super) file: Arc<CodeFile>,
    tables: Lazy<Tables>,
}

#[derive(Default)]
struct Tables {
    segments: Vec<LoadSegment>,
    symbols: elf::Symbols,
}

impl FileSymbols {
    pub(super) fn new(file: Arc<CodeFile>) -> Self {
        let to_read = Arc::clone(&file);
        Self {
            file,
            tables: LazyLock::new(Box::new(move || Tables::of(&to_read))),
        }
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.file.path
    }

    /// The function at an offset in the file.
    pub(super) fn lookup(&self, offset: u64) -> Option<Symbol<'_>> {
        let address = self.address(offset)?;
        let tables = &self.tables.symbols.tables;
        tables.iter().find_map(|table| table.lookup(address))
    }

    /// With what was not used for them.
    pub(super) fn symbols(&self) -> &elf::Symbols {
        &self.tables.symbols
    }

    /// What the file calls an offset in it.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        self.tables.segments.iter().find_map(|segment| {
            let at = offset.checked_sub(segment.file_offset)?;
            let inside = segment.executable && at < segment.file_size;
            inside.then(|| segment.address.checked_add(at))?
        })
    }
}

impl Tables {
    fn of(file: &CodeFile) -> Self {
        let elf = match &file.content {
            Content::File(content) => ElfFile::open_mapped(content).ok(),
            Content::Vdso(image) => ElfFile::parse(image).ok(),
            Content::Unavailable(_) => None,
        };
        let Some(elf) = elf else {
            return Self::default();
        };
        Self {
            segments: elf.load_segments(),
            symbols: elf::symbols(file, Aliases::AsPerf),
        }
    }
}

/// Reads the symbols of files ahead of their use, until no more can come. What nobody else holds any more, nobody wants.
pub(super) fn read_ahead(files: Receiver<Arc<FileSymbols>>) {
    for file in files {
        if Arc::strong_count(&file) > 1 {
            LazyLock::force(&file.tables);
        }
    }
}

/// The kernel's functions from a list of them, which takes the kernel long to make.
pub(super) struct KernelList(Lazy<Result<KernelSymbols, KallsymsError>>);

impl KernelList {
    pub(super) fn new(kallsyms: Option<PathBuf>) -> Self {
        Self(LazyLock::new(Box::new(|| {
            let read = |kallsyms| {
                let file = BufReader::new(File::open(kallsyms)?);
                KernelSymbols::read_with(file, Aliases::AsPerf)
            };
            kallsyms.map_or_else(|| Ok(KernelSymbols::default()), read)
        })))
    }

    pub(super) fn read(&self) {
        LazyLock::force(&self.0);
    }

    pub(super) fn lookup(&self, ip: u64) -> Option<Symbol<'_>> {
        let symbols = self.0.as_ref().ok()?;
        symbols.lookup(ip).map(|found| found.symbol)
    }

    /// Why it names nothing.
    pub(super) fn error(&self) -> Option<String> {
        self.0.as_ref().err().map(ToString::to_string)
    }
}
