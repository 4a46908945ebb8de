//! Profiles native, kernel and .NET code on Linux and writes traces that PerfView opens.

mod bytes;
pub mod capture;
pub mod cli;
mod cpu_list;
pub mod dotnet;
pub mod download;
pub mod event_trace;
pub mod findings;
mod history;
mod ids;
pub mod machine;
pub mod nettrace;
pub mod output;
pub mod perf;
pub mod perf_data;
pub mod perf_text;
mod regular_file;
pub mod resymbolize;
pub mod script;
pub mod selection;
pub mod symbolize;
pub mod trace;
mod trace_archive;
pub mod unwind;
pub mod view;
pub mod waits;
mod zip;
