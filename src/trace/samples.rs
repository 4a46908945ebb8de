//! All samples of a trace, packed as in the spool: about 8 bytes each instead of 32. All but the
//! first half million are in a file, if there is one.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::Sample;
use super::spool::sample;
use super::spool::wire::Input;

/// Bytes of a chunk.
///
/// A single growing buffer would be copied, and would need twice its size while it grows.
const CHUNK_BYTES: usize = 256 << 10;
/// Number of chunks in memory if there is a file: half a million samples.
const MAX_CHUNKS_IN_MEMORY: usize = 16;
/// Free space on the disk that the file leaves.
const MIN_FREE_BYTES: u64 = 64 << 20;
/// Upper bound for the encoded size of a sample.
const SAMPLE_BYTES: usize = 48;

/// Samples in the order of their insertion.
///
/// The weights of a list add up to [`u64::MAX`] at most: a weight beyond that is cut, so that no sum over a
/// list, or a part of it, overflows. That is 584 years.
#[derive(Default)]
pub struct Samples {
    /// The first sample of each chunk is relative to the default sample. The last chunk grows.
    chunks: Vec<Chunk>,
    last: Sample,
    len: usize,
    /// Sum of the weights.
    total_ns: u64,
    /// Maximum number of whole chunks in memory if there is a file.
    max_in_memory: usize,
    /// Number of samples that were decoded, in whole chunks.
    decoded: AtomicU64,
    /// Whether iterators end after the chunk that they decode.
    is_stopped: AtomicBool,
    storage: Arc<Storage>,
}

/// Encoded samples.
enum Chunk {
    InMemory(Vec<u8>),
    InFile { at: u64, length: usize },
}

/// Place of the chunks beyond those in memory, of one or more lists.
#[derive(Default)]
struct Storage {
    file: Option<File>,
    end: Mutex<StorageEnd>,
    read_error: OnceLock<io::Error>,
}

/// Where a file ends.
#[derive(Default)]
struct StorageEnd {
    at: u64,
    has_failed: bool,
}

impl Samples {
    /// Creates an empty list that keeps most of its samples in this empty file, if there is one. They
    /// stay in memory if the file cannot grow.
    #[must_use]
    pub fn in_file(file: Option<File>) -> Self {
        let storage = Storage {
            file,
            ..Storage::default()
        };
        Self {
            max_in_memory: MAX_CHUNKS_IN_MEMORY,
            storage: Arc::new(storage),
            ..Self::default()
        }
    }

    /// Creates an empty list in the same file. It is one of `lists` that together have as much in memory as
    /// a single one.
    #[must_use]
    pub(crate) fn in_same_file(&self, lists: usize) -> Self {
        Self {
            max_in_memory: MAX_CHUNKS_IN_MEMORY / lists.max(1),
            storage: Arc::clone(&self.storage),
            ..Self::default()
        }
    }

    /// Appends a sample.
    pub fn push(&mut self, mut sample: Sample) {
        let fits = |bytes: &[u8]| bytes.len() + SAMPLE_BYTES <= CHUNK_BYTES;
        if !matches!(self.chunks.last(), Some(Chunk::InMemory(bytes)) if fits(bytes)) {
            self.start_chunk();
        }
        sample.weight.0 = sample.weight.0.min(u64::MAX - self.total_ns);
        self.total_ns += sample.weight.0;
        if let Some(Chunk::InMemory(bytes)) = self.chunks.last_mut() {
            sample::encode(sample::SAMPLE, &self.last, &sample, bytes);
        }
        self.last = sample;
        self.len += 1;
    }

    fn start_chunk(&mut self) {
        if self.chunks.len() > self.max_in_memory
            && let Some(last) = self.chunks.last_mut()
        {
            self.storage.store(last);
        }
        self.chunks.push(Chunk::InMemory(Vec::new()));
        self.last = Sample::default();
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

    /// Returns the error that ended an iterator early, if any: of this list, or of one in the same file.
    pub(crate) fn read_error(&self) -> Option<&io::Error> {
        self.storage.read_error.get()
    }

    /// Ends all iterators early, also those that are still to come.
    pub(crate) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    /// Decodes the samples. If the file cannot be read, the iterator ends early, and the writing of the
    /// trace fails.
    pub fn iter(&self) -> impl Iterator<Item = Sample> + '_ {
        let chunks = self
            .chunks
            .iter()
            .take_while(|_| !self.is_stopped.load(Ordering::Relaxed))
            .map_while(|chunk| match self.storage.bytes(chunk) {
                Ok(bytes) => Some(bytes),
                Err(error) => {
                    // An earlier error is as good.
                    let _ = self.storage.read_error.set(error);
                    None
                }
            });
        chunks.flat_map(move |chunk| {
            let (mut at, mut last, mut count) = (0, Sample::default(), 0);
            std::iter::from_fn(move || {
                let mut input = Input(&chunk[at..]);
                let Ok(flags) = input.byte() else {
                    self.decoded
                        .fetch_add(std::mem::take(&mut count), Ordering::Relaxed);
                    return None;
                };
                count += 1;
                let Ok(sample) = sample::decode(&last, flags, &mut input) else {
                    let _ = self
                        .storage
                        .read_error
                        .set(io::ErrorKind::InvalidData.into());
                    return None;
                };
                last = sample;
                at = chunk.len() - input.0.len();
                Some(last)
            })
        })
    }
}

