//! Finding the separate file that has the symbols of a stripped one.
//!
//! The places are directories that the caller knows of, those of GDB ("Debugging Information in Separate Files"), `FILE.debug` and
//! `FILE.dbg` beside the file and below `/usr/lib/debug`, the latter being how `dotnet-symbol` names them, and the cache of perf.
//! A file found is only taken with proof that it belongs: the same build id or, where one of the two has none, the CRC
//! of the debug link. Paths are handed to the caller to open, who knows in which root they hold.
//!
//! Debug information may be in several files: [`AltLink`](crate::elf::AltLink) and [`SplitUnit`](crate::dwarf::SplitUnit) know the
//! places of the others.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::iter;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::build_id::BuildId;
use crate::crc::{Crc32, MAX_CRC_FILE_BYTES};
use crate::elf::{DebugLink, ElfError, ElfFile};

pub use parts::package_candidates;

mod parts;

/// Where distributions install debug files.
const GLOBAL_DIRECTORY: &str = "/usr/lib/debug";
/// The tree of build ids in it.
const BUILD_ID_DIRECTORY: &str = ".build-id";

/// Why a place is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookupMethod {
    /// `/usr/lib/debug/.build-id/ab/cdef.debug`.
    BuildId,
    /// The name in `.gnu_debuglink`: beside the file, in `.debug/` there, in `/usr/lib/debug/DIRECTORY/`.
    DebugLink,
    /// `FILE.dbg` beside the file, as `dotnet-symbol` writes it, or `FILE.debug`; the same below `/usr/lib/debug`.
    Beside,
    /// In [`DebugFileQuery::perf_cache`], or in another cache that the caller knows of.
    Cache,
    /// In one of [`DebugFileQuery::directories`].
    Directory,
    /// At the path that debug information names: in `.gnu_debugaltlink` or for a split unit.
    Named,
}

/// A place where a debug file may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// In the file system of the file it is for.
    pub path: PathBuf,
    /// Why there.
    pub method: LookupMethod,
}

/// What identifies a file whose symbols are sought.
#[derive(Debug, Clone, Copy)]
pub struct DebugFileQuery<'a> {
    /// Its path, absolute; with a relative one the global directory is searched by build id only.
    pub path: &'a Path,
    /// [`ElfFile::build_id`].
    pub build_id: Option<&'a BuildId>,
    /// [`ElfFile::debug_link`].
    pub debug_link: Option<&'a DebugLink>,
    /// Searched before all others, each by build id (`.build-id/ab/cdef.debug`, the same without `.build-id/`, `abcdef.debug`), by the name of
    /// the debug link, and by the file's own name with `.debug`, `.dbg` or nothing behind it.
    pub directories: &'a [PathBuf],
    /// Where perf keeps files by build id (`perf help buildid-cache`), as a rule `~/.debug`; searched last.
    pub perf_cache: Option<&'a Path>,
}

impl DebugFileQuery<'_> {
    /// All places in the order of search, each once, never the file itself.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Vec::new();
        let mut add = |path: PathBuf, evidence| {
            if path != self.path && candidates.iter().all(|candidate| candidate.path != path) {
                candidates.push(Candidate {
                    path,
                    method: evidence,
                });
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
        let cached = self.perf_cache.zip(self.build_id);
        if let Some((cache, id)) = cached {
            let directory = cache.join(BUILD_ID_DIRECTORY).join(id.relative_path());
            add(directory.join("debug"), LookupMethod::Cache);
            add(directory.join("elf"), LookupMethod::Cache);
        }
        candidates
    }

    /// [`DebugFileQuery::try_each`] of all candidates.
    pub fn find(&self, open: impl FnMut(&Path) -> io::Result<File>) -> Search {
        self.try_each(self.candidates(), open)
    }

    /// Tries candidates in order and takes the first that proves to belong and has symbols. `open` opens a path in the
    /// root of the process concerned, without following links out of it; "not found" is no news, all else is reported.
    pub fn try_each(
        &self,
        candidates: Vec<Candidate>,
        open: impl FnMut(&Path) -> io::Result<File>,
    ) -> Search {
        Search::run(candidates, open, |file| self.check(&file).map(|()| file))
    }

    /// Whether a file is the debug file of this one, and of use.
    ///
    /// # Errors
    /// It is another file's, cannot be proved to be this one's, has no symbols, or is not ELF.
    pub fn check(&self, file: &File) -> Result<(), Rejection> {
        let elf = ElfFile::open(file)?;
        match (self.build_id, elf.build_id(), self.debug_link) {
            (Some(expected), Some(found), _) if *expected == found => {}
            (Some(expected), Some(found), _) => {
                return Err(Rejection::BuildId {
                    expected: expected.clone(),
                    found,
                });
            }
            (_, _, Some(link)) => check_crc(file, link.crc)?,
            (_, _, None) => return Err(Rejection::Unverified),
        }
        match elf.check_symtab()? {
            true => Ok(()),
            false => Err(Rejection::NoSymbols),
        }
    }
}

