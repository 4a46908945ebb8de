//! Names addresses of files, of processes and of the kernel, from everything this crate reads.
//!
//! ```
//! use perfcollect_symbols::symbolizer::Symbolizer;
//!
//! let symbolizer = Symbolizer::default();
//! let process = symbolizer.process(std::process::id() as i32)?;
//! let address = std::fs::File::open::<&str> as usize as u64;
//! for frame in process.frames(address)? {
//!     println!("{} ({})", frame.name(), frame.evidence);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Symbolizer`] and all it returns own their files, may be shared by threads, and read on
//! demand: symbol tables when the first address of a file is looked up, debug information of the
//! unit that contains the address. What a file declares is bounded as [the crate](crate) lists.
//! Of all files, only one at a time is read beyond 32 MiB.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::binding::Aliases;
use crate::elf::ElfFile;
use crate::kallsyms::{KallsymsError, KernelSymbols};
use crate::memory_budget::{MemoryBudget, MemoryUse};

mod debug_files;
mod file;
mod frame;
mod images;
mod jit;
mod process;

pub use debug_files::Problem;
pub use file::{FileContent, FileSource, FileSymbolizer};
pub use frame::{Evidence, Frame, Unresolved};
pub use jit::{JitError, JitQuery, JitSource, JitSymbols};
pub use process::ProcessSymbolizer;

/// List of the functions of the running kernel.
const KALLSYMS: &str = "/proc/kallsyms";

/// Returns more paths at which the debug file of an ELF file may be, on this host.
pub type MoreDebugFiles = dyn Fn(&Path, &ElfFile) -> Vec<PathBuf> + Send + Sync;

/// What to read, and where debug files are searched.
#[derive(Clone, Default)]
pub struct Options {
    /// Whether frames include the functions that are inlined at an address.
    pub inlined: bool,
    /// Whether frames have source files and lines.
    pub lines: bool,
    /// The choice among several symbols at one address.
    pub aliases: Aliases,
    /// Directories on this host in which debug files are searched first; absolute.
    pub directories: Vec<PathBuf>,
    /// The build-id cache of perf, usually `~/.debug`.
    pub perf_cache: Option<PathBuf>,
    /// More paths of debug files, such as those in a cache of downloads. Searched last.
    pub more: Option<Arc<MoreDebugFiles>>,
}

/// Names addresses.
#[derive(Default)]
pub struct Symbolizer {
    options: Arc<Options>,
    budget: Arc<MemoryBudget>,
    /// Files of processes, by device and inode, as long as a process uses them.
    files: Mutex<HashMap<(u64, u64), Weak<FileSymbolizer>>>,
    kernel: OnceLock<Result<KernelSymbols, KallsymsError>>,
}

impl Symbolizer {
    /// Creates a symbolizer that has read nothing yet.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options: Arc::new(options),
            ..Self::default()
        }
    }

    /// Opens a file. What cannot be read of it is in [`FileSymbolizer::take_problems`].
    #[must_use]
    pub fn file(&self, source: FileSource) -> FileSymbolizer {
        let memory = Arc::new(MemoryUse::new(&self.budget));
        FileSymbolizer::new(source, self.options.clone(), memory)
    }

    /// Lists the mappings of a process. Its files are opened when they are needed.
    ///
    /// # Errors
    /// The process has ended, or its mappings may not be read.
    pub fn process(&self, pid: i32) -> io::Result<ProcessSymbolizer<'_>> {
        ProcessSymbolizer::new(self, pid)
    }

    /// Returns the functions of the running kernel, which are read once.
    ///
    /// # Errors
    /// `/proc/kallsyms` cannot be read, or hides the addresses.
    pub fn kernel(&self) -> Result<&KernelSymbols, &KallsymsError> {
        let read = || {
            let list = BufReader::with_capacity(1 << 16, File::open(KALLSYMS)?);
            KernelSymbols::read_with(list, self.options.aliases)
        };
        self.kernel.get_or_init(read).as_ref()
    }

    /// Returns the file of a process, which processes share.
    fn shared_file(
        &self,
        id: (u64, u64),
        open: impl FnOnce() -> FileSource,
    ) -> Arc<FileSymbolizer> {
        let files = self.files.lock();
        let mut files = files.unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&id).and_then(Weak::upgrade) {
            return file;
        }
        files.retain(|_, file| file.strong_count() > 0);
        let file = Arc::new(self.file(open()));
        files.insert(id, Arc::downgrade(&file));
        file
    }
}
