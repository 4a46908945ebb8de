//! Errors of method names.

use perfcollect_symbols::dotnet::metadata::MetadataError;
use perfcollect_symbols::dotnet::pe::PeError;
use perfcollect_symbols::dotnet::signature::SignatureError;
use perfcollect_symbols::memory::ReadError;
use thiserror::Error;

use super::contract_error::TypeSystemError;

/// The reason why perfcollect does not name a process's methods from its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
pub enum NamingDisabled {
    /// The version of the runtime's type system is not supported.
    #[error("the data structures of this .NET version are not supported: {0}")]
    UnknownVersion(TypeSystemError),
    /// The runtime's data structures are inconsistent.
    #[error("the runtime's data structures are inconsistent")]
    Contradictory,
}

/// Why a method has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MethodNameError {
    /// Naming is disabled for the process.
    #[error(transparent)]
    Disabled(#[from] NamingDisabled),
    /// The data of the method is inconsistent or not readable.
    #[error(transparent)]
    Method(#[from] MethodDataError),
    /// The data of a dynamic method is inconsistent, usually because the method has been freed.
    #[error("the dynamic method may have been freed: {0}")]
    Dynamic(#[source] MethodDataError),
}

/// Why data of the runtime does not describe a method or a type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MethodDataError {
    /// A structure is not readable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A pointer is invalid.
    #[error("{0:#x} is no address of a {1}")]
    Address(u64, &'static str),
    /// The metadata of the module is not readable or corrupt.
    #[error(transparent)]
    Image(#[from] PeError),
    /// The metadata has no such method or type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The type of the runtime is not the type that declares the method.
    #[error("type {declaring} of the metadata declares the method, not type {found}")]
    OtherType {
        /// The TypeDef row of the type that declares the method.
        declaring: u32,
        /// The TypeDef row of the runtime's type.
        found: u32,
    },
    /// The signature is corrupt, or refers to unknown types.
    #[error(transparent)]
    Signature(#[from] SignatureError),
    /// A number of arguments or dimensions is out of range.
    #[error("a type or method with {0} {1}")]
    Count(u32, &'static str),
    /// Types are nested too deeply.
    #[error("types are nested deeper than {0}")]
    TooDeep(usize),
    /// No valid name is at the address.
    #[error("no name is at {0:#x}")]
    Name(u64),
    /// The structure of a dynamic method no longer describes the code.
    #[error("the MethodDesc at {0:#x} describes other code")]
    OtherCode(u64),
    /// The signature of a dynamic method has another size.
    #[error("the signature at {address:#x} has {bytes} bytes")]
    SignatureSize {
        /// The address of the signature.
        address: u64,
        /// The size in the MethodDesc.
        bytes: u64,
    },
}
