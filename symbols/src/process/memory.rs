//! The memory of a live process, without stopping it.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::memory::Memory;

/// The memory of a running process: reads return untrusted bytes.
///
/// It refers to one process instance, even if the pid is reused. After the end of the process, reads
/// return no bytes.
#[derive(Debug)]
pub struct ProcessMemory(Access);

/// A way to read the memory.
#[derive(Debug)]
enum Access {
    /// /proc/PID/mem. Only the user of the process may open it, and root.
    File(File),
    /// `process_vm_readv`, for which the capability `CAP_SYS_PTRACE` suffices.
    Call {
        pid: i32,
        /// Becomes readable when the process ends, before its pid is free.
        pidfd: OwnedFd,
    },
}

impl ProcessMemory {
    /// Opens the memory of a process. Requires the permission to trace the process.
    ///
    /// # Errors
    /// The permission is missing, or the process has ended.
    pub fn open(pid: i32) -> io::Result<Self> {
        match File::open(format!("/proc/{pid}/mem")) {
            Ok(file) => Ok(Self(Access::File(file))),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Self::open_by_call(pid).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Returns `None` if the process may not be traced.
    fn open_by_call(pid: i32) -> Option<Self> {
        let pidfd = pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        // There is mostly no memory at 0: a caller without permission gets another error.
        let has_permission = matches!(call(pid, 0, &mut [0]), Ok(_) | Err(nix::Error::EFAULT));
        has_permission.then_some(Self(Access::Call { pid, pidfd }))
    }
}

impl Memory for ProcessMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        match &self.0 {
            Access::File(file) => file.read(address, buffer),
            Access::Call { pid, pidfd } => {
                let bytes = call(*pid, address, buffer).unwrap_or(0);
                // Otherwise the bytes may be of another process that has the pid now.
                if has_ended(pidfd) { 0 } else { bytes }
            }
        }
    }
}

fn call(pid: i32, address: u64, buffer: &mut [u8]) -> nix::Result<usize> {
    let base = usize::try_from(address).map_err(|_| nix::Error::EFAULT)?;
    let remote = RemoteIoVec {
        base,
        len: buffer.len(),
    };
    let pid = nix::unistd::Pid::from_raw(pid);
    process_vm_readv(pid, &mut [IoSliceMut::new(buffer)], &[remote])
}

fn has_ended(pidfd: &OwnedFd) -> bool {
    loop {
        let mut polled = [PollFd::new(pidfd, PollFlags::IN)];
        match poll(&mut polled, Some(&Timespec::default())) {
            Err(Errno::INTR) => {}
            result => return result != Ok(0),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Each way to read the memory of a process.
    fn both(pid: i32) -> [ProcessMemory; 2] {
        [
            ProcessMemory::open(pid).unwrap(),
            ProcessMemory::open_by_call(pid).unwrap(),
        ]
    }

    #[test]
    fn reads_memory_of_current_process() {
        let value = 0x0123_4567_89ab_cdef_u64;
        for memory in both(std::process::id() as i32) {
            assert_eq!(memory.u64(&raw const value as u64), Ok(value));
            for unmapped in [0, 8, u64::MAX - 7, u64::MAX, 1 << 63] {
                assert!(memory.u64(unmapped).is_err(), "{unmapped:#x}");
            }
        }
    }

    #[test]
    fn reads_no_memory_of_a_process_that_has_ended() {
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let pid = child.id() as i32;
        // The parent continues before the kernel has mapped the program.
        let start = loop {
            let maps = crate::process::read_maps(pid).unwrap();
            let mut lines = crate::process::parse_maps(&maps);
            if let Some(line) = lines.find(|line| line.path.ends_with(b"sleep")) {
                break line.start;
            }
            std::thread::yield_now();
        };
        let [file, call] = both(pid);
        assert!(file.u64(start).is_ok() && call.u64(start).is_ok());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(file.u64(start).is_err() && call.u64(start).is_err());
    }
}
