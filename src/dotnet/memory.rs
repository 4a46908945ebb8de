//! Reading the memory of a process: bounded, without stopping it, and with no trust in what is there.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::trace::Pid;

/// Bytes by address: a process, a file laid out as it is mapped, or an image made by a test.
pub trait Memory {
    /// Fills `buffer` from `address` on and returns how many bytes were there.
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize;

    /// N bytes, if all are there.
    fn bytes<const N: usize>(&self, address: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        (self.read(address, &mut bytes) == N).then_some(bytes)
    }

    /// A 32-bit number.
    fn u32(&self, address: u64) -> Option<u32> {
        self.bytes(address).map(u32::from_le_bytes)
    }

    /// A 64-bit number, or a pointer.
    fn u64(&self, address: u64) -> Option<u64> {
        self.bytes(address).map(u64::from_le_bytes)
    }
}

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
        let mut filled = 0;
        // A read ends at the first page that is not there, at times after a part.
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let Some(from) = address.checked_add(filled as u64) else {
                break;
            };
            match self.0.read_at(rest, from) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        filled
    }
}

/// Bytes from an address on.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// Address of the first byte.
    pub start: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

impl Memory for Image<'_> {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let from = address
            .checked_sub(self.start)
            .and_then(|at| usize::try_from(at).ok())
            .and_then(|at| self.bytes.get(at..))
            .unwrap_or_default();
        let length = from.len().min(buffer.len());
        if let (Some(to), Some(from)) = (buffer.get_mut(..length), from.get(..length)) {
            to.copy_from_slice(from);
        }
        length
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

    #[test]
    fn an_image_ends_where_its_bytes_do() {
        let image = Image {
            start: 0x1000,
            bytes: &[1, 2, 3, 4, 5],
        };
        assert_eq!(image.u32(0x1001), Some(0x0504_0302));
        assert_eq!(image.u32(0x1002), None);
        assert_eq!(image.u32(0xfff), None);
        assert_eq!(image.read(0x1004, &mut [0; 9]), 1);
    }
}
