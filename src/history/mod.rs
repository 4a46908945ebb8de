//! What the events of .NET runtimes report about each process.
//!
//! The sender of the events chose every number: sums saturate, and lists are bounded.

mod cpu_sample;
mod fields;
pub(crate) mod gc;
pub(crate) mod jit;
#[cfg(test)]
pub(crate) mod test_events;

pub use cpu_sample::CpuSample;
pub(crate) use fields::sum;

use crate::trace::RuntimeEvent;

/// Returns whether the runtime itself sent an event (not in a rundown).
pub(crate) fn is_from_runtime(event: &RuntimeEvent) -> bool {
    event.metadata.provider == "Microsoft-Windows-DotNETRuntime"
}
