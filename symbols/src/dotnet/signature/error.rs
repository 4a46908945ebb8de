//! Errors of signatures.

use thiserror::Error;

use crate::dotnet::metadata::MetadataError;

/// Why a signature cannot be formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SignatureError {
    /// The signature ends within an element.
    #[error("the signature is truncated")]
    Truncated,
    /// The signature is that of a field, a property, local variables or an instance.
    #[error("signature kind {0:#04x} is not that of a method")]
    NotMethod(u8),
    /// The element is not that of a type.
    #[error("signature element {0:#04x} is no type")]
    NotType(u8),
    /// A number of arguments or dimensions is out of range.
    #[error("a signature with {count} {what}: expected {min} to {max}")]
    Count {
        /// The counted elements.
        what: &'static str,
        /// The number of elements.
        count: u32,
        /// The smallest valid number.
        min: u32,
        /// The largest valid number.
        max: u32,
    },
    /// Types are nested too deeply.
    #[error("types of a signature are nested deeper than {0}")]
    TooDeep(usize),
    /// The formatted types are too long.
    #[error("the types of a signature exceed {0} bytes")]
    TooLong(usize),
    /// The metadata of the module that the tokens refer to is not known.
    #[error("the metadata of the signature's module is not available")]
    NoMetadata,
    /// The module that the index refers to is not known.
    #[error("the metadata of module {0} of a signature is not available")]
    NoModule(u32),
    /// The runtime has no known type at the address.
    #[error("no known type at {0:#x} of a signature")]
    NoRuntimeType(u64),
    /// A token refers to no type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
}
