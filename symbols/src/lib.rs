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
pub mod go;
pub mod jit_dump;
pub mod kallsyms;
mod latest_wins;
mod lines;
pub mod memory;
mod memory_budget;
pub mod perf_map;
pub mod process;
pub mod symbolizer;
pub mod table;

pub use binding::Aliases;
