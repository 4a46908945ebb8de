//! Search for the separate debug file of a stripped file.
//!
//! The search covers, in this order:
//!
//! 1. the directories that the caller adds;
//! 2. the directories of GDB ([GDB manual, "Separate Debug Files"][gdb]);
//! 3. `FILE.debug` and `FILE.dbg`, beside the file and below `/usr/lib/debug`; `dotnet-symbol`
//!    writes `FILE.dbg`;
//! 4. the build-id cache of perf.
//!
//! A candidate is verified by build id or, if one of the two files has none, by the CRC of the
//! debug link. The caller opens the paths, because only the caller knows the root directory to
//! which they are relative.
//!
//! Debug information may be in several files. [`AltLink`](crate::elf::AltLink) and
//! [`SplitUnit`](crate::dwarf::SplitUnit) list the candidates for the others.
//!
//! ```
//! use std::{fs::File, path::Path};
//! use perfcollect_symbols::{debug_file::DebugFileQuery, elf::ElfFile};
//!
//! let path = Path::new("/proc/self/exe").canonicalize()?;
//! let file = File::open(&path)?;
//! let elf = ElfFile::open(file)?;
//! let (build_id, debug_link) = (elf.build_id(), elf.debug_link());
//! let query = DebugFileQuery {
//!     path: &path,
//!     build_id: build_id.as_ref(),
//!     debug_link: debug_link.as_ref(),
//!     directories: &[],
//!     perf_cache: None,
//! };
//! let search = query.find(|candidate| File::open(candidate));
//! if let Some((candidate, debug_file)) = search.found {
//!     let symbols = debug_file.symbols()?;
//!     println!("{}: {} symbols", candidate.path.display(), symbols.len());
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [gdb]: https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::build_id::BuildId;
use crate::crc::{MAX_CRC_FILE_BYTES, crc32};
use crate::elf::{DebugLink, ElfError, ElfFile};
use crate::memory_budget::MemoryUse;

pub use parts::package_candidates;

mod parts;

/// The directory in which distributions install debug files.
const GLOBAL_DIRECTORY: &str = "/usr/lib/debug";
/// Its subdirectory with files by build id.
const BUILD_ID_DIRECTORY: &str = ".build-id";

/// The source of a candidate's path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupMethod {
    /// The build id: `/usr/lib/debug/.build-id/ab/cdef.debug`.
    BuildId,
    /// `.gnu_debuglink`: a name beside the file, in `.debug/` there, or below `/usr/lib/debug`.
    DebugLink,
    /// The file name: `FILE.debug` or `FILE.dbg`, beside the file or below `/usr/lib/debug`.
    Beside,
    /// [`DebugFileQuery::perf_cache`], or another cache of the caller.
    Cache,
    /// One of [`DebugFileQuery::directories`].
    Directory,
    /// The path in the debug information: in `.gnu_debugaltlink` or of a split unit.
    Named,
}

/// A path at which a debug file may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Path in the file system of the stripped file.
    pub path: PathBuf,
    /// The source of the path.
    pub method: LookupMethod,
}

/// The identity of a stripped file, and the directories to search for its debug file.
#[derive(Debug, Clone, Copy)]
pub struct DebugFileQuery<'a> {
    /// Absolute path. With a relative path, `/usr/lib/debug` is searched by build id only.
    pub path: &'a Path,
    /// Build id of the file: [`ElfFile::build_id`].
    pub build_id: Option<&'a BuildId>,
    /// Debug link of the file: [`ElfFile::debug_link`].
    pub debug_link: Option<&'a DebugLink>,
    /// Directories that are searched first.
    ///
    /// Each is searched by build id (`.build-id/ab/cdef.debug`, `ab/cdef.debug`, `abcdef.debug`),
    /// by the name in the debug link, and by file name with `.debug`, `.dbg` or no suffix. Last, it
    /// is searched as a build-id cache of perf.
    pub directories: &'a [PathBuf],
    /// The build-id cache of perf (`perf help buildid-cache`), usually `~/.debug`. Searched last.
    ///
    /// `perf record` copies files and debug files of all processes that it records there, by the
    /// build ids that they claim. Trust it only if these processes are trusted.
    pub perf_cache: Option<&'a Path>,
}

