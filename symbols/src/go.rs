//! Function tables of Go programs (`.gopclntab`): names, frame sizes, lines, inlined functions.
//!
//! The Go runtime needs the table for its stack traces: stripped programs have it, too. There is no
//! specification. Go's linker writes the format (`cmd/link/internal/ld/pcln.go`) and the runtime
//! reads it (`runtime/symtab.go`), see [golang/go](https://github.com/golang/go). The layout
//! changes with Go's versions:
//!
//! | magic | Go | |
//! |---|---|---|
//! | `fffffffb` | 1.2 to 1.15 | [`GoError::TooOld`] |
//! | `fffffffa` | 1.16, 1.17 | read |
//! | `fffffff0` | 1.18, 1.19 | read |
//! | `fffffff1` | 1.20 to 1.26, and later versions that keep it | read |
//! | other | | [`GoError::UnknownMagic`] |
//!
//! ```text
//! header     u32 magic, 0, 0, u8 instruction alignment, u8 word bytes, then words:
//!            functions, files, [1.18+: start of the code], offsets of the parts that follow
//! names      strings that end with NUL
//! units      u32 offset in files; a function's unit has consecutive entries
//! files      strings that end with NUL
//! pc values  (value delta, address delta)*: the value of each address range of a function
//! functions  (entry, offset of the record)* and the end of the last function; the records
//! ```
//!
//! **Start of the code.** Since Go 1.18, entries are relative to the start of Go's code. With cgo
//! that is not the start of `.text`. Up to Go 1.25 the header contains it; in position-independent
//! files a relocation does. Go 1.26 writes 0 to the header. The address is then read from the
//! runtime's `moduledata`, which is searched in the data segments: six of its words must point to
//! the table and its parts, and another one to the first function. Without it, reading fails with
//! [`GoError::NoCodeStart`]. Nothing is inferred from instructions.
//!
//! **Inlined functions** need `moduledata` since Go 1.18, too: their records are in other data.
//!
//! Files are untrusted. Every offset is checked, a table has at most 64 MiB, and a lookup decodes
//! at most two million pc values, which takes some 14 ms.
//!
//! ```
//! use perfcollect_symbols::elf::ElfFile;
//! use perfcollect_symbols::go::GoTable;
//!
//! let elf = ElfFile::open(std::fs::File::open("/proc/self/exe")?)?;
//! let Some(table) = GoTable::read(&elf)? else {
//!     return Ok(()); // Not a Go program.
//! };
//! for function in table.iter() {
//!     println!("{:#x} {}", function.start, String::from_utf8_lossy(function.name));
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;

use thiserror::Error;

use crate::elf::{ElfError, ElfFile, LoadedImage};
use header::{Header, Version};
use module_data::ModuleData;
use pc_values::Steps;

mod frames;
mod function;
mod header;
mod location;
mod module_data;
mod pc_values;
mod record;
mod words;

pub use frames::{GoFrame, MAX_FRAMES};
pub use function::{FunctionFlags, GoFunction};

/// Limit of a table, in bytes. A program of 27 MB with 23 000 functions has 9 MB.
pub const MAX_TABLE_BYTES: u64 = 64 << 20;
/// Limit of the pc values that [`GoTable::iter`] decodes, which take 0.5 s. Functions have nine.
const MAX_ITER_STEPS: u32 = 1 << 26;

