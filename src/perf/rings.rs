//! The ring buffers of all CPUs as one stream of records.

use std::ops::ControlFlow;

use super::layout::Layout;
use super::merge::Merge;
use super::record::Record;
use super::ring::Ring;
use crate::ids::Nanos;

/// Ring buffers of all CPUs, their record layout and the state of the merge.
pub(super) struct Rings {
    rings: Vec<Ring>,
    layout: Layout,
    merge: Merge,
    malformed: u64,
}

impl Rings {
    pub(super) fn new(layout: Layout) -> Self {
        Self {
            rings: Vec::new(),
            layout,
            merge: Merge::default(),
            malformed: 0,
        }
    }

    pub(super) fn push(&mut self, ring: Ring) {
        self.rings.push(ring);
    }

    /// Unmaps the group of `count` ring buffers at an index; the last group moves to this index.
    pub(super) fn swap_remove(&mut self, at: usize, count: usize) {
        for index in (at * count..(at + 1) * count).rev() {
            let ring = self.rings.swap_remove(index);
            self.malformed += u64::from(ring.is_corrupt());
        }
    }

    /// Passes records older than `flush_limit` to `each`, see [`Merge::round`].
    pub(super) fn drain_until(
        &mut self,
        flush_limit: Nanos,
        mut each: impl FnMut(Nanos, Record<'_>) -> ControlFlow<()>,
    ) -> Nanos {
        self.rings.iter_mut().for_each(Ring::refresh);
        let Self {
            rings,
            layout,
            merge,
            malformed,
        } = self;
        merge.round(rings, layout, flush_limit, |time, bytes| {
            match layout.parse(bytes) {
                Ok(record) => each(time, record),
                Err(_) => {
                    *malformed += 1;
                    ControlFlow::Continue(())
                }
            }
        })
    }

    /// Returns whether each ring buffer was more than half empty when it was last read.
    pub(super) fn have_room(&self) -> bool {
        self.rings.iter().all(Ring::has_room)
    }

    /// Passes records that are new since the last preview to `each`, one ring buffer at a time.
    ///
    /// The records stay in their ring buffers.
    pub(super) fn preview(&mut self, mut each: impl FnMut(&Record<'_>)) {
        for ring in &mut self.rings {
            // `drain_until` counts malformed records.
            ring.preview(|bytes| {
                if let Ok(record) = self.layout.parse(bytes) {
                    each(&record);
                }
            });
        }
    }

    /// Number of malformed records plus corrupt ring buffers.
    pub(super) fn malformed(&self) -> u64 {
        let corrupt = self.rings.iter().filter(|ring| ring.is_corrupt());
        self.malformed + corrupt.count() as u64
    }

    /// Number of records that were drained out of order.
    pub(super) fn late(&self) -> u64 {
        self.merge.late()
    }

    #[cfg(test)]
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The ring buffers, by CPU.
    #[cfg(test)]
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.rings.iter_mut()
    }
}
