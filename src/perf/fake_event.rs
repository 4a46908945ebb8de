//! A file in place of a perf event: its bytes appear in the ring buffer that is mapped from it.

use std::fs::File;
use std::mem::offset_of;
use std::os::unix::fs::FileExt;

use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::ring::Ring;

pub(super) struct FakeEvent {
    file: File,
    data_bytes: usize,
}

impl FakeEvent {
    pub(super) fn new(data_bytes: usize) -> Self {
        let file = tempfile::tempfile().unwrap();
        file.set_len((rustix::param::page_size() + data_bytes) as u64)
            .unwrap();
        Self { file, data_bytes }
    }

    pub(super) fn ring(&self) -> Ring {
        Ring::map(&self.file, self.data_bytes).unwrap()
    }

    /// Writes bytes like the kernel, and advances the head to their end.
    pub(super) fn write(&self, position: u64, bytes: &[u8]) {
        let start = position as usize % self.data_bytes;
        let (first, wrapped) = bytes.split_at(bytes.len().min(self.data_bytes - start));
        let data = rustix::param::page_size();
        for (at, piece) in [(start, first), (0, wrapped)] {
            self.file.write_all_at(piece, (data + at) as u64).unwrap();
        }
        let head = position + bytes.len() as u64;
        let head_at = offset_of!(perf_event_mmap_page, data_head) as u64;
        self.file
            .write_all_at(&head.to_le_bytes(), head_at)
            .unwrap();
    }

    /// Returns the read position of the ring buffer.
    pub(super) fn tail(&self) -> u64 {
        let mut tail = [0; 8];
        let tail_at = offset_of!(perf_event_mmap_page, data_tail) as u64;
        self.file.read_exact_at(&mut tail, tail_at).unwrap();
        u64::from_le_bytes(tail)
    }

    /// Returns the number of free bytes at `position`.
    pub(super) fn room(&self, position: u64) -> usize {
        self.data_bytes - (position - self.tail()) as usize
    }
}