/// Why the table of a Go program cannot be used.
#[derive(Debug, Error)]
pub enum GoError {
    /// A part of the ELF file cannot be read, or the table exceeds [`MAX_TABLE_BYTES`].
    #[error("cannot read Go function table: {0}")]
    Elf(#[from] ElfError),
    /// Go 1.2 to 1.15 wrote the table.
    #[error("cannot read Go function table: Go 1.15 and earlier are not supported")]
    TooOld,
    /// The section has no table, or one of an unknown version of Go.
    #[error("cannot read Go function table: unknown magic {0:#x}")]
    UnknownMagic(u32),
    /// The header is corrupt or truncated.
    #[error("corrupt Go function table: {0}")]
    Corrupt(&'static str),
    /// The header has no start of the code (Go 1.26), and `moduledata` was not found.
    #[error("cannot read Go function table: the start of the code is unknown")]
    NoCodeStart,
}

/// The function table of a Go program. All addresses are SVMAs.
///
/// The table is read once. Only records of inlined functions are read from the file on demand.
pub struct GoTable {
    bytes: Vec<u8>,
    header: Header,
    /// Address that entries are relative to; 0 in Go 1.16 and 1.17, whose entries are addresses.
    code_start: u64,
    /// Address that offsets of function data are relative to, if it is known.
    data_start: Option<u64>,
    image: LoadedImage,
}

impl GoTable {
    /// Returns whether the sections of a file show that it is a Go program.
    #[must_use]
    pub fn is_in(elf: &ElfFile) -> bool {
        location::has_go_section(&elf.loaded_image())
    }

    /// Reads the table of a file. Returns `None` if the file has no table.
    ///
    /// The table is in `.gopclntab` or `.data.rel.ro.gopclntab`. Two kinds of files may have it in
    /// other places: those with a section `.go.*` or `.note.go.*`, and those without section
    /// headers. There it is searched in the first 256 MiB of the segments that are not executable.
    ///
    /// # Errors
    /// The version of Go is not supported, the header is corrupt, the start of the code is unknown,
    /// or a part of the file cannot be read. See [`GoError`].
    pub fn read(elf: &ElfFile) -> Result<Option<Self>, GoError> {
        let image = elf.loaded_image();
        let Some(range) = location::find(&image)? else {
            return Ok(None);
        };
        let start = range.start;
        let bytes = image.relocated("Go function table", range)?;
        let header = Header::parse(&bytes, bytes.len() as u64, &image)?;
        let module_data = match header.version {
            Version::Go1_16 => None,
            Version::Go1_18 | Version::Go1_20 => {
                ModuleData::find(&image, start..start + bytes.len() as u64, &header, &bytes)?
            }
        };
        let in_module_data = module_data
            .as_ref()
            .map(|module_data| module_data.code_start);
        let code_start = match (header.version, header.code_start) {
            (Version::Go1_16, _) => 0,
            (_, 0) => in_module_data.ok_or(GoError::NoCodeStart)?,
            (_, code_start) => code_start,
        };
        Ok(Some(Self {
            bytes,
            header,
            code_start,
            data_start: match header.version {
                Version::Go1_16 => Some(0),
                _ => module_data.and_then(|module_data| module_data.data_start),
            },
            image,
        }))
    }

    /// Returns the function at an address.
    ///
    /// Returns `None` between functions and after the last one, where C code may follow, for C code
    /// that is linked between Go functions, and if the record of the function is corrupt.
    ///
    /// Return addresses need care: a call may be the last instruction of a function, so look up the
    /// address minus one.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<GoFunction<'_>> {
        let (mut low, mut high) = (0, self.header.functions);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.entry(middle)? <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let function = self.function(low.checked_sub(1)?, &Steps::default())?;
        function.range().contains(&address).then_some(function)
    }

    /// Returns the number of functions, including those whose record is corrupt.
    #[must_use]
    pub fn len(&self) -> usize {
        self.header.functions
    }

    /// Returns whether there are no functions.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all functions that [`GoTable::lookup`] returns, in address order.
    ///
    /// A malformed table that declares more than 67 million pc values has fewer.
    pub fn iter(&self) -> impl Iterator<Item = GoFunction<'_>> {
        let steps = Steps::new(MAX_ITER_STEPS);
        (0..self.len()).filter_map(move |index| self.function(index, &steps))
    }

    /// Returns the memory that the table occupies, in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the entry address of a function, or the end of the last one for the index `len()`.
    fn entry(&self, index: usize) -> Option<u64> {
        let header = &self.header;
        let at = header.functions_at + index * header.entry_bytes() * 2;
        match header.version {
            Version::Go1_16 => header.words.word(&self.bytes, at),
            _ => {
                let offset = header.words.u32(&self.bytes, at)?;
                self.code_start.checked_add(offset.into())
            }
        }
    }
}

impl fmt::Debug for GoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = f.debug_struct("GoTable");
        table.field("bytes", &self.bytes.len());
        table.field("header", &self.header);
        table.field("code_start", &self.code_start);
        table.field("data_start", &self.data_start);
        table.finish_non_exhaustive()
    }
}
