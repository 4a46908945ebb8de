//! Sizes of event streams.

use std::iter::Sum;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of one or more event streams in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamSize {
    /// Size as received.
    pub received: u64,
    /// Size of the files, which are compressed.
    pub stored: u64,
}

impl Sum for StreamSize {
    fn sum<I: Iterator<Item = Self>>(sizes: I) -> Self {
        sizes.fold(Self::default(), |sum, size| Self {
            received: sum.received + size.received,
            stored: sum.stored + size.stored,
        })
    }
}

/// Size of streams that other threads write.
#[derive(Debug, Default)]
pub(super) struct GrowingSize {
    received: AtomicU64,
    stored: AtomicU64,
}

impl GrowingSize {
    pub(super) fn add(&self, received: u64, stored: u64) {
        self.received.fetch_add(received, Ordering::Relaxed);
        self.stored.fetch_add(stored, Ordering::Relaxed);
    }

    pub(super) fn get(&self) -> StreamSize {
        StreamSize {
            received: self.received.load(Ordering::Relaxed),
            stored: self.stored.load(Ordering::Relaxed),
        }
    }
}