/// How a search went.
#[derive(Debug)]
pub struct Search<T = File> {
    /// The debug file, open, or what was taken from it, and where it was.
    pub found: Option<(Candidate, T)>,
    /// Files that were there but were not used.
    pub rejected: Vec<(Candidate, Rejection)>,
}

impl<T> Search<T> {
    /// Tries candidates in order until `take` takes one. `open` as for [`DebugFileQuery::try_each`].
    pub fn run(
        candidates: Vec<Candidate>,
        mut open: impl FnMut(&Path) -> io::Result<File>,
        mut take: impl FnMut(File) -> Result<T, Rejection>,
    ) -> Self {
        let mut search = Self {
            found: None,
            rejected: Vec::new(),
        };
        for candidate in candidates {
            let taken = match open(&candidate.path) {
                Ok(file) => take(file),
                Err(error) if is_absence(&error) => continue,
                Err(error) => Err(Rejection::Open(error)),
            };
            match taken {
                Ok(taken) => {
                    search.found = Some((candidate, taken));
                    break;
                }
                // perf keeps every file that it has seen, stripped ones too.
                Err(Rejection::NoSymbols) if candidate.method == LookupMethod::Cache => {}
                Err(why) => search.rejected.push((candidate, why)),
            }
        }
        search
    }
}

/// Why a file was not used.
#[derive(Debug, Error)]
pub enum Rejection {
    /// It could not be opened, for another reason than not being there.
    #[error("debug file: opening: {0}")]
    Open(#[source] io::Error),
    /// It could not be read to its end.
    #[error("debug file: reading: {0}")]
    Read(#[source] io::Error),
    /// It is no ELF file, or damaged.
    #[error("debug file: {0}")]
    Elf(#[from] ElfError),
    /// It belongs to another build.
    #[error("debug file: build id {found}, expected {expected}")]
    BuildId {
        /// Of the file whose symbols are sought, hexadecimal.
        expected: BuildId,
        /// Of the candidate.
        found: BuildId,
    },
    /// Its contents are not what the debug link says.
    #[error("debug file: CRC {found:08x}, expected {expected:08x}")]
    Crc {
        /// From `.gnu_debuglink`.
        expected: u32,
        /// Of the candidate.
        found: u32,
    },
    /// Too large to compute its CRC.
    #[error(
        "debug file: {size_bytes} bytes, more than the {MAX_CRC_FILE_BYTES} that a CRC is computed of"
    )]
    TooLarge {
        /// The candidate's size.
        size_bytes: u64,
    },
    /// Neither build ids nor a CRC to compare.
    #[error("debug file: neither a build id nor a debug link proves that it belongs")]
    Unverified,
    /// It belongs but has no symbol table.
    #[error("debug file: it has no symbol table")]
    NoSymbols,
    /// It belongs but has no debug information.
    #[error("debug file: it has no debug information")]
    NoDebugInfo,
    /// It has another unit, or another build of it.
    #[error("debug file: it is not of the split unit {expected:016x}")]
    SplitUnit {
        /// [`SplitUnit::id`](crate::dwarf::SplitUnit::id).
        expected: u64,
    },
}

/// `ab/cdef.debug`.
fn build_id_path(build_id: &BuildId) -> PathBuf {
    build_id.relative_path().with_extension("debug")
}

/// What the file of a build id may be called in a directory of the caller's.
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
    let found = Crc32::compute(file).map_err(Rejection::Read)?;
    if found == expected {
        Ok(())
    } else {
        Err(Rejection::Crc { expected, found })
    }
}

fn is_absence(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

#[cfg(test)]
#[path = "debug_file/tests.rs"]
mod tests;
