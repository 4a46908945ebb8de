//! All samples of a trace, packed as in the spool: about 8 bytes each instead of 32.

use super::Sample;
use super::spool::sample;
use super::spool::wire::Input;

/// Bytes of a piece; pieces, as one growing buffer would be copied, and take twice its room meanwhile.
const PIECE_BYTES: usize = 256 << 10;
/// More than a sample takes.
const SAMPLE_BYTES: usize = 48;

/// Samples, in the order they were pushed.
#[derive(Default)]
pub struct Samples {
    /// The first sample of each follows the default sample.
    pieces: Vec<Vec<u8>>,
    last: Sample,
    len: usize,
}

impl Samples {
    /// Appends a sample.
    pub fn push(&mut self, sample: Sample) {
        let fits = |piece: &Vec<u8>| piece.len() + SAMPLE_BYTES <= PIECE_BYTES;
        if !self.pieces.last().is_some_and(fits) {
            self.pieces.push(Vec::new());
            self.last = Sample::default();
        }
        if let Some(piece) = self.pieces.last_mut() {
            sample::encode(&self.last, &sample, piece);
        }
        self.last = sample;
        self.len += 1;
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The samples.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        self.pieces.iter().flat_map(|piece| {
            let mut input = Input(piece);
            let mut last = Sample::default();
            std::iter::from_fn(move || {
                let flags = input.byte().ok()?;
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
            let asked: Vec<Sample> = rows
                .iter()
                .map(|&([time, weight], thread, cpu, stack)| Sample {
                    time: Nanos(time),
                    weight: Nanos(weight),
                    thread: ThreadId(thread),
                    cpu: Cpu(cpu),
                    stack: StackId(stack),
                })
                .collect();
            let asked = || asked.iter().copied().cycle().take(asked.len() * copies);
            let samples: Samples = asked().collect();
            prop_assert_eq!(samples.len(), asked().count());
            prop_assert!(samples.iter().eq(asked()));
        }
    }
}
