//! What the events of .NET runtimes report about each process.
//!
//! The sender of the events chose every number: sums saturate, and lists are bounded.

pub(crate) mod allocations;
mod awaits;
mod cpu_sample;
mod exceptions;
mod fields;
pub(crate) mod gc;
pub(crate) mod jit;
pub(crate) mod network;
pub(crate) mod requests;
mod runtime;
mod stack_methods;
mod tally;
#[cfg(test)]
pub(crate) mod test_events;
mod thread_pool;
mod type_names;
pub(crate) mod waits;

pub(crate) use awaits::AwaitCount;
pub use cpu_sample::CpuSample;
pub(crate) use exceptions::Exceptions;
pub(crate) use fields::sum;
pub(crate) use gc::GarbageCollection;
pub(crate) use runtime::{MAX_PROCESSES, RuntimeHistory, histories};
pub(crate) use stack_methods::EventMethods;
pub(crate) use thread_pool::ThreadPool;
pub(crate) use type_names::TypeId;

use crate::trace::RuntimeEvent;

/// The runtime's provider of events.
const RUNTIME: &str = "Microsoft-Windows-DotNETRuntime";

/// Returns whether the runtime itself sent an event (not in a rundown).
pub(crate) fn is_from_runtime(event: &RuntimeEvent) -> bool {
    event.metadata.provider == RUNTIME
}
