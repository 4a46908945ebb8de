//! Ring buffer shared with the kernel: one control page, followed by a power of two of data bytes.
//!
//! The kernel writes records at `head` and never touches the bytes between `tail` and `head`.
//! Advancing the tail releases bytes to the kernel. Both offsets only grow; their low bits are the
//! position in the data area.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};
use perf_event_open_sys::bindings::perf_event_mmap_page;

use super::merge::RecordSource;

const HEADER_BYTES: usize = 8;
const SIZE_AT: u64 = 6;

/// A perf ring buffer, read in place.
pub(super) struct Ring {
    memory: MmapRaw,
    data_offset: usize,
    data_bytes: usize,
    head: u64,
    tail: u64,
    /// End of the records that `preview` has read.
    preview_end: u64,
    /// Contiguous copy of a record that wraps around the end of the data area.
    wrapped: Vec<u8>,
    is_corrupt: bool,
}

impl Ring {
    /// Maps the ring buffer of a perf event.
    ///
    /// `data_bytes` is a power of two and a multiple of the page size.
    pub(super) fn map(event: &File, data_bytes: usize) -> io::Result<Self> {
        let page_bytes = rustix::param::page_size();
        debug_assert!(data_bytes.is_power_of_two() && data_bytes.is_multiple_of(page_bytes));
        Ok(Self {
            memory: MmapOptions::new()
                .len(page_bytes + data_bytes)
                .map_raw(event)?,
            data_offset: page_bytes,
            data_bytes,
            head: 0,
            tail: 0,
            preview_end: 0,
            wrapped: Vec::new(),
            is_corrupt: false,
        })
    }

    /// Reads the kernel's current write position.
    pub(super) fn refresh(&mut self) {
        self.head = self.data_head().load(Ordering::Acquire);
    }

    /// Passes records that are new since the last preview to `each` and leaves them in the buffer.
    pub(super) fn preview(&mut self, mut each: impl FnMut(&[u8])) {
        self.refresh();
        self.preview_end = self.preview_end.max(self.tail);
        while let Some(record) = self.record(self.preview_end) {
            let size = record.len() as u64;
            each(record);
            self.preview_end = self.preview_end.wrapping_add(size);
        }
    }

    /// Whether a record had an impossible size. Reading stops at this record.
    pub(super) fn is_corrupt(&self) -> bool {
        self.is_corrupt
    }

    /// Returns whether less than half of the buffer was in use at the last [`Ring::refresh`].
    pub(super) fn has_room(&self) -> bool {
        (self.head.wrapping_sub(self.tail) as usize) < self.data_bytes / 2
    }

    fn control(&self) -> *mut perf_event_mmap_page {
        self.memory.as_mut_ptr().cast()
    }

    fn data_head(&self) -> &AtomicU64 {
        // SAFETY: the first mapped page is a perf_event_mmap_page that lives as long as `self`;
        // data_head is an aligned u64 that the kernel writes atomically.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).data_head) }
    }

    fn data_tail(&self) -> &AtomicU64 {
        // SAFETY: as in `data_head`; the kernel only reads data_tail.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.control()).data_tail) }
    }

