//! What the generations of a heap held before and after a collection, and those of all heaps after it.
//!
//! The runtime tells it of each heap, at the end of an event, ten numbers of 8 bytes for each generation:
//!
//! ```text
//! before: size | of it in the free list | free elsewhere        after: the same three        then four more
//! ```

use super::sum;

/// Where the generations begin in the event, and the bytes of each.
const AT: usize = 86;
const BYTES: usize = 80;
/// Generations 0, 1, 2, that of large and, from .NET 5 on, that of pinned objects.
const MAX_GENERATIONS: usize = 5;
/// Those that a program allocates in.
const ALLOCATED_IN: [usize; 3] = [0, 3, 4];

/// Of them, that of small objects, and where those that live on their own begin: large and pinned ones.
const SMALL: usize = 0;
const LARGE: usize = 3;

/// Bytes of objects in a generation.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Objects {
    before: u64,
    after: u64,
}

/// What is known of a heap at a collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Generations {
    /// Of all generations, with what is free.
    pub(super) size_before: u64,
    /// Of those that are allocated in.
    objects: [Option<Objects>; ALLOCATED_IN.len()],
}

impl Generations {
    /// From what an event holds, which states so many generations.
    pub(super) fn parse(payload: &[u8], generations: u64) -> Self {
        let generations = usize::try_from(generations)
            .map_or(MAX_GENERATIONS, |count| count.min(MAX_GENERATIONS));
        let mut heap = Self::default();
        let rows = payload.get(AT..).unwrap_or_default().chunks_exact(BYTES);
        for (generation, row) in rows.take(generations).enumerate() {
            let number = |at: usize| {
                let bytes = row.get(8 * at..).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            let objects = |at| number(at).saturating_sub(sum([number(at + 1), number(at + 2)]));
            heap.size_before = sum([heap.size_before, number(0)]);
            if let Some(at) = ALLOCATED_IN.iter().position(|&of| of == generation) {
                let (before, after) = (objects(0), objects(3));
                heap.objects[at] = Some(Objects { before, after });
            }
        }
        heap
    }

    /// Bytes that were allocated in generation 0, and in the others, since the collection `last`, which was of
    /// generation 0 only or not. Less than none where the runtime gave up allocated memory.
    pub(super) fn allocated_since(&self, last: Option<&Self>, last_was_gen0: bool) -> [i64; 2] {
        let mut allocated = [0_i64; 2];
        for (at, now) in self.objects.iter().enumerate() {
            let Some(now) = now else { continue };
            let last = last.and_then(|last| last.objects[at]);
            let left = match last {
                // It leaves the others as they are, and tells nothing of them.
                Some(last) if at > 0 && last.after == 0 && last_was_gen0 => last.before,
                Some(last) => last.after,
                None => 0,
            };
            let more = i128::from(now.before) - i128::from(left);
            let of = &mut allocated[usize::from(at > 0)];
            *of = of.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        }
        allocated
    }
}

/// What is there after a collection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Left {
    /// Bytes of each generation.
    pub(super) sizes: [u64; MAX_GENERATIONS],
    /// Bytes that lived on.
    pub(super) promoted: u64,
}

impl Left {
    /// Bytes of all generations.
    pub(super) fn size(&self) -> u64 {
        sum(self.sizes)
    }

    /// Bytes before the next collection, which left this, as far as that can be told where so many of small objects were allocated
    /// in between.
    pub(super) fn at_most_until(mut self, allocated: u64, next: Option<Self>) -> u64 {
        self.sizes[SMALL] = self.sizes[SMALL].max(allocated);
        if let Some(next) = next {
            let larger = self.sizes[LARGE..].iter_mut().zip(&next.sizes[LARGE..]);
            larger.for_each(|(size, next)| *size = *next.max(size));
        }
        self.size()
    }
}
