//! Runtime events in the Common Trace Format 1.8, in the layout that LTTng writes.
//!
//! PerfView's GCStats, JITStats and Events support no other format. babeltrace and Trace Compass
//! read it as well.
//!
//! A trace is a directory with two files: `metadata` declares the clock and the event kinds,
//! `channel0_0` contains the events. Payloads are copied unchanged from the runtime. If the third
//! field of an event is named `___data__`, PerfView reads its bytes as the payload.
//!
//! Times are nanoseconds since a whole second before the first event or sample. The events and the
//! samples both start with a marker event at this time. PerfView uses the first event as time zero,
//! so that its two views have the same time zero.

mod channel;
mod metadata;
mod names;

pub use channel::Channel;

use std::io::{self, Write};

use uuid::Uuid;

use super::time_zero::TimeZero;
use crate::nettrace::EventMetadata;
use crate::trace::Trace;

/// Returns the directory of the trace in an archive. PerfView infers 8-byte pointers from its
/// suffix.
#[must_use]
pub fn folder(trace: &Trace) -> String {
    let session = TimeZero::new(trace).date_and_time();
    format!("lttngTrace/auto-{session}/ust/uid/0/64-bit")
}

/// Name of the file with the events. PerfView expects the CPU number after the last `_`.
pub const CHANNEL: &str = "channel0_0";
/// Name of the file that declares the events.
pub const METADATA: &str = "metadata";

/// Returns whether the channel contains events of a kind: only those that PerfView supports.
#[must_use]
pub fn is_written(kind: &EventMetadata) -> bool {
    names::name(kind).is_some()
}

/// Writes all events of `trace`. Returns the event names for [`write_metadata`].
///
/// # Errors
/// Returns errors of `out`.
pub fn write_channel(trace: &Trace, out: &mut impl Write) -> io::Result<Vec<String>> {
    let mut channel = Channel::new(trace, out);
    for event in &trace.events {
        channel.event(&event)?;
    }
    channel.finish()
}

/// Writes the declaration of the events `names`, which [`write_channel`] has returned.
///
/// # Errors
/// Returns errors of `out`.
pub fn write_metadata(trace: &Trace, names: &[String], out: &mut impl Write) -> io::Result<()> {
    metadata::write(trace, names, out)
}

/// Returns a UUID that identifies the files of a trace.
fn uuid(trace: &Trace) -> Uuid {
    let times = [trace.info.start_unix_ns, trace.info.start_ns].map(u128::from);
    // Readers see a random UUID.
    uuid::Builder::from_u128(times[0] << 64 | times[1])
        .with_version(uuid::Version::Random)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
}
