//! Reader for the memory of a process, without stopping the process. The content is untrusted.

use std::io;

pub(super) use perfcollect_symbols::memory::Structure;
pub use perfcollect_symbols::memory::{Image, Memory, ReadError};
use perfcollect_symbols::process;

use rustix::io::Errno;

use super::runtime_error::AttachError;
use crate::trace::Pid;

/// The memory of a running process, as [`process::ProcessMemory`].
#[derive(Debug)]
pub struct ProcessMemory(process::ProcessMemory);

impl ProcessMemory {
    /// Opens the memory of a process. Requires the permission to trace the process.
    ///
    /// # Errors
    /// The permission is missing, or the process has ended.
    pub fn open(pid: Pid) -> Result<Self, AttachError> {
        let memory = process::ProcessMemory::open(pid.0);
        memory
            .map(Self)
            .map_err(|error| match Errno::from_io_error(&error) {
                Some(Errno::NOENT | Errno::SRCH) => AttachError::Ended,
                _ => AttachError::Open(error),
            })
    }

    /// Returns whether the memory of a process may not be read, but its files may.
    ///
    /// Yama (ptrace_scope) denies this. Its diagnostic port can then be reached.
    #[must_use]
    pub fn is_denied(pid: Pid) -> bool {
        let denied = |error: &io::Error| {
            let errno = Errno::from_io_error(error);
            matches!(errno, Some(Errno::ACCESS | Errno::PERM))
        };
        matches!(Self::open(pid), Err(AttachError::Open(error)) if denied(&error))
            && std::fs::metadata(format!("/proc/{pid}/root/")).is_ok()
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        self.0.read(address, buffer)
    }
}
