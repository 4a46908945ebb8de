//! `NAME.nettrace`: samples and runtime events on one timeline, in version 6 of the format with the Universal providers.
//! In PerfView it has what the archive cannot: stacks of exceptions and allocations, and collections beside the samples.
//!
//! ```text
//! Trace.samples ─┐            ┌─ Processes, CodeMap: who, and where
//!                ├─ by time ──┤
//! Trace.events ──┘            └─ Stream ─ chunks of kinds, threads, stacks, events ── file
//! ```
//! Times count from where those of the archive do (`time_zero`). A sample's time is told in whole milliseconds: what
//! is over goes to the next sample of its thread, so the sum of a thread is right.

mod encode;
mod event_rows;
mod kinds;
mod processes;
mod records;
mod stream;
mod writer;

use std::io::{self, Write};

use crate::trace::Trace;

/// Writes all samples and events of `trace`.
///
/// # Errors
/// What `out` returns.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut writer = writer::Writer::begin(trace, out)?;
    let mut events = trace.events.iter().peekable();
    for sample in trace.samples.iter() {
        while let Some(event) = events.next_if(|event| event.time <= sample.time) {
            writer.event(&event)?;
        }
        writer.sample(&sample)?;
    }
    for event in events {
        writer.event(&event)?;
    }
    writer.finish()
}
