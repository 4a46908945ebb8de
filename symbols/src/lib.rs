#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod binding;
pub mod build_id;
mod crc;
pub mod debug_file;
pub mod demangle;
pub mod dotnet;
pub mod dotnet_name;
pub mod dwarf;
pub mod elf;
pub mod jit_dump;
pub mod kallsyms;
mod large_file_permit;
mod latest_wins;
mod lines;
pub mod memory;
pub mod perf_map;
pub mod table;

pub use binding::Aliases;
pub use large_file_permit::with_large_file_permit;
