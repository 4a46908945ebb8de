//! What a debug file is asked for by.

use std::fmt;
use std::path::{Path, PathBuf};

use perfcollect_symbols::debug_file::Wanted;
use perfcollect_symbols::elf::{DebugLink, ElfFile};
use serde::{Deserialize, Serialize};

/// Bytes of a build id: linkers make 8 to 20, a few tools up to 32. One byte is no identity.
const BUILD_ID_BYTES: std::ops::RangeInclusive<usize> = 4..=64;

/// The build id of an ELF file, in lower case hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BuildId(String);

impl BuildId {
    /// From the bytes of the note; `None` if they are too few or too many.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let digits = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        BUILD_ID_BYTES
            .contains(&bytes.len())
            .then_some(Self(digits))
    }

    /// From hexadecimal text in any case.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_whole = text.len().is_multiple_of(2) && BUILD_ID_BYTES.contains(&(text.len() / 2));
        (is_hex && is_whole).then(|| Self(text.to_ascii_lowercase()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn bytes(&self) -> Vec<u8> {
        let digits = self.0.as_bytes().chunks(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        digits.filter_map(byte).collect()
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for BuildId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or("not a build id")
    }
}

impl From<BuildId> for String {
    fn from(id: BuildId) -> Self {
        id.0
    }
}

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
            build_id: BuildId::of(&elf.build_id()?)?,
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
        let wanted = Wanted {
            path: &path,
            build_id: Some(&self.build_id.bytes()),
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
            build_id: BuildId::of(&[0xab; 20]).unwrap(),
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

    #[test]
    fn build_ids_are_hexadecimal_and_of_a_sensible_length() {
        assert_eq!(BuildId::parse("ABCDEF01").unwrap().as_str(), "abcdef01");
        let (short, long) = ("ab", "00".repeat(65));
        for bad in ["", short, "abcdef0", "../../..", "abcdefgh", &long] {
            assert_eq!(BuildId::parse(bad), None, "{bad}");
        }
    }
}
