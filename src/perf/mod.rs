//! perf_events: opens events, reads their ring buffers, parses records and merges them by time.
//!
//! The only module with `unsafe`: the system calls, their ioctls and the memory shared with the
//! kernel.

#![allow(unsafe_code)]

mod call_graph;
mod clock;
mod copy_length;
mod counter;
mod cpu_events;
mod cpu_hotplug;
mod deferred;
mod event;
#[cfg(test)]
mod fake_event;
mod fallbacks;
mod granted;
mod layout;
mod merge;
mod occurrence_events;
mod occurrence_period;
mod open_error;
mod record;
#[cfg(test)]
pub(crate) mod recorded;
mod request;
mod ring;
mod rings;
mod sample_layout;
mod scheduling;
mod session;
mod session_error;
mod thread_events;
mod tracepoints;

pub use call_graph::CallGraph;
pub use clock::now;
pub use counter::{Counter, CounterScope, CounterValue};
pub use deferred::{CALLCHAIN_DEFERRED, DeferredChain, DeferredKey};
pub use fallbacks::Scope;
pub use granted::Granted;
pub(crate) use layout::TRAILER;
pub use layout::{Layout, ParseError, RecordFormat};
pub use merge::{Merge, RecordSource};
pub use occurrence_events::Occurrence;
pub use open_error::{OpenEventError, max_sample_rate};
pub use record::{
    Abi, BranchStack, CONTEXT_MAX, CpuMode, Ksymbol, MmapRecord, ReadValues, Record, Registers,
    SampleRecord, U64s, UNKNOWN_FRAME_POINTER,
};
pub use request::{Clock, SamplingRequest};
pub use scheduling::{run_as_usual, run_first};
pub use session::PerfSession;
pub use session_error::SessionError;
pub use tracepoints::{Tracepoints, TracepointsError};
