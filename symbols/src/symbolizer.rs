//! Symbolizes addresses of files, of processes and of the kernel.
//!
//! ```
//! use perfcollect_symbols::symbolizer::Symbolizer;
//!
//! let symbolizer = Symbolizer::default();
//! let process = symbolizer.process(std::process::id())?;
//! let address = std::fs::File::open::<&str> as usize as u64;
//! for frame in process.frames(address)? {
//!     let (file, line) = (frame.file.unwrap_or("?"), frame.line.unwrap_or(0));
//!     println!("{} at {file}:{line} ({})", frame.name(), frame.evidence);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`Symbolizer`] and all it returns own their files, may be shared by threads, and read on
//! demand: symbol tables when the first address of a file is looked up, debug information of the
//! unit that contains the address. What a file declares is bounded as [the crate](crate) lists.
//! Of all ELF files, only one at a time is read beyond 32 MiB. What was read is kept until the
//! [`FileSymbolizer`] or [`ProcessSymbolizer`] is dropped.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::binding::Aliases;
use crate::build_id::BuildId;
use crate::elf::DebugLink;
use crate::kallsyms::{KallsymsError, KernelSymbols};
use crate::memory_budget::{MemoryBudget, MemoryUse};

mod debug_files;
mod file;
mod frame;
mod go;
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

/// What identifies the debug file of an ELF file.
#[derive(Debug, Clone, Copy)]
pub struct FileIdentity<'a> {
    /// Path of the file.
    pub path: &'a Path,
    /// Build id of the file.
    pub build_id: Option<&'a BuildId>,
    /// Its link to the debug file.
    pub debug_link: Option<&'a DebugLink>,
}

/// Returns more paths at which the debug file of an ELF file may be, on this host.
///
/// It must not use the symbolizer.
pub type MoreDebugFiles = dyn Fn(&FileIdentity<'_>) -> Vec<PathBuf> + Send + Sync;

/// What to read, and where debug files are searched.
#[derive(Clone)]
pub struct Options {
    /// Whether frames include the functions that are inlined at an address.
    pub inlined: bool,
    /// Whether frames have source files and lines.
    pub lines: bool,
    /// The choice among several symbols at one address. As perf chooses, a symbol without a size also
    /// covers later functions.
    pub aliases: Aliases,
    /// Directories on this host in which debug files are searched first; absolute.
    pub directories: Vec<PathBuf>,
    /// The build-id cache of perf, usually `~/.debug`.
    pub perf_cache: Option<PathBuf>,
    /// Whether a debug file in a root directory must belong to root or to the owner of the file.
    pub of_owner_only: bool,
    /// More paths of debug files, such as those in a cache of downloads. Searched last.
    pub more: Option<Arc<MoreDebugFiles>>,
}

/// Everything that the files have, without more directories.
impl Default for Options {
    fn default() -> Self {
        Self {
            inlined: true,
            lines: true,
            aliases: Aliases::default(),
            directories: Vec::new(),
            perf_cache: None,
            of_owner_only: false,
            more: None,
        }
    }
}

/// Symbolizes addresses, with one set of options and one memory budget.
#[derive(Default)]
pub struct Symbolizer {
    options: Arc<Options>,
    budget: Arc<MemoryBudget>,
    /// Files of processes, as long as a [`ProcessSymbolizer`] uses them.
    files: Mutex<HashMap<FileKey, Weak<FileSymbolizer>>>,
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

    /// Opens a file. [`FileSymbolizer::take_problems`] returns the parts that cannot be read.
    #[must_use]
    pub fn file(&self, source: FileSource) -> FileSymbolizer {
        let memory = Arc::new(MemoryUse::new(&self.budget));
        FileSymbolizer::new(source, self.options.clone(), memory)
    }

    /// Lists the mappings of a process. Its files are opened when they are needed.
    ///
    /// # Errors
    /// The process has ended, or its mappings may not be read.
    pub fn process(&self, pid: u32) -> io::Result<ProcessSymbolizer<'_>> {
        let pid = i32::try_from(pid).map_err(io::Error::other)?;
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
        key: FileKey,
        source: impl FnOnce(PathBuf) -> FileSource,
    ) -> Arc<FileSymbolizer> {
        let files = || self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files().get(&key).and_then(Weak::upgrade) {
            return file;
        }
        // Reading its headers may take long.
        let file = Arc::new(self.file(source(key.path.clone())));
        let mut files = files();
        if let Some(other) = files.get(&key).and_then(Weak::upgrade) {
            return other;
        }
        if files.len() == files.capacity() {
            files.retain(|_, file| file.strong_count() > 0);
        }
        files.insert(key, Arc::downgrade(&file));
        file
    }
}

/// Identity of a file of a process, and of the directories with its debug files.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct FileKey {
    /// Device and inode.
    file: (u64, u64),
    /// Device and inode of the root directory of the process.
    root: (u64, u64),
    mount_namespace: u64,
    path: PathBuf,
}
