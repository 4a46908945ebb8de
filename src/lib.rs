//! Profiles native, kernel and .NET code on Linux and writes traces that PerfView opens.

pub mod output;
pub mod trace;
pub mod view;
