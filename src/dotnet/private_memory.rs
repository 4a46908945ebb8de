//! Memory of a running process that belongs to no file.
//!
//! For the memory of a file, a file system of the target could let the reader wait.

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use super::memory::{Memory, ProcessMemory};
use crate::trace::Pid;

/// Size of a page.
pub const PAGE_BYTES: u64 = 4096;

/// Bits of a word of `/proc/PID/pagemap` (Linux' `admin-guide/mm/pagemap`).
const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const OF_FILE: u64 = 1 << 61;

/// The memory of a process, and where each page is.
pub struct PrivateMemory {
    memory: ProcessMemory,
    /// `/proc/PID/pagemap`: a word for each page.
    pages: File,
}

impl PrivateMemory {
    /// Opens the memory of a process. Returns `None` if it may not be read, or the process has ended.
    #[must_use]
    pub fn open(pid: Pid) -> Option<Self> {
        Some(Self {
            memory: ProcessMemory::open(pid).ok()?,
            pages: File::open(format!("/proc/{pid}/pagemap")).ok()?,
        })
    }

    /// Reads bytes of a page if it is in memory. Returns the number of bytes.
    pub fn read_resident(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut word = [0; 8];
        let offset = address / PAGE_BYTES * word.len() as u64;
        let read = self.pages.read_exact_at(&mut word, offset);
        match read.is_ok() && Page::of(u64::from_ne_bytes(word)) == Page::Resident {
            true => self.memory.read(address, buffer),
            false => 0,
        }
    }

    /// Returns a copy of a range of addresses. Pages without content are zeros.
    ///
    /// It ends before the first page of a file, and after the last page with content.
    #[must_use]
    pub fn copy(&self, range: Range<u64>) -> Vec<u8> {
        let Range { start, end } = range;
        let first = start / PAGE_BYTES;
        let count = end.div_ceil(PAGE_BYTES).saturating_sub(first);
        let Some(pages) = self.pages_from(first, count as usize) else {
            return Vec::new();
        };
        let of_file = pages.iter().position(|page| *page == Page::OfFile);
        let pages = pages.get(..of_file.unwrap_or(pages.len()));
        let pages = pages.unwrap_or_default();
        let with_content = pages.iter().rposition(|page| page.has_content());
        let pages = pages.get(..with_content.map_or(0, |last| last + 1));
        let mut copied = Vec::new();
        let mut at = start;
        for run in pages
            .unwrap_or_default()
            .chunk_by(|a, b| a.has_content() == b.has_content())
        {
            let next = (at / PAGE_BYTES + run.len() as u64) * PAGE_BYTES;
            let next = next.min(end);
            let from = copied.len();
            copied.resize(from + (next - at) as usize, 0);
            if let (true, Some(buffer)) = (run[0].has_content(), copied.get_mut(from..)) {
                let read = self.memory.read(at, buffer);
                if read < buffer.len() {
                    copied.truncate(from + read);
                    break;
                }
            }
            at = next;
        }
        copied
    }

    fn pages_from(&self, first: u64, count: usize) -> Option<Vec<Page>> {
        let mut words = vec![0; count * 8];
        self.pages
            .read_exact_at(&mut words, first.checked_mul(8)?)
            .ok()?;
        let (words, _) = words.as_chunks::<8>();
        Some(
            words
                .iter()
                .map(|word| Page::of(u64::from_ne_bytes(*word)))
                .collect(),
        )
    }
}

impl Memory for PrivateMemory {
    fn read(&self, address: u64, buffer: &mut [u8]) -> usize {
        let copied = self.copy(address..address.saturating_add(buffer.len() as u64));
        let read = copied.len().min(buffer.len());
        for (to, from) in buffer.iter_mut().zip(copied) {
            *to = from;
        }
        read
    }
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Resident,
    Swapped,
    OfFile,
    /// It has no content yet, or is not mapped.
    Absent,
}

impl Page {
    fn of(word: u64) -> Self {
        match (word & PRESENT != 0, word & SWAPPED != 0) {
            _ if word & OF_FILE != 0 => Self::OfFile,
            (true, _) => Self::Resident,
            (false, true) => Self::Swapped,
            (false, false) => Self::Absent,
        }
    }

    fn has_content(self) -> bool {
        matches!(self, Self::Resident | Self::Swapped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> PrivateMemory {
        PrivateMemory::open(Pid(std::process::id() as i32)).unwrap()
    }

    #[test]
    fn copies_pages_with_content_and_zeros_between() {
        // Larger than what the allocator takes from memory that was used before.
        let mut bytes = vec![0_u8; 64 << 20];
        let address = bytes.as_ptr() as u64;
        let page = address.next_multiple_of(PAGE_BYTES) + 8 * PAGE_BYTES;
        let at = (page - address) as usize;
        bytes[at] = 7;
        bytes[at + 3 * PAGE_BYTES as usize] = 9;
        let copied = own().copy(page..page + 5 * PAGE_BYTES);
        assert!(copied.len() >= 4 * PAGE_BYTES as usize);
        assert_eq!(copied[..], bytes[at..][..copied.len()]);
        let part = own().copy(page + 8..page + 24);
        assert_eq!(part, bytes[at + 8..at + 24]);
        assert!(own().copy(page + 4..page).is_empty());
    }

    /// A file system could let the reader wait.
    #[test]
    fn reads_no_memory_of_a_file() {
        static FILE: [u8; 64] = [1; 64];
        let address = std::hint::black_box(&FILE).as_ptr() as u64;
        assert!(own().copy(address..address + 64).is_empty());
        assert_eq!(own().read_resident(address, &mut [0; 8]), 0);
    }
}
