//! How much the processes had to wait for CPUs.

use serde::{Deserialize, Serialize};

/// Waits for CPUs during a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuPressure {
    /// Time in which at least one thread of the machine was ready and had no CPU, in milliseconds;
    /// 0 if the kernel does not measure it (`/proc/pressure/cpu`).
    pub waiting_ms: f64,
    /// Time for which the control groups of the target were throttled by their CPU limit, in
    /// milliseconds, all CPUs together.
    pub throttled_ms: f64,
    /// Number of periods in which they were.
    pub throttled_periods: u64,
}
