//! Errors of data contract descriptors.

use perfcollect_symbols::memory::ReadError;
use thiserror::Error;

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
    /// The version of the contract `ExecutionManager` is not supported.
    #[error("version {0} of the contract ExecutionManager is not supported")]
    ExecutionManager(u64),
    /// The descriptor has structures of the contract `ExecutionManager` and no version of it.
    #[error("the data contract descriptor has no version of the contract ExecutionManager")]
    NoExecutionManager,
    /// The offset of a field is missing or invalid.
    #[error(transparent)]
    Offset(#[from] OffsetError),
}

/// Why the runtime's data structures for method names are not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[non_exhaustive]
pub enum TypeSystemError {
    /// The version of the contract `RuntimeTypeSystem` is missing or not supported.
    #[error("the contract RuntimeTypeSystem has no supported version")]
    Version,
    /// The tokens of methods have another layout.
    #[error("the tokens of methods have an unknown layout")]
    TokenBits,
    /// The offset of a field is missing or invalid.
    #[error(transparent)]
    Offset(#[from] OffsetError),
}

/// Why a descriptor has no usable offset of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Error)]
#[error("the data contract descriptor has no valid offset of {structure}.{field}")]
pub struct OffsetError {
    pub(super) structure: &'static str,
    pub(super) field: &'static str,
}
