//! `NAME.nettrace`: samples and runtime events on one timeline.
//!
//! The file uses version 6 of the format with the Universal providers. In PerfView it shows what
//! the archive cannot: stacks of exceptions and allocations, and garbage collections next to
//! samples.
//!
//! ```text
//! Trace.samples ─┐            ┌─ Processes, Code: processes, their functions and stacks
//!                ├─ by time ──┤
//! Trace.events ──┘            └─ Stream ─ chunks of kinds, threads, stacks, events ── file
//! ```
//! Time zero is that of the archive (`time_zero`). A sample contains its CPU time in whole
//! milliseconds. The remainder is added to the next sample of the thread, so that the total of a
//! thread is correct.

mod code;
mod encode;
mod event_rows;
mod kinds;
mod old_stream;
mod processes;
mod record_stream;
mod records;
mod rewriter;
mod stream;
mod writer;

pub use old_stream::OldStreamError;
pub use rewriter::{RewriteError, rewrite};

use std::io::{self, Write};

use crate::trace::Trace;

/// Writes all samples and events of `trace`.
///
/// # Errors
/// Returns errors of `out`.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut writer = writer::Writer::start(trace, out)?;
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
