//! Search for the debug files of one file, in the root directories where they may be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, Stat};
use rustix::process::geteuid;
use thiserror::Error;

use super::{FileIdentity, Options};
use crate::debug_file::{
    Candidate, DebugFileQuery, LookupMethod, Rejection, Search, package_candidates,
};
use crate::dotnet::ready_to_run::ReadyToRunError;
use crate::dwarf::{DwarfError, DwarfSections, SplitSections, SplitUnit};
use crate::elf::{ElfError, ElfFile};
use crate::go::GoError;
use crate::memory_budget::MemoryUse;
use crate::process::Root;

/// Limit of problems of one file.
const MAX_PROBLEMS: usize = 64;

/// Why names or inlined functions of a file are incomplete, or may be.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Problem {
    /// A part of the file cannot be used.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// The ReadyToRun image in the file is corrupt.
    #[error("the ReadyToRun image cannot be used: {0}")]
    Image(#[from] ReadyToRunError),
    /// The function table of the Go program cannot be used.
    #[error(transparent)]
    Go(#[from] GoError),
    /// The debug information of the file cannot be used.
    #[error(transparent)]
    Dwarf(#[from] DwarfError),
    /// A debug file exists and is not used.
    #[error("{path} was not used: {why}", path = path.display())]
    Rejected {
        /// Path in its root directory.
        path: PathBuf,
        /// Why it is not used.
        why: Rejection,
    },
    /// A directory with debug files cannot be searched.
    #[error("{path} cannot be searched: permission denied", path = .0.display())]
    ClosedDirectory(PathBuf),
    /// The supplementary file with names of inlined functions is missing or was rejected.
    #[error("{path} {}", lack(*is_rejected), path = path.display())]
    NoSupplementary {
        /// Path in `.gnu_debugaltlink`.
        path: PathBuf,
        /// Whether there is a file that was rejected.
        is_rejected: bool,
    },
    /// The file of a split unit is missing or was rejected.
    #[error("{path} {}", lack(*is_rejected), path = path.display())]
    NoSplitUnit {
        /// Path in the debug information.
        path: PathBuf,
        /// Whether there is a file that was rejected.
        is_rejected: bool,
    },
}

impl Problem {
    fn is_of_addresses(&self) -> bool {
        matches!(
            self,
            Self::Image(_) | Self::Dwarf(_) | Self::NoSplitUnit { .. }
        )
    }
}

fn lack(is_rejected: bool) -> &'static str {
    match is_rejected {
        true => "was not used",
        false => "is not there",
    }
}

/// A separate debug file.
pub(super) struct DebugFile {
    pub(super) elf: ElfFile,
    /// Its paths: that without symbolic links, and the one that was searched.
    paths: Vec<PathBuf>,
}

impl DebugFile {
    /// Returns the path that was searched.
    pub(super) fn path(&self) -> Option<&Path> {
        self.paths.last().map(PathBuf::as_path)
    }
}

/// The search for the debug files of one file.
pub(super) struct DebugFiles {
    pub(super) path: PathBuf,
    pub(super) roots: Vec<Arc<Root>>,
    /// Owner of the file, if it is open.
    pub(super) owner: Option<u32>,
    pub(super) options: Arc<Options>,
    pub(super) memory: Arc<MemoryUse>,
    pub(super) problems: Mutex<Vec<Problem>>,
}

impl DebugFiles {
    /// Records a problem. Of problems that each address may cause, only the first is kept.
    pub(super) fn report(&self, problem: impl Into<Problem>) {
        let problem = problem.into();
        let problems = self.problems.lock();
        let mut problems = problems.unwrap_or_else(PoisonError::into_inner);
        let kind = std::mem::discriminant(&problem);
        let is_of_kind = |other: &Problem| std::mem::discriminant(other) == kind;
        let is_repeated = problem.is_of_addresses() && problems.iter().any(is_of_kind);
        if problems.len() < MAX_PROBLEMS && !is_repeated {
            problems.push(problem);
        }
    }

    /// Returns the separate debug file.
    pub(super) fn separate(&self, identity: &FileIdentity<'_>) -> Option<DebugFile> {
        let query = DebugFileQuery {
            path: &self.path,
            build_id: identity.build_id,
            debug_link: identity.debug_link,
            directories: &self.options.directories,
            perf_cache: self.options.perf_cache.as_deref(),
        };
        let mut candidates = query.candidates();
        if let Some(more) = &self.options.more {
            let more = more(identity).into_iter();
            candidates.extend(more.map(|path| Candidate {
                path,
                method: LookupMethod::Cache,
            }));
        }
        let (path, (elf, file)) = self.search(candidates, |file| {
            let file = Arc::new(file);
            let elf = query.check_charged(file.clone(), &self.memory)?;
            Ok((elf, file))
        })?;
        let paths = [real_path(&file), Some(path)];
        Some(DebugFile {
            elf,
            paths: paths.into_iter().flatten().collect(),
        })
    }

    /// Returns the debug information of a file or its separate debug file, with the supplementary
    /// file and the package of split units.
    pub(super) fn sections(
        &self,
        elf: &ElfFile,
        separate: Option<&DebugFile>,
    ) -> Option<DwarfSections> {
        let mut sections = elf.dwarf_sections()?;
        self.add_supplementary(&mut sections, elf, separate);
        let candidates = package_candidates(&self.path, &self.options.directories);
        let package = self.search(candidates, |file| {
            let elf = ElfFile::open_charged(Arc::new(file), &self.memory)?;
            elf.package_sections()?.ok_or(Rejection::NoDebugInfo)
        });
        if let Some((_, package)) = package {
            sections.set_package(package);
        }
        Some(sections)
    }

    fn add_supplementary(
        &self,
        sections: &mut DwarfSections,
        elf: &ElfFile,
        separate: Option<&DebugFile>,
    ) {
        let Some(link) = elf.alt_link() else { return };
        // A tree of build ids has symbolic links to the files, whose own directories count.
        let linked_from = match separate {
            Some(found) => &found.paths[..],
            None => std::slice::from_ref(&self.path),
        };
        let linked_from: Vec<_> = linked_from.iter().map(PathBuf::as_path).collect();
        let candidates = link.candidates(&linked_from, &self.options.directories);
        let rejected = self.rejected();
        match self.search(candidates, |file| {
            link.load_charged(Arc::new(file), &self.memory)
        }) {
            Some((_, common)) => sections.set_supplementary(common),
            None => self.report(Problem::NoSupplementary {
                path: link.path,
                is_rejected: self.rejected() > rejected,
            }),
        }
    }

    /// Returns the sections of a split unit, from its own file.
    pub(super) fn split_unit(&self, unit: &SplitUnit) -> Option<SplitSections> {
        let candidates = unit.candidates(&self.path, &self.options.directories);
        let rejected = self.rejected();
        let found = self.search(candidates, |file| {
            unit.load_charged(Arc::new(file), &self.memory)
        });
        if found.is_none() {
            self.report(Problem::NoSplitUnit {
                path: unit.name.clone(),
                is_rejected: self.rejected() > rejected,
            });
        }
        found.map(|(_, sections)| sections)
    }

    fn rejected(&self) -> usize {
        let problems = self.problems.lock();
        let problems = problems.unwrap_or_else(PoisonError::into_inner);
        let rejected = |problem: &&Problem| matches!(problem, Problem::Rejected { .. });
        problems.iter().filter(rejected).count()
    }

    /// Returns the first file that `accept` accepts, and its path.
    ///
    /// Directories and caches are on this host, also if the file is in another root directory.
    fn search<T>(
        &self,
        candidates: Vec<Candidate>,
        mut accept: impl FnMut(File) -> Result<T, Rejection>,
    ) -> Option<(PathBuf, T)> {
        let of = |methods: fn(LookupMethod) -> bool| {
            let matching = candidates
                .iter()
                .filter(|candidate| methods(candidate.method));
            matching.cloned().collect::<Vec<_>>()
        };
        let host = Root::host().ok();
        let directories = of(|method| method == LookupMethod::Directory);
        let caches = of(|method| method == LookupMethod::Cache);
        let others = of(|method| !matches!(method, LookupMethod::Directory | LookupMethod::Cache));
        let is_any = |_: &Stat| Ok(());
        let is_public = |found: &Stat| self.check_readable(found);
        type Check<'a> = &'a dyn Fn(&Stat) -> io::Result<()>;
        let (any, public): (Check<'_>, Check<'_>) = (&is_any, &is_public);
        let searches = host.iter().map(|root| (root, &directories, any));
        let searches = searches.chain(self.roots.iter().map(|root| (&**root, &others, public)));
        let mut searches = searches.chain(host.iter().map(|root| (root, &caches, any)));
        searches.find_map(|(root, candidates, check)| {
            let open = |path: &Path| root.open_if(path, check);
            let search = Search::run(candidates.clone(), open, &mut accept);
            for (candidate, why) in search.rejected {
                self.reject(root, candidate.path, why);
            }
            let (candidate, accepted) = search.found?;
            Some((candidate.path, accepted))
        })
    }

    /// Opens a part of the file at a path that its owner may have chosen.
    pub(super) fn open(&self, root: &Root, path: &Path) -> io::Result<File> {
        root.open_if(path, |found| self.check_readable(found))
    }

    /// Checks that a file does not only seem readable because this process is root's.
    ///
    /// Another user may have placed it by a link, and its names would be in the trace.
    fn check_readable(&self, found: &Stat) -> io::Result<()> {
        let is_public = Mode::from_raw_mode(found.st_mode).contains(Mode::ROTH);
        let is_of_owner = self.owner == Some(found.st_uid);
        if self.options.of_owner_only && !is_of_owner && found.st_uid != 0 {
            return Err(io::Error::other("it is of another user"));
        }
        match is_public || is_of_owner || !geteuid().is_root() {
            true => Ok(()),
            false => Err(io::Error::other(
                "not all users may read it, and it is not of the owner of the mapped file",
            )),
        }
    }

    fn reject(&self, root: &Root, path: PathBuf, why: Rejection) {
        self.report(match root.closed(&path) {
            Some(directory) => Problem::ClosedDirectory(directory.to_owned()),
            None => Problem::Rejected { path, why },
        });
    }
}

/// Returns the path of an open file, without symbolic links.
fn real_path(file: &File) -> Option<PathBuf> {
    std::fs::read_link(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// The user who owns the file could lead to it by a link.
    #[test]
    fn opens_no_private_file_of_another_user_as_a_part() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let root = Root::host().unwrap();
        let open = |owner, mode| {
            rustix::fs::chmod(file.path(), Mode::from_raw_mode(mode)).unwrap();
            let debug_files = DebugFiles {
                path: PathBuf::from("/program"),
                roots: Vec::new(),
                owner: Some(owner),
                options: Arc::default(),
                memory: Arc::default(),
                problems: Mutex::default(),
            };
            debug_files.open(&root, file.path()).is_ok()
        };
        let own = geteuid().as_raw();
        assert!(open(own, 0o600) && open(own + 1, 0o604));
        assert_eq!(open(own + 1, 0o600), !geteuid().is_root());
    }
}
