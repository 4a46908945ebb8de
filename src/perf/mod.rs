//! The kernel's perf_events: opening events, reading their rings, parsing their records, merging them by time.
//!
//! The only module with `unsafe`: the system call, its ioctls and the memory shared with the kernel.

#![allow(unsafe_code)]

mod event;
mod layout;
mod merge;
mod record;
mod ring;
mod session;

pub use event::{OpenError, SamplingRequest};
pub use layout::{Layout, ParseError};
pub use merge::{Merge, RecordSource};
pub use record::{Abi, CodeMapping, CpuMode, Record, Registers, SampleRecord, U64s};
pub use session::{Session, SessionError, now};
