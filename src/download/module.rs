//! The module of a debug file, and the names that identify it.

use std::fmt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::build_id::BuildId;
use perfcollect_symbols::debug_file::DebugFileQuery;
use perfcollect_symbols::elf::{DebugLink, ElfFile};
use perfcollect_symbols::symbolizer::FileIdentity;
use serde::{Deserialize, Serialize};

/// An ELF file that needs a debug file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Path of the file; empty if unknown. Untrusted.
    pub path: String,
    /// Build id of the file.
    pub build_id: BuildId,
    /// Name of the debug file in `.gnu_debuglink`. Untrusted.
    pub debug_link: Option<String>,
}

impl Module {
    /// Describes an ELF file. Returns `None` if it has no build id.
    #[must_use]
    pub fn from_elf(path: &Path, elf: &ElfFile) -> Option<Self> {
        let (build_id, debug_link) = (elf.build_id(), elf.debug_link());
        Self::new(&FileIdentity {
            path,
            build_id: build_id.as_ref(),
            debug_link: debug_link.as_ref(),
        })
    }

    /// Describes a file by its identity. Returns `None` if it has no build id.
    #[must_use]
    pub fn new(identity: &FileIdentity<'_>) -> Option<Self> {
        let link = identity.debug_link;
        Some(Self {
            path: identity.path.to_string_lossy().into_owned(),
            build_id: identity.build_id?.clone(),
            debug_link: link.map(|link| String::from_utf8_lossy(&link.name).into_owned()),
        })
    }

    /// Creates a module with an unknown path.
    #[must_use]
    pub fn from_build_id(build_id: BuildId) -> Self {
        Self {
            path: String::new(),
            build_id,
            debug_link: None,
        }
    }

    /// Returns the paths on this host where the debug file may be, without caches.
    ///
    /// Returns no paths if the path of the module is unknown.
    #[must_use]
    pub fn debug_file_paths(&self) -> Vec<PathBuf> {
        let Ok(path) = std::path::absolute(&self.path) else {
            return Vec::new();
        };
        let debug_link = self.debug_link.as_ref().map(|name| DebugLink {
            name: name.clone().into_bytes(),
            crc: 0,
        });
        let query = DebugFileQuery {
            path: &path,
            build_id: Some(&self.build_id),
            debug_link: debug_link.as_ref(),
            directories: &[],
            perf_cache: None,
        };
        let candidates = query.candidates().into_iter();
        candidates.map(|candidate| candidate.path).collect()
    }

    /// Returns the file name without directory, or `None` if it is not a safe file name.
    #[must_use]
    pub fn file_name(&self) -> Option<&str> {
        self.path.rsplit('/').next().filter(|name| is_plain(name))
    }

    /// Returns the name for the debug file: the one in the debug link, or `FILE.dbg`.
    ///
    /// Returns `BUILD_ID.debug` if the file name is unknown.
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

/// Returns whether a name is a visible file name without a path.
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
    fn debug_name_uses_debug_link_only_if_safe() {
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
