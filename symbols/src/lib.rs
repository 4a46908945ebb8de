//! Addresses to names, for native code, the kernel and code generated at run time.
//!
//! Bytes and files in, names out: this crate knows nothing of profilers, processes or outputs. Everything it reads
//! may be hostile: sizes are bounded, files are never mapped, damage is an error and never a panic.
//!
//! ```no_run
//! use perfcollect_symbols::{demangle::demangle, elf::ElfFile};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let file = std::fs::File::open("/usr/lib/x86_64-linux-gnu/libc.so.6")?;
//! let elf = ElfFile::open(&file)?;
//! let symbols = elf.symbols()?;
//! if let Some(symbol) = symbols.lookup(0x9a0e0) {
//!     println!("{}+{:#x}", demangle(symbol.name), 0x9a0e0 - symbol.start);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! `examples/addresses.rs` does the whole: debug file, inlined functions, lines, and where a function without a name starts.
#![forbid(unsafe_code)]

mod binding;
mod crc;
pub mod debug_file;
pub mod demangle;
pub mod dotnet;
pub mod dotnet_name;
pub mod dwarf;
pub mod elf;
pub mod jit_dump;
pub mod kallsyms;
mod lines;
pub mod memory;
mod newest;
pub mod perf_map;
pub mod table;

pub use binding::Aliases;
