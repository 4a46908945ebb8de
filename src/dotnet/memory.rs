//! Reading the memory of a process: bounded, without stopping it, and with no trust in what is there.

use std::fs::File;
use std::io;

pub use perfcollect_symbols::memory::{Image, Memory};

use super::file_bytes::FileBytes;
use crate::trace::Pid;

/// The memory of a running process. Held, it stays that process's: a pid used again is another one, and after its
/// end there is nothing to read.
#[derive(Debug)]
pub struct ProcessMemory(File);

impl ProcessMemory {
    /// Opens it; the right to trace the process is needed.
    ///
    /// # Errors
    /// No such right, or no such process.
    pub fn open(pid: Pid) -> io::Result<Self> {
        File::open(format!("/proc/{pid}/mem")).map(Self)
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        FileBytes(&self.0).read(address, buffer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_read() {
        let value = 0x0123_4567_89ab_cdef_u64;
        let memory = ProcessMemory::open(Pid(std::process::id() as i32)).unwrap();
        assert_eq!(memory.u64(&raw const value as u64), Some(value));
        for nowhere in [0, 8, u64::MAX - 7, u64::MAX, 1 << 63] {
            assert_eq!(memory.u64(nowhere), None, "{nowhere:#x}");
        }
    }
}
