//! The .NET runtime of another process, seen from outside: its memory, the layout of its structures, the code it knows.
//!
//! Everything read is chosen by that process: every number is checked, every list and search has an end.

mod code_map;
mod contract;
pub mod diagnostics;
mod memory;
mod method;
pub mod nettrace;
mod processes;
mod runtime;
mod survey;
mod version;

pub use contract::Contract;
pub use memory::{Image, Memory, ProcessMemory};
pub use method::{Function, Method};
pub use processes::{Detector, Flavour, RuntimeIdentity};
pub use runtime::{Code, Found, Runtime, RuntimeFile, candidates};
pub use survey::{DotnetProcess, Reach, survey};
