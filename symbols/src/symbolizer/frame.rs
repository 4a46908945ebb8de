//! Frames at an address, or the reason why there are none.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;

use thiserror::Error;

use super::jit::JitError;
use crate::demangle::demangle;
use crate::dotnet::ready_to_run::ReadyToRunError;

/// A function at an address, inlined or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The name as its source has it: mangled in an ELF file.
    ///
    /// Empty if the function has no name and functions that are inlined into it have.
    pub symbol: Cow<'a, [u8]>,
    /// Address of the function's first byte: SVMA for a file, address in the process for a process.
    ///
    /// `None` if the function is inlined, or if only debug information or a ReadyToRun table has it.
    pub start: Option<u64>,
    /// File of the address in the innermost function; file of the inlined call in all others.
    pub file: Option<&'a str>,
    /// Line in `file`.
    pub line: Option<u32>,
    /// Whether the function is inlined into the next frame.
    pub is_inlined: bool,
    /// Assembly of a ReadyToRun method, module of a kernel function, path of a process's file.
    pub module: Option<Cow<'a, str>>,
    /// Where the name comes from.
    pub evidence: Evidence,
}

impl<'a> Frame<'a> {
    pub(super) fn new(symbol: impl Into<Cow<'a, [u8]>>, evidence: Evidence) -> Self {
        Self {
            symbol: symbol.into(),
            start: None,
            file: None,
            line: None,
            is_inlined: false,
            module: None,
            evidence,
        }
    }

    /// Returns the name, demangled.
    #[must_use]
    pub fn name(&self) -> Cow<'_, str> {
        demangle(&self.symbol)
    }
}

/// Where a name comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Evidence {
    /// The symbol table of the file.
    SymbolTable,
    /// The symbol table of the separate debug file.
    DebugFile,
    /// Debug information.
    Dwarf,
    /// The function table of a Go program.
    GoTable,
    /// The tables of a ReadyToRun image.
    ReadyToRun,
    /// `/proc/kallsyms`.
    Kallsyms,
    /// The perf map of the process.
    PerfMap,
    /// The jitdump of the process.
    JitDump,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::SymbolTable => "symbol table",
            Self::DebugFile => "debug file",
            Self::Dwarf => "DWARF",
            Self::GoTable => "Go function table",
            Self::ReadyToRun => "ReadyToRun",
            Self::Kallsyms => "kallsyms",
            Self::PerfMap => "perf map",
            Self::JitDump => "jitdump",
        })
    }
}

/// Why an address is unresolved.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Unresolved {
    /// No executable mapping, or no code of the file, is there.
    #[error("no code is mapped at the address")]
    Unmapped,
    /// The mapped file cannot be opened.
    #[error("cannot open {path}: {why}")]
    Unreadable {
        /// Path of the file.
        path: PathBuf,
        /// The error of the kernel.
        why: String,
    },
    /// Neither symbols, debug information nor a Go function table name the function.
    #[error("no symbol covers the address")]
    NoSymbol {
        /// Address of the function's first byte, if `.eh_frame` or a symbol with a blank name has it.
        start: Option<u64>,
    },
    /// The file is not ELF, and its image there cannot be used.
    #[error("the ReadyToRun image cannot be used: {0}")]
    Image(ReadyToRunError),
    /// The tables of the ReadyToRun image name no method there.
    #[error("the ReadyToRun image names no method at the address: {0}")]
    NoMethod(ReadyToRunError),
    /// No kernel symbol is available.
    #[error("{0}")]
    Kernel(String),
    /// No JIT symbol covers the address.
    #[error(transparent)]
    Jit(#[from] JitError),
}
