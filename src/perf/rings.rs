//! The rings of all CPUs as one stream of records.

use super::layout::Layout;
use super::merge::Merge;
use super::record::Record;
use super::ring::Ring;
use crate::ids::Nanos;

/// Rings, how to read them, and how far they have been read.
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

    /// Gives a ring back; the last one takes its place.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let ring = self.rings.swap_remove(at);
        self.malformed += u64::from(ring.damaged());
    }

    /// Hands everything older than `horizon` to `each`, in order of time.
    pub(super) fn drain_until(&mut self, horizon: Nanos, mut each: impl FnMut(Nanos, Record<'_>)) {
        self.rings.iter_mut().for_each(Ring::refresh);
        let Self {
            rings,
            layout,
            merge,
            malformed,
        } = self;
        merge.round(rings, layout, horizon, |time, bytes| {
            match layout.parse(bytes) {
                Ok(record) => each(time, record),
                Err(_) => *malformed += 1,
            }
        });
    }

    /// Shows what has come since the last look and is not drained yet, ring by ring.
    pub(super) fn preview(&mut self, mut each: impl FnMut(&Record<'_>)) {
        for ring in &mut self.rings {
            // What cannot be parsed is counted when it is drained.
            ring.preview(|bytes| {
                if let Ok(record) = self.layout.parse(bytes) {
                    each(&record);
                }
            });
        }
    }

    /// Records that could not be parsed, and rings given up.
    pub(super) fn malformed(&self) -> u64 {
        self.malformed + self.rings.iter().filter(|ring| ring.damaged()).count() as u64
    }

    /// Records that came out of order.
    pub(super) fn late(&self) -> u64 {
        self.merge.late()
    }

    #[cfg(test)]
    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The rings themselves, by CPU.
    #[cfg(test)]
    pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut Ring> {
        self.rings.iter_mut()
    }
}
