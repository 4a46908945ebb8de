//! The sampling that the kernel granted.

use super::request::{Clock, EffectiveRequest};

/// Parameters of sampling after all fallbacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Granted {
    /// Event that triggers samples.
    pub clock: Clock,
    /// Whether all processes are sampled, not only the threads of the target.
    pub system_wide: bool,
    /// Whether kernel code is sampled.
    pub kernel: bool,
    /// Size of the ring buffer of each CPU.
    pub ring_bytes: usize,
    /// Maximum size of a stack copy; 0 without copies.
    pub stack_bytes: u32,
}

impl Granted {
    pub(super) fn new(effective: &EffectiveRequest) -> Self {
        let request = &effective.request;
        Self {
            clock: request.clock,
            system_wide: effective.system_wide,
            kernel: effective.kernel,
            ring_bytes: request.ring_bytes,
            stack_bytes: request.stack_bytes(),
        }
    }
}
