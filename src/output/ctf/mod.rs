//! The runtime events in the Common Trace Format 1.8, as LTTng would have written them: PerfView's GCStats, JITStats and
//! Events read no other, and babeltrace and Trace Compass read it too.
//!
//! A trace is a folder of two files: `metadata` states clock and kinds of events, `channel0_0` holds the events. Payloads are
//! the runtime's, byte for byte: an event whose third field is named `___data__` is for PerfView the bytes in it.
//!
//! Times are nanoseconds since a whole second before the first event or sample. There a mark stands in both: PerfView
//! counts from the first thing it meets, so its two views have one time zero.

mod channel;
mod metadata;
mod names;

pub use channel::Channel;

use std::io::{self, Write};

use uuid::Uuid;

use super::time_zero::TimeZero;
use crate::nettrace::EventMetadata;
use crate::trace::Trace;

/// The folder of the trace within an archive. PerfView takes its pointers for 8 bytes long because of the end.
#[must_use]
pub fn folder(trace: &Trace) -> String {
    let session = TimeZero::of(trace).date_and_time();
    format!("lttngTrace/auto-{session}/ust/uid/0/64-bit")
}

/// Name of the file with the events. PerfView expects the CPU behind the last `_`.
pub const CHANNEL: &str = "channel0_0";
/// Name of the file that states them.
pub const METADATA: &str = "metadata";

/// Whether events of a kind are in the channel: PerfView knows no others.
#[must_use]
pub fn is_written(kind: &EventMetadata) -> bool {
    names::name(kind).is_some()
}

/// Writes all events of `trace`. Gives what [`write_metadata`] has to state.
///
/// # Errors
/// What `out` returns.
pub fn write_channel(trace: &Trace, out: &mut impl Write) -> io::Result<Vec<String>> {
    let mut channel = Channel::new(trace, out);
    for event in &trace.events {
        channel.event(&event)?;
    }
    channel.finish()
}

/// Writes the statement of the events `names`, which [`write_channel`] has written.
///
/// # Errors
/// What `out` returns.
pub fn write_metadata(trace: &Trace, names: &[String], out: &mut impl Write) -> io::Result<()> {
    metadata::write(trace, names, out)
}

/// Tells the files of one trace from those of another.
fn uuid(trace: &Trace) -> Uuid {
    let times = [trace.info.start_unix_ns, trace.info.start_ns].map(u128::from);
    // A random one, as far as its readers are concerned.
    uuid::Builder::from_u128(times[0] << 64 | times[1])
        .with_version(uuid::Version::Random)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
}
