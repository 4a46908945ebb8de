//! Candidates for the other files of debug information that is in several files.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{BUILD_ID_DIRECTORY, Candidate, GLOBAL_DIRECTORY, LookupMethod, Rejection};
use super::{build_id_names, build_id_path};
use crate::dwarf::{DwarfSections, SplitSections, SplitUnit};
use crate::elf::{AltLink, ElfFile};
use crate::memory_budget::MemoryUse;

/// Candidates without duplicates.
#[derive(Default)]
struct CandidateList(Vec<Candidate>);

impl CandidateList {
    fn add(&mut self, path: PathBuf, method: LookupMethod) {
        if self.0.iter().all(|candidate| candidate.path != path) {
            self.0.push(Candidate { path, method });
        }
    }

    /// Adds a file name in each directory.
    fn add_named(&mut self, directories: &[PathBuf], name: Option<&OsStr>) {
        for directory in directories {
            if let Some(name) = name {
                self.add(directory.join(name), LookupMethod::Directory);
            }
        }
    }
}

impl AltLink {
    /// Returns all candidates in search order.
    ///
    /// `linked_from` are the absolute paths of the file with the link: links to it may lead to
    /// several. `directories` are searched first.
    #[must_use]
    pub fn candidates(&self, linked_from: &[&Path], directories: &[PathBuf]) -> Vec<Candidate> {
        let mut candidates = CandidateList::default();
        for directory in directories {
            for path in build_id_names(&self.build_id) {
                candidates.add(directory.join(path), LookupMethod::Directory);
            }
        }
        candidates.add_named(directories, self.path.file_name());
        let tree = Path::new(GLOBAL_DIRECTORY).join(BUILD_ID_DIRECTORY);
        candidates.add(
            tree.join(build_id_path(&self.build_id)),
            LookupMethod::BuildId,
        );
        for directory in linked_from.iter().filter_map(|file| file.parent()) {
            candidates.add(directory.join(&self.path), LookupMethod::Named);
        }
        candidates.0
    }

    /// Reads the debug information of a file if its build id is that of the link.
    ///
    /// # Errors
    /// The file has another build id, no debug information, or is not ELF.
    pub fn load(&self, file: impl Into<Arc<File>>) -> Result<DwarfSections, Rejection> {
        self.load_charged(file.into(), &Arc::default())
    }

    pub(crate) fn load_charged(
        &self,
        file: Arc<File>,
        memory: &Arc<MemoryUse>,
    ) -> Result<DwarfSections, Rejection> {
        let elf = ElfFile::open_charged(file, memory)?;
        let found = elf.build_id().ok_or(Rejection::Unverified)?;
        if found != self.build_id {
            return Err(Rejection::BuildId {
                expected: self.build_id.clone(),
                found,
            });
        }
        elf.copied_dwarf_sections()?.ok_or(Rejection::NoDebugInfo)
    }
}

impl SplitUnit {
    /// Returns all candidates in search order.
    ///
    /// `path` is the absolute path of the program or library. `directories` are searched first.
    #[must_use]
    pub fn candidates(&self, path: &Path, directories: &[PathBuf]) -> Vec<Candidate> {
        let mut candidates = CandidateList::default();
        candidates.add_named(directories, self.name.file_name());
        let compiled_in = self.directory.as_deref().unwrap_or(Path::new("/"));
        candidates.add(compiled_in.join(&self.name), LookupMethod::Named);
        // The file may have been moved together with the program.
        let beside = path.parent().unwrap_or(Path::new("/"));
        candidates.add(beside.join(&self.name), LookupMethod::Beside);
        if let Some(name) = self.name.file_name() {
            candidates.add(beside.join(name), LookupMethod::Beside);
        }
        let mut candidates = candidates.0;
        candidates.retain(|candidate| candidate.path.is_absolute());
        candidates
    }

    /// Reads the sections of a file if it is the file of the unit.
    ///
    /// # Errors
    /// The file has another unit or another build of it, or is not ELF.
    pub fn load(&self, file: impl Into<Arc<File>>) -> Result<SplitSections, Rejection> {
        self.load_charged(file.into(), &Arc::default())
    }

    pub(crate) fn load_charged(
        &self,
        file: Arc<File>,
        memory: &Arc<MemoryUse>,
    ) -> Result<SplitSections, Rejection> {
        let sections = ElfFile::open_charged(file, memory)?.split_sections()?;
        let sections = sections.ok_or(Rejection::NoDebugInfo)?;
        match sections.belongs_to(self) {
            true => Ok(sections),
            false => Err(Rejection::SplitUnit { expected: self.id }),
        }
    }
}

/// Returns the candidates for the package of a program's split units, `FILE.dwp`.
///
/// The ids of the units verify the package when they are looked up.
#[must_use]
pub fn package_candidates(path: &Path, directories: &[PathBuf]) -> Vec<Candidate> {
    let Some(name) = path.file_name() else {
        return Vec::new();
    };
    let name: std::ffi::OsString = [name, OsStr::new(".dwp")].into_iter().collect();
    let mut candidates = CandidateList::default();
    candidates.add_named(directories, Some(&name));
    let directory = path.parent().unwrap_or(Path::new("/"));
    candidates.add(directory.join(&name), LookupMethod::Beside);
    if let Ok(below_root) = directory.strip_prefix("/") {
        let below_global = Path::new(GLOBAL_DIRECTORY).join(below_root);
        candidates.add(below_global.join(&name), LookupMethod::Beside);
    }
    candidates.0
}
