//! Errors of data contract descriptors.

use perfcollect_symbols::memory::ReadError;
use thiserror::Error;

use super::contract_version::ContractVersion;

/// Why the contract of a runtime cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ContractError {
    /// The descriptor, or the JSON that it refers to, is not readable or too large.
    #[error("cannot read the data contract descriptor: {0}")]
    Read(#[from] ReadError),
    /// The descriptor does not start with its magic.
    #[error("no data contract descriptor at {address:#x}: found {found:#018x}")]
    Magic {
        /// The address of the descriptor.
        address: u64,
        /// The value there.
        found: u64,
    },
    /// The JSON is malformed.
    #[error("malformed data contract descriptor: {0}")]
    Json(#[from] serde_json::Error),
    /// The version of a contract is not supported.
    #[error(transparent)]
    Version(#[from] UnsupportedVersion),
    /// The descriptor has structures of the contract `ExecutionManager` and no version of it.
    #[error("the data contract descriptor has no version of the contract ExecutionManager")]
    NoExecutionManager,
    /// The offset of a field is missing or invalid.
    #[error(transparent)]
    Offset(#[from] OffsetError),
}

/// Why the runtime's data structures for method names are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TypeSystemError {
    /// The version of a contract is not supported.
    #[error(transparent)]
    Version(#[from] UnsupportedVersion),
    /// The descriptor has no version of the contract `RuntimeTypeSystem`.
    #[error("the data contract descriptor has no version of the contract RuntimeTypeSystem")]
    NoTypeSystem,
    /// The tokens of methods have another layout.
    #[error("the tokens of methods have an unknown layout")]
    TokenBits,
    /// The offset of a field is missing or invalid.
    #[error(transparent)]
    Offset(#[from] OffsetError),
}

/// A version of a contract that is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "version {version} of the contract {contract} is not supported (descriptor version {descriptor})"
)]
pub struct UnsupportedVersion {
    /// Name of the contract.
    pub contract: &'static str,
    /// Version of the contract.
    pub version: ContractVersion,
    /// Version of the descriptor, which determines the meaning of the contract's version.
    pub descriptor: u64,
}

/// Why a descriptor has no usable offset of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the data contract descriptor has no valid offset of {structure}.{field}")]
pub struct OffsetError {
    pub(super) structure: &'static str,
    pub(super) field: &'static str,
}
