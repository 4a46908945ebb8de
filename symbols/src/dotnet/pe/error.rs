//! Errors of PE images.

use thiserror::Error;

use crate::dotnet::metadata::MetadataError;
use crate::memory::ReadError;

/// Why a PE image or a part of it cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PeError {
    /// No image has code at this file offset.
    #[error("no PE image has code at file offset {0:#x}")]
    NoImage(u64),
    /// A header does not start with its magic.
    #[error("no {what} at {address:#x}: found \"{}\"", found.escape_ascii())]
    Magic {
        /// The header.
        what: &'static str,
        /// The address of the header.
        address: u64,
        /// The first bytes there.
        found: [u8; 4],
    },
    /// The optional header is neither that of a 32-bit image nor that of a 64-bit image.
    #[error("unknown optional header {0:#x}, expected 0x10b or 0x20b")]
    OptionalHeader(u16),
    /// A number in a header exceeds its limit.
    #[error("{what} {value} exceeds the limit of {limit}")]
    TooLarge {
        /// The field of the header.
        what: &'static str,
        /// The value of the field.
        value: u64,
        /// The limit.
        limit: u64,
    },
    /// The image has no COR header, so that it is no assembly.
    #[error("the image has no COR header")]
    NoCorHeader,
    /// A part of the image is not readable, or too large.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The metadata is corrupt.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}
