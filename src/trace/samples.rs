//! All samples of a trace, packed as in the spool: about 8 bytes each instead of 32.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Sample;
use super::spool::sample;
use super::spool::wire::Input;

/// Bytes of a chunk.
///
/// A single growing buffer would be copied, and would need twice its size while it grows.
const CHUNK_BYTES: usize = 256 << 10;
/// Upper bound for the encoded size of a sample.
const SAMPLE_BYTES: usize = 48;

/// Samples in the order of their insertion.
#[derive(Default)]
pub struct Samples {
    /// Encoded samples. The first sample of each chunk is relative to the default sample.
    chunks: Vec<Vec<u8>>,
    last: Sample,
    len: usize,
    /// Number of samples that were decoded, in whole chunks.
    decoded: AtomicU64,
}

impl Samples {
    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        let fits = |chunk: &Vec<u8>| chunk.len() + SAMPLE_BYTES <= CHUNK_BYTES;
        if !self.chunks.last().is_some_and(fits) {
            self.chunks.push(Vec::new());
            self.last = Sample::default();
        }
        if let Some(chunk) = self.chunks.last_mut() {
            sample::encode(&self.last, &sample, chunk);
        }
        self.last = sample;
        self.len += 1;
    }

    /// Returns the number of samples.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no samples.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns about how many samples all iterators have returned so far.
    pub(crate) fn decoded(&self) -> u64 {
        self.decoded.load(Ordering::Relaxed)
    }

    /// Decodes the samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        self.chunks.iter().flat_map(move |chunk| {
            let mut input = Input(chunk);
            let mut last = Sample::default();
            let mut count = 0;
            std::iter::from_fn(move || {
                let Ok(flags) = input.byte() else {
                    self.decoded
                        .fetch_add(std::mem::take(&mut count), Ordering::Relaxed);
                    return None;
                };
                count += 1;
                last = sample::decode(&last, flags, &mut input).ok()?;
                Some(last)
            })
        })
    }
}

impl Extend<Sample> for Samples {
    fn extend<T: IntoIterator<Item = Sample>>(&mut self, samples: T) {
        samples.into_iter().for_each(|sample| self.push(sample));
    }
}

impl FromIterator<Sample> for Samples {
    fn from_iter<T: IntoIterator<Item = Sample>>(samples: T) -> Self {
        let mut all = Self::default();
        all.extend(samples);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::{Cpu, Nanos, StackId, ThreadId};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn samples_round_trip(
            rows in proptest::collection::vec((any::<[u64; 2]>(), 0_u32..3, 0_u32..2, any::<u32>()), 0..50),
            copies in 1_usize..800,
        ) {
            let expected: Vec<Sample> = rows
                .iter()
                .map(|&([time, weight], thread, cpu, stack)| Sample {
                    time: Nanos(time),
                    weight: Nanos(weight),
                    thread: ThreadId(thread),
                    cpu: Cpu(cpu),
                    stack: StackId(stack),
                })
                .collect();
            let expected = || expected.iter().copied().cycle().take(expected.len() * copies);
            let samples: Samples = expected().collect();
            prop_assert_eq!(samples.len(), expected().count());
            prop_assert!(samples.iter().eq(expected()));
        }
    }
}
