//! Errors of ReadyToRun images.

use thiserror::Error;

use crate::dotnet::metadata::MetadataError;
use crate::dotnet::pe::PeError;
use crate::dotnet::signature::SignatureError;
use crate::memory::ReadError;

/// Why a ReadyToRun image, or a method in it, cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadyToRunError {
    /// The image is for another machine, or has no ReadyToRun code.
    #[error("machine {found:#06x} of the image, expected {expected:#06x}")]
    Machine {
        /// The machine of the image.
        found: u16,
        /// The only machine that is supported.
        expected: u16,
    },
    /// The image has no exception directory, which lists the functions.
    #[error("the image has no exception directory")]
    NoFunctions,
    /// The functions are not sorted, as a binary search requires.
    #[error("the functions of the image are not sorted by address")]
    NotSorted,
    /// The ReadyToRun header does not start with its magic.
    #[error("no ReadyToRun header at {address:#x}: found {found:#x}")]
    Magic {
        /// The address of the header, relative to the image base.
        address: u64,
        /// The value there.
        found: u32,
    },
    /// The version of the ReadyToRun format is newer than the supported ones.
    #[error("version {major}.{minor} of the ReadyToRun format is not supported")]
    Version {
        /// The major version.
        major: u16,
        /// The minor version.
        minor: u16,
    },
    /// A header has too many entries.
    #[error("{count} {what}, limit {limit}")]
    TooMany {
        /// The counted entries.
        what: &'static str,
        /// The number of entries.
        count: u32,
        /// The limit.
        limit: u32,
    },
    /// No function covers the address.
    #[error("no function of the image is at {0:#x}")]
    NoFunction(u64),
    /// No method of the tables owns the function.
    #[error("no method of the image owns function {0}")]
    NoMethod(u32),
    /// The signature of an instance has unsupported flags.
    #[error("unsupported flags {0:#x} in the signature of a generic method")]
    Flags(u32),
    /// The signature of an instance is outside the table, or ends within an element.
    #[error("the signature of the generic method at {0:#x} of its table is truncated")]
    Truncated(usize),
    /// The assembly with the metadata of the method is missing, or is another build.
    #[error("the metadata of assembly {0} of the manifest is not available")]
    NoAssembly(u32),
    /// No assembly is known to have this index in signatures.
    #[error("unknown module {0} in the signature of a generic method")]
    NoModule(u32),
    /// The numbers of type arguments of the method and of its type differ.
    #[error("{found} type arguments for a type with {expected}")]
    Arity {
        /// The number of arguments in the signature.
        found: usize,
        /// The number of parameters of the type.
        expected: usize,
    },
    /// A part of the image is not readable, or too large.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The image, or the metadata of its module, is corrupt.
    #[error(transparent)]
    Pe(#[from] PeError),
    /// The row of a method is missing or corrupt.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// A signature is corrupt, or refers to unknown types.
    #[error(transparent)]
    Signature(#[from] SignatureError),
}

impl ReadyToRunError {
    /// Returns whether an image is corrupt. Otherwise the file has no image for this machine.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        !matches!(
            self,
            Self::Machine { .. } | Self::NoFunctions | Self::Pe(PeError::NoImage(_))
        )
    }
}
