//! Build ids, which identify ELF files: the contents of the note `NT_GNU_BUILD_ID`.
//!
//! Format: [`ld --build-id`](https://sourceware.org/binutils/docs/ld/Options.html).

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use thiserror::Error;

/// Valid lengths in bytes. Linkers write 8 to 20 bytes, a few tools up to 32; 4 are the minimum
/// that can identify a file.
const LENGTHS: std::ops::RangeInclusive<usize> = 4..=64;

/// The build id of an ELF file, 4 to 64 bytes.
///
/// [`Display`](fmt::Display) and [`FromStr`] use hexadecimal digits; printed digits are lower case.
///
/// ```
/// use perfcollect_symbols::build_id::BuildId;
///
/// let id: BuildId = "ABCDEF01".parse()?;
/// assert_eq!(id.as_bytes(), [0xab, 0xcd, 0xef, 0x01]);
/// assert_eq!(id.to_string(), "abcdef01");
/// # Ok::<(), perfcollect_symbols::build_id::ParseBuildIdError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(try_from = "String", into = "String"))]
pub struct BuildId(Box<[u8]>);

/// Error for a string that is not a build id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a build id: expected 4 to 64 bytes as hexadecimal digits")]
pub struct ParseBuildIdError;

impl BuildId {
    /// Copies the contents of the note. Returns `None` unless there are 4 to 64 bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        LENGTHS.contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// Returns the bytes of the note.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the path below a `.build-id` directory, without a suffix: `ab/cdef01`.
    #[must_use]
    pub fn relative_path(&self) -> PathBuf {
        let digits = self.to_string();
        let (directory, name) = digits.split_at(2);
        Path::new(directory).join(name)
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

impl FromStr for BuildId {
    type Err = ParseBuildIdError;

    fn from_str(digits: &str) -> Result<Self, Self::Err> {
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_valid = is_hex && digits.len().is_multiple_of(2);
        let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes = || {
            let pairs = digits.as_bytes().chunks_exact(2);
            pairs.map(byte).collect::<Option<Vec<u8>>>()
        };
        let bytes = is_valid.then(bytes).flatten();
        bytes
            .and_then(|bytes| Self::from_bytes(&bytes))
            .ok_or(ParseBuildIdError)
    }
}

impl TryFrom<String> for BuildId {
    type Error = ParseBuildIdError;

    fn try_from(digits: String) -> Result<Self, Self::Error> {
        digits.parse()
    }
}

impl From<BuildId> for String {
    fn from(id: BuildId) -> Self {
        id.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_hexadecimal_digits_of_4_to_64_bytes() {
        let id: BuildId = "ABCDEF01".parse().unwrap();
        assert_eq!(id.to_string(), "abcdef01");
        assert_eq!(id.relative_path(), Path::new("ab/cdef01"));
        let long = "00".repeat(65);
        for invalid in [
            "", "ab", "abcdef0", "../../..", "abcdefgh", "+1+1+1+1", &long,
        ] {
            assert_eq!(
                invalid.parse::<BuildId>(),
                Err(ParseBuildIdError),
                "{invalid}"
            );
        }
    }
}