    /// Returns the bytes from `position` up to `len` or the end of the data area.
    fn contiguous(&self, position: u64, len: usize) -> &[u8] {
        let start = position as usize & (self.data_bytes - 1);
        let len = len.min(self.data_bytes - start);
        // SAFETY: start + len <= data_bytes, so the range is mapped. Callers request only bytes
        // between tail and head, which the kernel does not write until the tail advances. Only
        // `&mut self` methods advance the tail.
        unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(self.data_offset).add(start), len)
        }
    }

    /// Returns the size of the record at a position between tail and head.
    ///
    /// Returns 0 if there is no record or its size is impossible.
    fn record_bytes(&mut self, at: u64) -> usize {
        let available = self.head.wrapping_sub(at) as usize;
        if self.is_corrupt || available < HEADER_BYTES {
            return 0;
        }
        // The size of a record is a multiple of 8 bytes, so a header never wraps.
        let size = match *self.contiguous(at.wrapping_add(SIZE_AT), 2) {
            [low, high] => usize::from(u16::from_le_bytes([low, high])),
            _ => 0,
        };
        self.is_corrupt = size < HEADER_BYTES || size > available;
        if self.is_corrupt { 0 } else { size }
    }

    /// Returns the record at a position between tail and head.
    fn record(&mut self, at: u64) -> Option<&[u8]> {
        let size = self.record_bytes(at);
        if size == 0 {
            return None;
        }
        let first = self.contiguous(at, size).len();
        if first == size {
            return Some(self.contiguous(at, size));
        }
        let mut wrapped = std::mem::take(&mut self.wrapped);
        wrapped.clear();
        wrapped.extend_from_slice(self.contiguous(at, first));
        wrapped.extend_from_slice(self.contiguous(at.wrapping_add(first as u64), size - first));
        self.wrapped = wrapped;
        Some(&self.wrapped)
    }
}

impl RecordSource for Ring {
    fn peek(&mut self) -> Option<&[u8]> {
        self.record(self.tail)
    }

    fn advance(&mut self) {
        self.tail = self.tail.wrapping_add(self.record_bytes(self.tail) as u64);
        self.data_tail().store(self.tail, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::fake_event::FakeEvent;

    const DATA_BYTES: usize = 4096;

    fn record(fill: u8, size: usize) -> Vec<u8> {
        let mut bytes = vec![fill; size];
        bytes[SIZE_AT as usize..HEADER_BYTES].copy_from_slice(&(size as u16).to_le_bytes());
        bytes
    }

    #[test]
    fn returns_whole_records_across_the_end_of_the_data_area() {
        let event = FakeEvent::new(DATA_BYTES);
        let mut ring = event.ring();
        let mut position = 0;
        for (fill, size) in [(1, 3000), (2, 2000), (3, 8), (4, 4088), (5, 16)] {
            let written = record(fill, size);
            assert!(ring.peek().is_none());
            event.write(position, &written);
            ring.refresh();
            assert_eq!(ring.peek(), Some(&written[..]));
            position += size as u64;
            ring.advance();
            assert_eq!(event.tail(), position);
        }
        assert!(!ring.is_corrupt());
    }

    #[test]
    fn preview_returns_each_record_once_and_removes_none() {
        let event = FakeEvent::new(DATA_BYTES);
        let mut ring = event.ring();
        let written = [record(1, 2048), record(2, 1024), record(3, 2000)];
        let seen = |ring: &mut Ring| {
            let mut seen = Vec::new();
            ring.preview(|record| seen.push(record.to_vec()));
            seen
        };
        event.write(0, &written[0]);
        event.write(2048, &written[1]);
        assert_eq!(seen(&mut ring), written[..2]);
        assert_eq!(seen(&mut ring), written[..0]);
        ring.advance();
        event.write(3072, &written[2]);
        assert_eq!(seen(&mut ring), written[2..]);
        assert_eq!(event.tail(), 2048);
        assert_eq!(ring.peek(), Some(&written[1][..]));
        // The preview continues after records that were removed meanwhile.
        ring.advance();
        ring.advance();
        event.write(5072, &written[1]);
        assert_eq!(seen(&mut ring), written[1..2]);
    }

    #[test]
    fn stops_at_a_record_of_impossible_size() {
        for size in [0_u16, 7, 64] {
            let event = FakeEvent::new(DATA_BYTES);
            let mut ring = event.ring();
            let mut bytes = record(1, 16);
            bytes[SIZE_AT as usize..HEADER_BYTES].copy_from_slice(&size.to_le_bytes());
            event.write(0, &bytes);
            ring.refresh();
            assert_eq!(ring.peek(), None);
            assert!(ring.is_corrupt(), "{size}");
        }
    }
}
