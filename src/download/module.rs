//! What a debug file is asked for by.

use std::fmt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::debug_file::DebugFileQuery;
use perfcollect_symbols::elf::{DebugLink, ElfFile};
use serde::{Deserialize, Serialize};

/// An ELF file whose debug file is wanted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Its path, or as much as is known of it. Text from outside.
    pub path: String,
    /// What identifies it.
    pub build_id: BuildId,
    /// What `.gnu_debuglink` calls its debug file. Text from outside.
    pub debug_link: Option<String>,
}

impl Module {
    /// The module an ELF file is; `None` without a build id.
    #[must_use]
    pub fn of(path: &Path, elf: &ElfFile<'_>) -> Option<Self> {
        let link = elf.debug_link();
        Some(Self {
            path: path.to_string_lossy().into_owned(),
            build_id: elf.build_id()?,
            debug_link: link.map(|link| String::from_utf8_lossy(&link.name).into_owned()),
        })
    }

    /// A build id of which nothing else is known.
    #[must_use]
    pub fn unknown(build_id: BuildId) -> Self {
        Self {
            path: String::new(),
            build_id,
            debug_link: None,
        }
    }

    /// Where its debug file is looked for on this machine, caches aside; nowhere, if only its build id is known.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        let Ok(path) = std::path::absolute(&self.path) else {
            return Vec::new();
        };
        let debug_link = self.debug_link.as_ref().map(|name| DebugLink {
            name: name.clone().into_bytes(),
            crc: 0,
        });
        let wanted = DebugFileQuery {
            path: &path,
            build_id: Some(&self.build_id),
            debug_link: debug_link.as_ref(),
            directories: &[],
            perf_cache: None,
        };
        let candidates = wanted.candidates().into_iter();
        candidates.map(|candidate| candidate.path).collect()
    }

    /// Name of the file without its directory, if it can be one.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.path.rsplit('/').next().filter(|name| is_plain(name))
    }

    /// Name of the debug file beside it: that of the debug link, or `FILE.dbg`.
    #[must_use]
    pub fn debug_name(&self) -> String {
        match (&self.debug_link, self.file_name()) {
            (Some(link), name) if is_plain(link) && Some(link.as_str()) != name => link.clone(),
            (_, Some(name)) => format!("{name}.dbg"),
            (_, None) => format!("{}.debug", self.build_id),
        }
    }
}

impl fmt::Display for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file_name() {
            Some(name) => write!(f, "{name} ({})", self.build_id),
            None => write!(f, "{}", self.build_id),
        }
    }
}

/// A name that stays in its directory and is not hidden there.
fn is_plain(name: &str) -> bool {
    (1..=200).contains(&name.len())
        && !name.starts_with('.')
        && !name.contains(|c: char| c == '/' || c == char::REPLACEMENT_CHARACTER || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(path: &str, debug_link: Option<&str>) -> Module {
        Module {
            path: path.into(),
            build_id: BuildId::from_bytes(&[0xab; 20]).unwrap(),
            debug_link: debug_link.map(Into::into),
        }
    }

    #[test]
    fn debug_files_are_named_as_the_link_says_if_that_is_a_name() {
        let name = |link| module("/d/libx.so", link).debug_name();
        assert_eq!(name(Some("libx.so.dbg")), "libx.so.dbg");
        assert_eq!(name(Some("abc.debug")), "abc.debug");
        for bad in [
            "",
            ".",
            "..",
            "../etc/passwd",
            "/etc/passwd",
            ".profile",
            "a\nb",
            "libx.so",
        ] {
            assert_eq!(name(Some(bad)), "libx.so.dbg", "{bad:?}");
        }
        assert_eq!(
            module("/d/..", None).debug_name(),
            format!("{}.debug", "ab".repeat(20))
        );
    }
}
