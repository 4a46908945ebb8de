//! How much the processes had to wait for CPUs.

use serde::{Deserialize, Serialize};

/// Waits for CPUs during a capture.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuPressure {
    /// Time in which at least one thread of the machine was ready and had no CPU, in milliseconds;
    /// 0 if the kernel does not measure it (`/proc/pressure/cpu`).
    pub waiting_ms: f64,
    /// Time for which a control group was throttled by its CPU limit, in milliseconds, all CPUs
    /// together: the group of the target, or around it, for which that is longest.
    pub throttled_ms: f64,
    /// Number of periods in which it was.
    pub throttled_periods: u64,
    /// Path of the group in its hierarchy; empty if none was throttled. Untrusted.
    pub throttled_group: String,
    /// Waits of the processes that the user named, or of the command, and of their descendants, most
    /// first: at most 64.
    pub processes: Vec<ProcessWaits>,
    /// Number of threads of these that were not read, because there were too many.
    pub threads_omitted: u64,
}

/// How long the threads of a process waited for a CPU. They were read once a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProcessWaits {
    /// Process id.
    pub pid: i32,
    /// Time in which threads were ready and had no CPU, in milliseconds, all threads together.
    pub waited_ms: f64,
    /// Time in which they had one, in milliseconds.
    pub ran_ms: f64,
    /// Number of threads.
    pub threads: u64,
}
