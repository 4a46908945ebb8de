//! Errors of runtimes in the memory of a process.

use perfcollect_symbols::elf::ElfError;
use perfcollect_symbols::memory::ReadError;
use thiserror::Error;

use super::contract_error::ContractError;

/// Why a file cannot be searched for a runtime.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RuntimeFileError {
    /// The content of the file is not available.
    #[error("the content of the file is not available")]
    NoContent,
    /// The file is not ELF, or its dynamic symbols are corrupt.
    #[error(transparent)]
    Elf(#[from] ElfError),
}

/// Why perfcollect cannot attach to the runtime of a process.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The memory of the process is not readable, usually because the process has ended.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The runtime is not yet initialized.
    #[error("the runtime is not yet initialized: it has no range section map at {0:#x}")]
    NotInitialized(u64),
    /// The data structures of the runtime are not supported.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

/// Why the code at an address is not known. The cause may be temporary.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CodeLookupError {
    /// The process has ended, or its runtime is not initialized.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// A structure of the runtime is not readable.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// No range section contains the address.
    #[error("no range section contains {0:#x}")]
    NoSection(u64),
    /// The section is neither a code heap nor a range of stubs.
    #[error("the range section of {0:#x} has no JIT code")]
    NotJitCode(u64),
    /// The bounds of the code heap are inconsistent.
    #[error("the code heap at {0:#x} is inconsistent")]
    Heap(u64),
    /// No method starts at or shortly before the address.
    #[error("no method starts at or shortly before {0:#x}")]
    NoMethod(u64),
    /// The pointer to the header of a method is invalid.
    #[error("the method at {start:#x} has no header: found {found:#x}")]
    Header {
        /// The first address of the method.
        start: u64,
        /// The value in place of the pointer.
        found: u64,
    },
    /// The number of functions of a method is out of range.
    #[error("the method at {start:#x} has {count} functions, expected 1 to {limit}")]
    FunctionCount {
        /// The first address of the method.
        start: u64,
        /// The number of functions.
        count: u32,
        /// The largest valid number.
        limit: u32,
    },
    /// The functions of a method are not sorted, or have invalid sizes.
    #[error("the functions of the method at {0:#x} are inconsistent")]
    Functions(u64),
}