impl DebugFileQuery<'_> {
    /// Returns all candidates in search order, without duplicates and without the file itself.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut add = |path: PathBuf, method| {
            if path != self.path && candidates.iter().all(|candidate| candidate.path != path) {
                candidates.push(Candidate { path, method });
            }
        };
        let by_build_id = self.build_id.map(build_id_path);
        let beside: Vec<OsString> = self.path.file_name().map_or_else(Vec::new, |name| {
            let with = |suffix| [name, OsStr::new(suffix)].into_iter().collect();
            vec![with(".debug"), with(".dbg")]
        });
        let link = self.debug_link.map(|link| OsStr::from_bytes(&link.name));
        for directory in self.directories {
            for path in self.build_id.into_iter().flat_map(build_id_names) {
                add(directory.join(path), LookupMethod::Directory);
            }
            for name in link
                .into_iter()
                .chain(beside.iter().map(AsRef::as_ref))
                .chain(self.path.file_name())
            {
                add(directory.join(name), LookupMethod::Directory);
            }
        }
        if let Some(path) = by_build_id {
            let path = Path::new(GLOBAL_DIRECTORY)
                .join(BUILD_ID_DIRECTORY)
                .join(path);
            add(path, LookupMethod::BuildId);
        }
        let directory = self.path.parent().unwrap_or(Path::new(""));
        let below_global = directory
            .strip_prefix("/")
            .map(|below_root| Path::new(GLOBAL_DIRECTORY).join(below_root));
        if let Some(name) = link {
            add(directory.join(name), LookupMethod::DebugLink);
            add(directory.join(".debug").join(name), LookupMethod::DebugLink);
            if let Ok(below_global) = &below_global {
                add(below_global.join(name), LookupMethod::DebugLink);
            }
        }
        for directory in iter::once(directory).chain(below_global.as_deref().ok()) {
            for name in &beside {
                add(directory.join(name), LookupMethod::Beside);
            }
        }
        let caches = self.directories.iter().map(PathBuf::as_path);
        let caches = caches.chain(self.perf_cache);
        for (cache, id) in caches.flat_map(|cache| self.build_id.map(|id| (cache, id))) {
            let directory = cache.join(BUILD_ID_DIRECTORY).join(id.relative_path());
            add(directory.join("debug"), LookupMethod::Cache);
            add(directory.join("elf"), LookupMethod::Cache);
        }
        candidates
    }

    /// Searches all candidates as [`DebugFileQuery::try_each`] does.
    pub fn find(&self, open: impl FnMut(&Path) -> io::Result<File>) -> Search<ElfFile> {
        self.try_each(self.candidates(), open)
    }

    /// Tries candidates in order and returns the first that is verified and has symbols.
    ///
    /// `open` opens a path below the root directory of the process, and must not follow links out
    /// of it. Missing files are skipped; other errors are in [`Search::rejected`].
    pub fn try_each(
        &self,
        candidates: Vec<Candidate>,
        open: impl FnMut(&Path) -> io::Result<File>,
    ) -> Search<ElfFile> {
        Search::run(candidates, open, |file| self.check(file))
    }

    /// Opens a file if it is the debug file of this one and has symbols.
    ///
    /// # Errors
    /// The file has another build id or CRC, cannot be verified, has no symbols, or is not ELF.
    pub fn check(&self, file: impl Into<Arc<File>>) -> Result<ElfFile, Rejection> {
        self.check_charged(file.into(), &Arc::default())
    }

    pub(crate) fn check_charged(
        &self,
        file: Arc<File>,
        memory: &Arc<MemoryUse>,
    ) -> Result<ElfFile, Rejection> {
        let elf = ElfFile::open_charged(file.clone(), memory)?;
        match (self.build_id, elf.build_id(), self.debug_link) {
            (Some(expected), Some(found), _) if *expected == found => {}
            (Some(expected), Some(found), _) => {
                return Err(Rejection::BuildId {
                    expected: expected.clone(),
                    found,
                });
            }
            (_, _, Some(link)) => check_crc(&file, link.crc)?,
            (_, _, None) => return Err(Rejection::Unverified),
        }
        match elf.check_symtab()? {
            true => Ok(elf),
            false => Err(Rejection::NoSymbols),
        }
    }
}

