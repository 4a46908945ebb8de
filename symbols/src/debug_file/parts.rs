//! Where the other parts of debug information are that is in several files.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};

use super::{BUILD_ID_DIRECTORY, Candidate, GLOBAL_DIRECTORY, LookupMethod, Rejection};
use super::{build_id_names, build_id_path};
use crate::dwarf::{DwarfSections, SplitSections, SplitUnit};
use crate::elf::{AltLink, ElfFile};

/// Each place once.
#[derive(Default)]
struct CandidateList(Vec<Candidate>);

impl CandidateList {
    fn add(&mut self, path: PathBuf, evidence: LookupMethod) {
        if self.0.iter().all(|candidate| candidate.path != path) {
            self.0.push(Candidate {
                path,
                method: evidence,
            });
        }
    }

    /// By name in directories of the caller's.
    fn add_named(&mut self, directories: &[PathBuf], name: Option<&OsStr>) {
        for directory in directories {
            if let Some(name) = name {
                self.add(directory.join(name), LookupMethod::Directory);
            }
        }
    }
}

impl AltLink {
    /// All places in the order of search. `linked_from`: absolute paths of the file with the link, as it may be reached by several.
    #[must_use]
    pub fn candidates(&self, linked_from: &[&Path], directories: &[PathBuf]) -> Vec<Candidate> {
        let mut places = CandidateList::default();
        for directory in directories {
            for path in build_id_names(&self.build_id) {
                places.add(directory.join(path), LookupMethod::Directory);
            }
        }
        places.add_named(directories, self.path.file_name());
        let tree = Path::new(GLOBAL_DIRECTORY).join(BUILD_ID_DIRECTORY);
        places.add(
            tree.join(build_id_path(&self.build_id)),
            LookupMethod::BuildId,
        );
        for directory in linked_from.iter().filter_map(|file| file.parent()) {
            places.add(directory.join(&self.path), LookupMethod::Named);
        }
        places.0
    }

    /// The debug information of a file, if it is the one.
    ///
    /// # Errors
    /// It is another build's, has none, or is not ELF.
    pub fn load(&self, file: &File) -> Result<DwarfSections<'static>, Rejection> {
        let elf = ElfFile::open(file)?;
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
    /// All places in the order of search. `path`: of the program or library, absolute.
    #[must_use]
    pub fn candidates(&self, path: &Path, directories: &[PathBuf]) -> Vec<Candidate> {
        let mut places = CandidateList::default();
        places.add_named(directories, self.name.file_name());
        let compiled_in = self.directory.as_deref().unwrap_or(Path::new("/"));
        places.add(compiled_in.join(&self.name), LookupMethod::Named);
        // Moved together with the program.
        let beside = path.parent().unwrap_or(Path::new("/"));
        places.add(beside.join(&self.name), LookupMethod::Beside);
        if let Some(name) = self.name.file_name() {
            places.add(beside.join(name), LookupMethod::Beside);
        }
        places.0.retain(|candidate| candidate.path.is_absolute());
        places.0
    }

    /// The sections of a file, if it is that of the unit.
    ///
    /// # Errors
    /// It is another unit's or build's, or not ELF.
    pub fn load(&self, file: &File) -> Result<SplitSections, Rejection> {
        let sections = ElfFile::open(file)?.split_sections()?;
        let sections = sections.ok_or(Rejection::NoDebugInfo)?;
        match sections.belongs_to(self) {
            true => Ok(sections),
            false => Err(Rejection::SplitUnit { expected: self.id }),
        }
    }
}

/// Where the package of a program's split units is, `FILE.dwp`. Whose units it has, its ids tell.
#[must_use]
pub fn package_candidates(path: &Path, directories: &[PathBuf]) -> Vec<Candidate> {
    let Some(name) = path.file_name() else {
        return Vec::new();
    };
    let name: std::ffi::OsString = [name, OsStr::new(".dwp")].into_iter().collect();
    let mut places = CandidateList::default();
    places.add_named(directories, Some(&name));
    let directory = path.parent().unwrap_or(Path::new("/"));
    places.add(directory.join(&name), LookupMethod::Beside);
    if let Ok(below_root) = directory.strip_prefix("/") {
        let below_global = Path::new(GLOBAL_DIRECTORY).join(below_root);
        places.add(below_global.join(&name), LookupMethod::Beside);
    }
    places.0
}
