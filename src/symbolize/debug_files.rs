//! The files that have the symbols and the debug information of a mapped file, in the root directories where they may be.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use perfcollect_symbols::debug_file::{
    Candidate, DebugFileQuery, LookupMethod, Rejection, Search, package_candidates,
};
use perfcollect_symbols::dwarf::{DwarfSections, SplitSections, SplitUnit};
use perfcollect_symbols::elf::ElfFile;
use rustix::io::Errno;

use super::Options;
use super::unresolved::Unresolved;
use crate::download::{Module, Sources};
use crate::machine::{CodeFile, Root};
use crate::trace::Notice;

/// A search for the files of one mapped file.
pub(super) struct DebugFiles<'a> {
    file: &'a CodeFile,
    pub(super) options: &'a Options,
    /// What was there and was not used, and what is missing.
    pub(super) notices: Vec<Notice>,
    /// Directories that may not be searched.
    pub(super) gaps: Vec<Unresolved>,
}

/// A separate debug file.
pub(super) struct DebugFile {
    file: File,
    path: PathBuf,
}

impl DebugFile {
    /// `None`: it is no ELF file.
    pub(super) fn elf(&self) -> Option<ElfFile<'_>> {
        ElfFile::open(&self.file).ok()
    }
}

impl<'a> DebugFiles<'a> {
    pub(super) fn new(file: &'a CodeFile, options: &'a Options) -> Self {
        Self {
            file,
            options,
            notices: Vec::new(),
            gaps: Vec::new(),
        }
    }

    /// What is missing where not all debug information is there.
    pub(super) fn incomplete(&self) -> String {
        let path = self.file.clean_path().display();
        match self.options.inlined {
            true => format!("inlined functions of {path} are not all shown"),
            false => format!("functions of {path} do not all have names"),
        }
    }

    /// The separate debug file: in the directories asked for, in the root directory of a process that has the file mapped, else in ours,
    /// else in perf's cache, else what was downloaded before.
    pub(super) fn separate(&mut self, own: &ElfFile<'_>) -> Option<DebugFile> {
        let build_id = own.build_id();
        let debug_link = own.debug_link();
        let perf_cache = std::env::home_dir().map(|home| home.join(".debug"));
        let wanted = DebugFileQuery {
            path: self.file.clean_path(),
            build_id: build_id.as_ref(),
            debug_link: debug_link.as_ref(),
            directories: &self.options.symbol_directories,
            perf_cache: perf_cache.as_deref(),
        };
        let mut places = wanted.candidates();
        if let Some(module) = Module::of(self.file.clean_path(), own) {
            let downloaded = Sources::new(&[]).cached(&module).into_iter();
            places.extend(downloaded.map(|path| Candidate {
                path,
                method: LookupMethod::Cache,
            }));
        }
        let found = self.search(&places, |file| wanted.check(&file).map(|()| file));
        found.map(|(path, file)| DebugFile { file, path })
    }

    /// The debug information of the file or of its separate debug file, with the parts that are in others but split units.
    pub(super) fn sections<'e>(
        &mut self,
        elf: &'e ElfFile<'_>,
        separate: Option<&DebugFile>,
    ) -> Option<DwarfSections<'e>> {
        let mut sections = elf.dwarf_sections()?;
        self.add_supplementary(&mut sections, elf, separate);
        let places = package_candidates(self.file.clean_path(), &self.options.symbol_directories);
        let package = self.search(&places, |file| {
            let package = ElfFile::open(&file)?.package_sections()?;
            package.ok_or(Rejection::NoDebugInfo)
        });
        if let Some((_, package)) = package {
            sections.set_package(package);
        }
        Some(sections)
    }

    fn add_supplementary(
        &mut self,
        sections: &mut DwarfSections<'_>,
        elf: &ElfFile<'_>,
        separate: Option<&DebugFile>,
    ) {
        let Some(link) = elf.alt_link() else { return };
        let own = self.file.clean_path();
        // In a tree of build ids there are symbolic links to the files; their own directories are what counts.
        let linked_from = match separate {
            Some(found) => vec![real_path(&found.file), Some(found.path.clone())],
            None => vec![Some(own.to_owned())],
        };
        let linked_from: Vec<_> = linked_from.iter().flatten().map(PathBuf::as_path).collect();
        let places = link.candidates(&linked_from, &self.options.symbol_directories);
        let told = self.notices.len();
        match self.search(&places, |file| link.load(&file)) {
            Some((_, common)) => sections.set_supplementary(common),
            None => self.notices.push(Notice::new(
                format!(
                    "{}: {}, where it has their names, {}",
                    self.incomplete(),
                    link.path.display(),
                    self.lack(told)
                ),
                "install the package it is in, or give its directory with -symbols",
            )),
        }
    }

    /// What is the matter with a part that was not found: whether something else was, since so many notices.
    fn lack(&self, told: usize) -> &'static str {
        match self.notices.len() > told {
            true => "was not used",
            false => "is not there",
        }
    }

    /// The sections of a split unit, from its own file; or what is the matter with that.
    pub(super) fn split_unit(&mut self, unit: &SplitUnit) -> Result<SplitSections, String> {
        let directories = &self.options.symbol_directories;
        let places = unit.candidates(self.file.clean_path(), directories);
        let told = self.notices.len();
        let found = self.search(&places, |file| unit.load(&file));
        let (_, sections) =
            found.ok_or_else(|| format!("{} {}", unit.name.display(), self.lack(told)))?;
        Ok(sections)
    }

    /// The first that `take` takes, where it was.
    fn search<T>(
        &mut self,
        places: &[Candidate],
        mut take: impl FnMut(File) -> Result<T, Rejection>,
    ) -> Option<(PathBuf, T)> {
        // The directories and caches are ours, also where the process has another root.
        let directories: fn(LookupMethod) -> bool = |evidence| evidence == LookupMethod::Directory;
        let caches: fn(LookupMethod) -> bool = |evidence| evidence == LookupMethod::Cache;
        let others: fn(LookupMethod) -> bool =
            |evidence| !matches!(evidence, LookupMethod::Directory | LookupMethod::Cache);
        let roots = self.file.debug_roots().map(|root| (root, others));
        for (root, are_there) in [(Root::host(), directories)]
            .into_iter()
            .chain(roots)
            .chain([(Root::host(), caches)])
        {
            let Ok(root) = root else { continue };
            let mut places = places.to_vec();
            places.retain(|place| are_there(place.method));
            let search = Search::run(places, |path| root.open(path), &mut take);
            for (place, why) in &search.rejected {
                match root.closed(&place.path) {
                    Some(directory) => self.gaps.push(not_searched(directory)),
                    None => {
                        let path = place.path.display();
                        let notice = Notice::new(format!("{path} was not used: {why}"), "");
                        if !self.notices.contains(&notice) {
                            self.notices.push(notice);
                        }
                    }
                }
            }
            if let Some((place, taken)) = search.found {
                return Some((place.path, taken));
            }
        }
        None
    }
}

fn not_searched(directory: &Path) -> Unresolved {
    Unresolved {
        kind: "debug files in",
        who: directory.display().to_string(),
        fault: "were not looked for",
        why: io::Error::from(Errno::ACCESS).to_string(),
        remedy: "if it is another user's home, set HOME to your own; else run as a user who may look there",
    }
}

/// Where an open file is, without symbolic links.
fn real_path(file: &File) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}