/// The result of a search.
#[derive(Debug)]
pub struct Search<T> {
    /// The accepted candidate, and what was read from it.
    pub found: Option<(Candidate, T)>,
    /// Existing files that cannot be used.
    pub rejected: Vec<(Candidate, Rejection)>,
}

impl<T> Search<T> {
    /// Tries candidates in order until `accept` accepts one.
    ///
    /// For `open` see [`DebugFileQuery::try_each`].
    pub fn run(
        candidates: Vec<Candidate>,
        mut open: impl FnMut(&Path) -> io::Result<File>,
        mut accept: impl FnMut(File) -> Result<T, Rejection>,
    ) -> Self {
        let mut search = Self {
            found: None,
            rejected: Vec::new(),
        };
        for candidate in candidates {
            let accepted = match open(&candidate.path) {
                Ok(file) => accept(file),
                Err(error) if is_missing(&error) => continue,
                Err(error) => Err(Rejection::Open(error)),
            };
            match accepted {
                Ok(accepted) => {
                    search.found = Some((candidate, accepted));
                    break;
                }
                // perf caches every sampled file, also stripped ones.
                Err(Rejection::NoSymbols) if candidate.method == LookupMethod::Cache => {}
                Err(why) => search.rejected.push((candidate, why)),
            }
        }
        search
    }
}

/// Why an existing candidate is not used.
#[derive(Debug, Error)]
pub enum Rejection {
    /// The file exists but cannot be opened.
    #[error("cannot open debug file: {0}")]
    Open(#[source] io::Error),
    /// Reading failed.
    #[error("cannot read debug file: {0}")]
    Read(#[source] io::Error),
    /// The file is not ELF, or is corrupt.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The file is of another build.
    #[error("build id {found}, expected {expected}")]
    BuildId {
        /// Build id of the stripped file.
        expected: BuildId,
        /// Build id of the candidate.
        found: BuildId,
    },
    /// The CRC of the file is not the one in the debug link.
    #[error("CRC {found:08x}, expected {expected:08x}")]
    Crc {
        /// CRC in `.gnu_debuglink`.
        expected: u32,
        /// CRC of the candidate.
        found: u32,
    },
    /// The file is too large for a CRC check.
    #[error("{size_bytes} bytes are too many for a CRC check, limit {MAX_CRC_FILE_BYTES}")]
    TooLarge {
        /// Size of the candidate.
        size_bytes: u64,
    },
    /// The files have neither build ids nor a CRC to compare.
    #[error("cannot verify debug file: neither build id nor debug link")]
    Unverified,
    /// The file is verified but has no symbol table.
    #[error("no symbol table")]
    NoSymbols,
    /// The file is verified but has no debug information.
    #[error("no debug information")]
    NoDebugInfo,
    /// The file has another unit, or another build of the unit.
    #[error("not the file of split unit {expected:016x}")]
    SplitUnit {
        /// Id of the unit: [`SplitUnit::id`](crate::dwarf::SplitUnit::id).
        expected: u64,
    },
}

/// Returns `ab/cdef.debug`.
fn build_id_path(build_id: &BuildId) -> PathBuf {
    build_id.relative_path().with_extension("debug")
}

/// Returns the paths by build id in a directory that the caller adds.
fn build_id_names(build_id: &BuildId) -> [PathBuf; 3] {
    let path = build_id_path(build_id);
    let tree = Path::new(BUILD_ID_DIRECTORY).join(&path);
    [tree, path, format!("{build_id}.debug").into()]
}

fn check_crc(file: &File, expected: u32) -> Result<(), Rejection> {
    let size_bytes = file.metadata().map_err(Rejection::Read)?.len();
    if size_bytes > MAX_CRC_FILE_BYTES {
        return Err(Rejection::TooLarge { size_bytes });
    }
    let found = crc32(file).map_err(Rejection::Read)?;
    if found == expected {
        Ok(())
    } else {
        Err(Rejection::Crc { expected, found })
    }
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
#[path = "debug_file/tests.rs"]
mod tests;
