//! What the collector itself costs.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process, user and system, all threads.
#[must_use]
pub fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Largest resident memory of this process so far, in KiB; 0 if /proc does not tell.
#[must_use]
pub fn peak_memory_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmHWM:")?
                .split_whitespace()
                .next()?
                .parse()
                .ok()
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_costs_something() {
        assert!(cpu_time() > Duration::ZERO);
        assert!(peak_memory_kib() > 500);
    }
}
