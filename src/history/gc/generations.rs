//! Generations of a heap before and after a collection, and of all heaps after it.
//!
//! An event per heap ends with ten integers of 8 bytes for each generation:
//!
//! ```text
//! before: size | free in the free list | free elsewhere        after: the same three
//! allocated or promoted into it | pinned survivors | other survivors | allocation budget
//! ```

use crate::history::fields::sum;

/// Offset of the first generation in the event, and the length of each.
const GENERATIONS_OFFSET: usize = 86;
const GENERATION_BYTES: usize = 80;
/// Generations 0, 1, 2, the large object heap and, since .NET 5, the pinned object heap.
pub(crate) const MAX_GENERATIONS: usize = 5;
/// Generations that the program allocates in.
const ALLOCATION_GENERATIONS: [usize; 3] = [0, 3, 4];

/// Indexes of the generation of small objects, and of the first separate heap (large, then pinned).
const SMALL: usize = 0;
const LARGE: usize = 3;
/// Generation whose collection includes the separate heaps.
const OLDEST: u64 = 2;

/// A generation of a heap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Generation {
    size_before: u64,
    /// Negative if the runtime reports more free bytes than the generation has.
    objects_before: i64,
    objects_after: i64,
    free_after: u64,
    survived: u64,
}

/// The generations of a heap at a collection, if the event contains them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Generations([Option<Generation>; MAX_GENERATIONS]);

impl Generations {
    /// Parses the payload of an event that declares this number of generations.
    pub(crate) fn parse(payload: &[u8], generations: u64) -> Self {
        let generations = usize::try_from(generations)
            .map_or(MAX_GENERATIONS, |count| count.min(MAX_GENERATIONS));
        let mut heap = Self::default();
        let rows = payload
            .get(GENERATIONS_OFFSET..)
            .unwrap_or_default()
            .chunks_exact(GENERATION_BYTES);
        for (generation, row) in heap.0.iter_mut().zip(rows.take(generations)) {
            let number = |at: usize| {
                let bytes = row.get(8 * at..).and_then(<[u8]>::first_chunk);
                bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
            };
            let both = |at| sum([number(at), number(at + 1)]);
            let bytes = |number| i64::try_from(number).unwrap_or(i64::MAX);
            *generation = Some(Generation {
                size_before: number(0),
                objects_before: bytes(number(0)).saturating_sub(bytes(both(1))),
                objects_after: bytes(number(3)).saturating_sub(bytes(both(4))),
                free_after: both(4),
                survived: both(7),
            });
        }
        heap
    }

    /// Returns the data that later collections need.
    pub(crate) fn objects(&self) -> Objects {
        let objects =
            |generation: Generation| (generation.objects_before, generation.objects_after);
        Objects(ALLOCATION_GENERATIONS.map(|at| self.0[at].map(objects)))
    }
}

/// Bytes of objects before and after a collection, in the generations that the program allocates
/// in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Objects([Option<(i64, i64)>; ALLOCATION_GENERATIONS.len()]);

impl Objects {
    /// Returns the bytes allocated since the collection `last` in generation 0, and in the others.
    ///
    /// `last_was_gen0` means that `last` collected only generation 0. A result is negative if the
    /// runtime returned allocated memory.
    pub(crate) fn allocated_since(&self, last: Option<&Self>, last_was_gen0: bool) -> [i64; 2] {
        let mut allocated = [0_i64; 2];
        for (at, now) in self.0.iter().enumerate() {
            let Some((now, _)) = *now else { continue };
            let last = last.and_then(|last| last.0[at]);
            let before = match last {
                // Such a collection leaves the other generations as they are, and reports nothing
                // about them.
                Some((before, 0)) if at > 0 && last_was_gen0 => before,
                Some((_, after)) => after,
                None => 0,
            };
            let total = &mut allocated[usize::from(at > 0)];
            *total = total.saturating_add(now.saturating_sub(before));
        }
        allocated
    }
}

/// Totals of a collection over all heaps.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct HeapTotals {
    /// Bytes of all generations before the collection, including free bytes.
    pub(crate) size_before: u64,
    heaps: u64,
    /// Sum over all heaps of the survival percentage and of the free bytes, for each generation.
    generations: [Option<(u64, u64)>; MAX_GENERATIONS],
}

