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
mod lines;
pub mod memory;
mod newest;
pub mod perf_map;
pub mod table;
mod turn;

pub use binding::Aliases;
pub use turn::in_turn;
