//! The kernel's perf_events: opening events, reading their rings, parsing their records, merging them by time.
//!
//! The only module with `unsafe`: the system call, its ioctls and the memory shared with the kernel.

#![allow(unsafe_code)]

mod call_graph;
mod event;
#[cfg(test)]
mod fake_event;
mod grant;
mod layout;
mod merge;
mod on_cpu;
mod online;
mod record;
#[cfg(test)]
pub(crate) mod recorded;
mod ring;
mod rings;
mod sample_layout;
mod session;
mod threads;

pub use call_graph::CallGraph;
pub use event::{Clock, OpenError, SamplingRequest, max_sample_rate};
pub use grant::Scope;
pub use layout::{Format, Layout, ParseError};
pub use merge::{Merge, RecordSource};
pub use record::{
    Abi, Calls, CodeMapping, CpuMode, KernelCode, Record, Registers, SampleRecord, U64s,
};
pub use session::{Session, SessionError, now};
