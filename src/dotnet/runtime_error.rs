//! Errors of runtimes in the memory of a process.

use std::io;
use std::sync::Arc;

use perfcollect_symbols::elf::ElfError;
use perfcollect_symbols::memory::ReadError;
use thiserror::Error;

use super::contract_error::ContractError;
use crate::trace::lacks_descriptors;

/// Why a file cannot be searched for a runtime.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeFileError {
    /// The content of the file is not available. Contains the cause.
    #[error("{0}")]
    NoContent(String),
    /// The file could not be opened for lack of descriptors.
    #[error("too many files were open")]
    TooManyOpenFiles,
    /// The file is not ELF, or its dynamic symbols are corrupt.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Why perfcollect cannot attach to the runtime of a process.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The process, or its main thread, has ended.
    #[error("the process has ended")]
    Ended,
    /// The file of the runtime cannot be read. All processes that map the file share the error.
    #[error("cannot read its file: {0}")]
    File(Arc<RuntimeFileError>),
    /// The memory of the process cannot be opened.
    #[error(transparent)]
    Open(io::Error),
    /// The runtime is not yet initialized.
    #[error("the runtime is not yet initialized: it has no range section map at {0:#x}")]
    NotInitialized(u64),
    /// The data structures of the runtime are not supported.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

impl AttachError {
    /// Returns whether too many files were open.
    #[must_use]
    pub fn lacks_descriptors(&self) -> bool {
        match self {
            Self::Open(error) => lacks_descriptors(error),
            Self::File(error) => matches!(**error, RuntimeFileError::TooManyOpenFiles),
            Self::Ended | Self::NotInitialized(_) | Self::Contract(_) => false,
        }
    }
}

/// Why the code at an address is not known. The cause may be temporary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CodeLookupError {
    /// A structure of the runtime is not readable, usually because the process has ended.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The structure that describes the code is missing or inconsistent.
    #[error("no valid {0} at {1:#x}")]
    Invalid(&'static str, u64),
}
