//! Markers that the writer of `perf.data.txt` adds to the samples of a trace, for PerfView and for `convert`.

/// Name of the process of the first record, which is at time zero.
pub(crate) const TIME_ZERO: &str = "swapper (cpu_idle)";
/// Start of a record that ends the sample above it, up to its CPU number; and its event.
pub(crate) const END: &str = "# 0/0 ";
/// See [`END`].
pub(crate) const END_EVENT: &str = "end:";
/// The frame of a sample without a stack.
pub(crate) const NO_STACK: &str = "0 {no stack} (perfcollect)";
/// Module of the frames that stand for missing ones.
pub(crate) const MODULE: &str = "perfcollect";
/// Event of the records of times without a CPU.
pub(crate) const SWITCH: &str = "sched:sched_switch";
/// Event of the samples of page faults.
pub(crate) const FAULTS: &str = "page-faults";
/// Event of the samples of wake-ups.
pub(crate) const WAKEUPS: &str = "sched:sched_waking";
/// Keeps the idle thread out of PerfView's Thread Time.
pub(super) const NO_IDLE_THREAD: &str = "sched:sched_process_exit: comm=swapper pid=0 prio=120\n";
/// Start of the events that [`END`] may also have.
pub(crate) const SCHEDULER: &[u8] = b" sched:sched_";
