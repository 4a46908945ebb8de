//! Symbols of files and of the kernel: read ahead by dedicated threads, or by the first user.

use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, LazyLock};

use perfcollect_symbols::Aliases;
use perfcollect_symbols::kallsyms::{KallsymsError, KernelSymbols};
use perfcollect_symbols::symbolizer::{FileSymbolizer, Frame, Symbolizer};
use perfcollect_symbols::table::Symbol;

use crate::machine::CodeFile;
use crate::symbolize::elf;
use crate::symbolize::problems::{self, FileProblems};

type Lazy<T> = LazyLock<T, Box<dyn FnOnce() -> T + Send>>;

/// A file and its functions.
pub(super) struct FileSymbols {
    pub(super) file: Arc<CodeFile>,
    symbols: Option<FileSymbolizer>,
}

impl FileSymbols {
    pub(super) fn new(symbolizer: &Symbolizer, file: Arc<CodeFile>) -> Self {
        Self {
            symbols: elf::open(symbolizer, &file),
            file,
        }
    }

    /// Opens the file again if its debug information was read: that frees the memory, and renews
    /// the limit of steps. Returns `None` otherwise.
    pub(super) fn without_debug_info(&self, symbolizer: &Symbolizer) -> Option<Self> {
        let has_read = FileSymbolizer::has_read_debug_info;
        let has_read = self.symbols.as_ref().is_some_and(has_read);
        has_read.then(|| Self::new(symbolizer, self.file.clone()))
    }

    pub(super) fn path(&self) -> &[u8] {
        &self.file.path
    }

    /// Returns the function at an offset in the file.
    pub(super) fn lookup(&self, offset: u64) -> Option<Symbol<'_>> {
        let symbols = self.symbols.as_ref()?;
        symbols.symbol(symbols.address_of(offset)?)
    }

    /// Returns the functions inlined at an offset in the file, innermost first.
    pub(super) fn inlined(&self, offset: u64) -> Vec<Frame<'_>> {
        let symbols = self.symbols.as_ref();
        let frames = symbols.and_then(|symbols| {
            let address = symbols.address_of(offset)?;
            symbols.symbol(address)?;
            symbols.frames(address).ok()
        });
        let mut frames = frames.unwrap_or_default();
        frames.retain(|frame| frame.is_inlined);
        frames
    }

    fn read(&self) {
        if let Some(symbols) = &self.symbols {
            symbols.read_symbols();
        }
    }

    /// Removes and returns the problems with these symbols.
    pub(super) fn take_problems(&self) -> FileProblems {
        let symbols = self.symbols.as_ref();
        let take = |symbols| problems::take(symbols, self.file.clean_path(), true);
        symbols.map(take).unwrap_or_default()
    }
}

/// Reads the symbols of files before their use, until the sender is dropped. Skips files without
/// another owner.
pub(super) fn read_ahead(files: Receiver<Arc<FileSymbols>>) {
    for file in files {
        if Arc::strong_count(&file) > 1 {
            file.read();
        }
    }
}

/// The kernel's symbol list. The kernel needs long to generate it.
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

    /// Returns why there are no symbols.
    pub(super) fn error(&self) -> Option<String> {
        self.0.as_ref().err().map(ToString::to_string)
    }
}