impl Storage {
    fn bytes<'a>(&self, chunk: &'a Chunk) -> io::Result<Cow<'a, [u8]>> {
        match (chunk, &self.file) {
            (Chunk::InMemory(bytes), _) => Ok(Cow::Borrowed(bytes)),
            (&Chunk::InFile { at, length }, Some(file)) => {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, at)?;
                Ok(Cow::Owned(bytes))
            }
            (Chunk::InFile { .. }, None) => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Moves a chunk to the file, if there is one, and room.
    fn store(&self, chunk: &mut Chunk) {
        let (Chunk::InMemory(bytes), Some(file)) = (&mut *chunk, &self.file) else {
            return;
        };
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        end.has_failed =
            end.has_failed || !leaves_room(file) || file.write_all_at(bytes, end.at).is_err();
        if end.has_failed {
            // A part of the chunk may be there.
            let _ = file.set_len(end.at);
            return;
        }
        let (at, length) = (end.at, bytes.len());
        end.at += length as u64;
        *chunk = Chunk::InFile { at, length };
    }
}

/// Returns whether the disk has room for more than the file: the trace, and other programs.
fn leaves_room(file: &File) -> bool {
    let disk = rustix::fs::fstatvfs(file);
    disk.is_ok_and(|disk| disk.f_bavail.saturating_mul(disk.f_frsize) >= MIN_FREE_BYTES)
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

    fn sample(&([time, weight], thread, cpu, stack): &([u64; 2], u32, u32, u32)) -> Sample {
        Sample {
            time: Nanos(time),
            weight: Nanos(weight),
            thread: ThreadId(thread),
            cpu: Cpu(cpu),
            stack: StackId(stack),
        }
    }

    proptest! {
        #[test]
        fn samples_round_trip(
            rows in proptest::collection::vec((any::<[u64; 2]>(), 0_u32..3, 0_u32..2, any::<u32>()), 0..50),
            copies in 1_usize..800,
        ) {
            let rows: Vec<Sample> = rows.iter().map(sample).collect();
            let expected = || rows.iter().copied().cycle().take(rows.len() * copies);
            let samples: Samples = expected().collect();
            prop_assert_eq!(samples.len(), expected().count());
            let mut left = u64::MAX;
            let cut = expected().map(|mut sample| {
                sample.weight.0 = sample.weight.0.min(left);
                left -= sample.weight.0;
                sample
            });
            prop_assert!(samples.iter().eq(cut));
        }
    }

    fn many() -> impl Iterator<Item = Sample> {
        (0..400_000).map(|row| sample(&([row << 40, row], row as u32 % 3, 1, row as u32)))
    }

    #[test]
    fn most_samples_are_in_the_file() {
        let file = tempfile::tempfile().unwrap();
        let mut samples = Samples::in_file(Some(file.try_clone().unwrap()));
        samples.extend(many());
        let in_memory = (MAX_CHUNKS_IN_MEMORY + 1) * CHUNK_BYTES;
        let length = file.metadata().unwrap().len() as usize;
        assert!(length > in_memory / 4, "{length}");
        let all: Samples = many().collect();
        assert!(all.chunks.len() * CHUNK_BYTES <= length + in_memory + CHUNK_BYTES);
        for _ in 0..2 {
            assert!(samples.iter().eq(many()));
        }
        assert!(samples.read_error().is_none());
        let mut decoding = samples.iter();
        assert!(decoding.next().is_some());
        samples.stop();
        // The chunk that it decodes is the last one.
        assert!(decoding.count() <= CHUNK_BYTES && samples.iter().next().is_none());
        samples.is_stopped = AtomicBool::new(false);
        file.set_len(length as u64 / 2).unwrap();
        assert!(samples.iter().count() < samples.len());
        assert!(samples.read_error().is_some());
    }

    #[test]
    fn lists_share_a_file() {
        let file = tempfile::tempfile().unwrap();
        let first = Samples::in_file(Some(file.try_clone().unwrap()));
        let others = [4; 3].map(|lists| first.in_same_file(lists));
        let mut lists = vec![first];
        lists.extend(others);
        for sample in many() {
            lists.iter_mut().for_each(|list| list.push(sample));
        }
        assert!(lists.iter().all(|list| list.iter().eq(many())));
        let in_memory = |list: &Samples| {
            let chunks = list.chunks.iter();
            chunks
                .filter(|chunk| matches!(chunk, Chunk::InMemory(_)))
                .count()
        };
        assert!(in_memory(&lists[1]) < in_memory(&lists[0]));
        file.set_len(0).unwrap();
        assert!(lists[3].iter().count() < lists[3].len());
        assert!(lists.iter().all(|list| list.read_error().is_some()));
    }

    #[test]
    fn samples_stay_in_memory_if_the_file_cannot_grow() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut samples = Samples::in_file(Some(File::open(path.path()).unwrap()));
        samples.extend(many());
        assert!(samples.iter().eq(many()));
    }
}
