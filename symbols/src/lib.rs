//! Addresses to names.

mod binding;
pub mod demangle;
pub mod dotnet_name;
pub mod elf;
pub mod kallsyms;
mod lines;
pub mod perf_map;
pub mod table;
