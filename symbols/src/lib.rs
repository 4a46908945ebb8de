//! Addresses to names.

mod binding;
pub mod kallsyms;
mod lines;
pub mod perf_map;
pub mod table;
