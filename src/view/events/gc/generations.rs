//! What the generations of a heap held before and after a collection, and those of all heaps after it.
//!
//! The runtime tells it of each heap, at the end of an event, ten numbers of 8 bytes for each generation:
//!
//! ```text
//! before: size | of it in the free list | free elsewhere        after: the same three
//! came in | pinned ones that lived on | others that did | what may be allocated until the next
//! ```

use super::sum;

/// Where the generations begin in the event, and the bytes of each.
const AT: usize = 86;
const BYTES: usize = 80;
/// Generations 0, 1, 2, that of large and, from .NET 5 on, that of pinned objects.
pub(super) const MAX_GENERATIONS: usize = 5;
/// Those that a program allocates in.
const ALLOCATED_IN: [usize; 3] = [0, 3, 4];

/// Of them, that of small objects, and where those that live on their own begin: large and pinned ones.
const SMALL: usize = 0;
const LARGE: usize = 3;
/// Collected with all of them only.
const OLDEST: u64 = 2;

/// A generation of a heap, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Generation {
    size_before: u64,
    /// Less than none where the runtime tells of more free bytes than there are.
    objects_before: i64,
    objects_after: i64,
    free_after: u64,
    lived_on: u64,
}

/// The generations of a heap at a collection, as far as it has them.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Generations([Option<Generation>; MAX_GENERATIONS]);

impl Generations {
    /// From what an event holds, which states so many generations.
    pub(super) fn parse(payload: &[u8], generations: u64) -> Self {
        let generations = usize::try_from(generations)
            .map_or(MAX_GENERATIONS, |count| count.min(MAX_GENERATIONS));
        let mut heap = Self::default();
        let rows = payload.get(AT..).unwrap_or_default().chunks_exact(BYTES);
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
                lived_on: both(7),
            });
        }
        heap
    }

    /// What later collections need of it.
    pub(super) fn objects(&self) -> Objects {
        let objects =
            |generation: Generation| (generation.objects_before, generation.objects_after);
        Objects(ALLOCATED_IN.map(|at| self.0[at].map(objects)))
    }
}

/// Bytes of objects before and after a collection, in the generations of a heap that are allocated in.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Objects([Option<(i64, i64)>; ALLOCATED_IN.len()]);

impl Objects {
    /// Bytes that were allocated in generation 0, and in the others, since the collection `last`, which was of
    /// generation 0 only or not. Less than none where the runtime gave up allocated memory.
    pub(super) fn allocated_since(&self, last: Option<&Self>, last_was_gen0: bool) -> [i64; 2] {
        let mut allocated = [0_i64; 2];
        for (at, now) in self.0.iter().enumerate() {
            let Some((now, _)) = *now else { continue };
            let last = last.and_then(|last| last.0[at]);
            let left = match last {
                // It leaves the others as they are, and tells nothing of them.
                Some((before, 0)) if at > 0 && last_was_gen0 => before,
                Some((_, after)) => after,
                None => 0,
            };
            let of = &mut allocated[usize::from(at > 0)];
            *of = of.saturating_add(now.saturating_sub(left));
        }
        allocated
    }
}

/// What all heaps together tell of a collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct HeapTotals {
    /// Bytes of all generations before it, with what is free.
    pub(super) size_before: u64,
    heaps: u64,
    /// Of each generation that a heap has: percent of its objects that lived on, added up, and bytes that are free.
    generations: [Option<(u64, u64)>; MAX_GENERATIONS],
}

impl HeapTotals {
    /// With one heap more.
    pub(super) fn add(&mut self, heap: &Generations) {
        self.heaps += 1;
        for (total, generation) in self.generations.iter_mut().zip(heap.0) {
            let Some(generation) = generation else {
                continue;
            };
            let percent = match generation.objects_before {
                0 => 0,
                before => (generation.lived_on as f64 * 100.0 / before as f64) as u64,
            };
            let (percents, free) = total.unwrap_or_default();
            *total = Some((sum([percents, percent]), sum([free, generation.free_after])));
            self.size_before = sum([self.size_before, generation.size_before]);
        }
    }

    /// Percent of the objects of a generation that lived on, the mean of the heaps; `None` where it was not collected, or
    /// nothing is told.
    pub(super) fn survival_percent(&self, generation: usize, collected: u64) -> Option<u64> {
        let is_collected = match generation {
            LARGE.. => collected >= OLDEST,
            young => young as u64 <= collected,
        };
        let (percents, _) = self.generations[generation].filter(|_| is_collected)?;
        percents.checked_div(self.heaps)
    }

    /// Bytes in a generation that no object is in.
    pub(super) fn free(&self, generation: usize) -> Option<u64> {
        self.generations[generation].map(|(_, free)| free)
    }
}

/// What is there after a collection.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct HeapStats {
    /// Bytes of each generation.
    pub(super) sizes: [u64; MAX_GENERATIONS],
    /// Bytes that lived on.
    pub(super) promoted: u64,
    /// Of them, bytes of objects that wait for their finalizers.
    pub(super) finalizable: u64,
    /// Objects that could not be moved.
    pub(super) pinned: u64,
    /// Handles to objects.
    pub(super) handles: u64,
}

impl HeapStats {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An event of a heap with these ten numbers for each generation.
    fn heap(generations: &[[u64; 10]]) -> Generations {
        let mut payload = vec![0xff; AT];
        for number in generations.iter().flatten() {
            payload.extend(number.to_le_bytes());
        }
        Generations::parse(&payload, generations.len() as u64)
    }

    #[test]
    fn heaps_are_added_up() {
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
    fn an_event_that_ends_early_tells_of_fewer_generations() {
        assert_eq!(Generations::parse(&[0; AT + BYTES - 1], 5), heap(&[]));
        assert_eq!(
            Generations::parse(&[0; AT + BYTES], u64::MAX),
            heap(&[[0; 10]])
        );
    }
}
