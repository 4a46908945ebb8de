//! The kernel's perf_events: opening events, reading their rings, parsing their records, merging them by time.
//!
//! The only module with `unsafe`: the system call, its ioctls and the memory shared with the kernel.

#![allow(unsafe_code)]

mod call_graph;
mod deferred;
mod event;
#[cfg(test)]
mod fake_event;
mod grant;
mod layout;
mod merge;
mod on_cpu;
mod online;
mod open_error;
mod record;
#[cfg(test)]
pub(crate) mod recorded;
mod request;
mod ring;
mod rings;
mod sample_layout;
mod session;
mod threads;

pub use call_graph::CallGraph;
pub use deferred::{CALLCHAIN_DEFERRED, DeferredChain, DeferredKey};
pub use grant::Scope;
pub(crate) use layout::TRAILER;
pub use layout::{Format, Layout, ParseError};
pub use merge::{Merge, RecordSource};
pub use open_error::{OpenError, max_sample_rate};
pub use record::{
    Abi, CONTEXT_MAX, Calls, CodeMapping, Counts, CpuMode, KernelCode, Record, Registers,
    SampleRecord, U64s,
};
pub use request::{Clock, SamplingRequest};
pub use session::{Session, SessionError, now};