impl HeapTotals {
    /// Adds a heap.
    pub(crate) fn add(&mut self, heap: &Generations) {
        self.heaps += 1;
        for (total, generation) in self.generations.iter_mut().zip(heap.0) {
            let Some(generation) = generation else {
                continue;
            };
            let percent = match generation.objects_before {
                0 => 0,
                before => (generation.survived as f64 * 100.0 / before as f64) as u64,
            };
            let (percents, free) = total.unwrap_or_default();
            *total = Some((sum([percents, percent]), sum([free, generation.free_after])));
            self.size_before = sum([self.size_before, generation.size_before]);
        }
    }

    /// Returns the percentage of a generation's objects that survived, as the mean of all heaps.
    ///
    /// Returns `None` if the generation was not collected, or the runtime reported nothing about
    /// it.
    pub(crate) fn survival_percent(&self, generation: usize, collected: u64) -> Option<u64> {
        let is_collected = match generation {
            LARGE.. => collected >= OLDEST,
            younger => younger as u64 <= collected,
        };
        let (percents, _) = self.generations[generation].filter(|_| is_collected)?;
        percents.checked_div(self.heaps)
    }

    /// Returns the free bytes of a generation.
    pub(crate) fn free(&self, generation: usize) -> Option<u64> {
        self.generations[generation].map(|(_, free)| free)
    }
}

/// The heaps after a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct HeapStats {
    /// Bytes of each generation.
    pub(crate) sizes: [u64; MAX_GENERATIONS],
    /// Bytes that survived.
    pub(crate) promoted: u64,
    /// Bytes of survivors that wait for their finalizers.
    pub(crate) finalizable: u64,
    /// Number of objects that could not be moved.
    pub(crate) pinned: u64,
    /// Number of handles to objects.
    pub(crate) handles: u64,
}

impl HeapStats {
    /// Returns the bytes of all generations.
    pub(crate) fn size(&self) -> u64 {
        sum(self.sizes)
    }

    /// Estimates the heap size before the next collection, whose heap stats are `next`.
    ///
    /// `allocated` is the number of bytes of small objects allocated in between.
    pub(crate) fn estimate_before(mut self, allocated: u64, next: Option<Self>) -> u64 {
        self.sizes[SMALL] = self.sizes[SMALL].max(allocated);
        if let Some(next) = next {
            let larger = self.sizes[LARGE..].iter_mut().zip(&next.sizes[LARGE..]);
            larger.for_each(|(size, next)| *size = *next.max(size));
        }
        self.size()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses an event of a heap with these ten integers for each generation.
    fn heap(generations: &[[u64; 10]]) -> Generations {
        let mut payload = vec![0xff; GENERATIONS_OFFSET];
        for number in generations.iter().flatten() {
            payload.extend(number.to_le_bytes());
        }
        Generations::parse(&payload, generations.len() as u64)
    }

    #[test]
    fn adds_up_heaps() {
        let mut totals = HeapTotals::default();
        totals.add(&heap(&[
            [100, 10, 10, 40, 5, 6, 0, 1, 15, 0],
            [50, 0, 0, 60, 1, 1, 0, 0, 25, 0],
            [70, 0, 0, 70, 0, 0, 0, 70, 0, 0],
            [9, 0, 0, 9, 9, 0, 0, 0, 0, 0],
        ]));
        totals.add(&heap(&[
            [100, 0, 0, 40, 5, 6, 0, 31, 2, 0],
            [0; 10],
            [70, 0, 0, 70, 0, 0, 0, 0, 35, 0],
            [9, 0, 9, 9, 0, 9, 0, 0, 0, 0],
        ]));
        assert_eq!(totals.size_before, 229 + 179);
        let survival = |collected| [0, 1, 2, 3, 4].map(|of| totals.survival_percent(of, collected));
        assert_eq!(survival(0), [Some(26), None, None, None, None]);
        assert_eq!(survival(1), [Some(26), Some(25), None, None, None]);
        let all = [Some(26), Some(25), Some(75), Some(0), None];
        assert_eq!(survival(2), all);
        let free = [0, 1, 2, 3, 4].map(|of| totals.free(of));
        assert_eq!(free, [Some(22), Some(2), Some(0), Some(18), None]);
    }

    #[test]
    fn truncated_event_has_fewer_generations() {
        assert_eq!(
            Generations::parse(&[0; GENERATIONS_OFFSET + GENERATION_BYTES - 1], 5),
            heap(&[])
        );
        assert_eq!(
            Generations::parse(&[0; GENERATIONS_OFFSET + GENERATION_BYTES], u64::MAX),
            heap(&[[0; 10]])
        );
    }
}
