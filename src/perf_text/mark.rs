//! What the writer of `perf.data.txt` ([`crate::output::perf_text`]) adds to the samples of a trace.

/// Name of the process of the first record, which is at time zero.
pub const TIME_ZERO: &str = "swapper (cpu_idle)";
/// Start of a record that ends the sample above it, up to its CPU number; and its event.
pub const END: &str = "# 0/0 ";
/// See [`END`].
pub const END_EVENT: &str = "end:";
/// The frame of a sample without a stack.
pub const NO_STACK: &str = "0 {no stack} (perfcollect)";
/// Module of the frames that stand for missing ones.
pub const MODULE: &str = "perfcollect";
