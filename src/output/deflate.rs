//! Parallel compression: cuts what is written into blocks, deflates them on all CPUs and writes them in order.
//!
//! ```text
//! bytes ──┬─ block ── worker ─┬── in order ──> out
//!         └─ block ── worker ─┘
//! ```
//! Each block but the last ends at a byte boundary (`Z_SYNC_FLUSH`), so the blocks form one RFC 1951 stream. No block refers to the
//! one before. The same bytes give the same stream on any number of CPUs.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use crc32fast::Hasher;
use flate2::{Compress, Compression, FlushCompress, Status};
use rawzip::DataDescriptorOutput;

/// Smaller than a CPU's cache: 1 MiB takes 6 % more time and saves 1.6 % of the size.
const BLOCK_BYTES: usize = 256 << 10;

/// `convert` of 444 MB of text of compilers' stacks and 1 379 MB of services' makes archives of 82 and 147 MB with level 1, 65 and
/// 116 MB with level 2, which takes 10 to 15 % more CPU time.
const LEVEL: Compression = Compression::new(2);

/// Queued blocks per worker.
const BLOCKS_AHEAD: usize = 2;

/// Compression threads.
pub(super) struct Workers {
    jobs: Sender<Job>,
    /// Limit of blocks in flight.
    max_in_flight: usize,
}

/// A block on its way to a worker.
struct Job {
    block: Vec<u8>,
    flush: FlushCompress,
    done: Sender<io::Result<Vec<u8>>>,
}

impl Workers {
    /// Starts a worker for each CPU, runs `act` and stops the workers.
    pub(super) fn run<T>(act: impl FnOnce(&Self) -> T) -> T {
        let count = thread::available_parallelism().map_or(1, usize::from);
        let (jobs, queue) = mpsc::channel();
        let queue = Mutex::new(queue);
        thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| work(&queue));
            }
            // Dropping the sender stops the workers.
            let workers = Self {
                jobs,
                max_in_flight: count * (1 + BLOCKS_AHEAD),
            };
            act(&workers)
        })
    }
}

fn work(queue: &Mutex<Receiver<Job>>) {
    let mut compress = Compress::new(LEVEL, false);
    loop {
        let job = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Job { block, flush, done }) = job else {
            return;
        };
        // After an error there is no receiver.
        let _ = done.send(deflate(&mut compress, &block, flush));
    }
}

fn deflate(compress: &mut Compress, block: &[u8], flush: FlushCompress) -> io::Result<Vec<u8>> {
    compress.reset();
    let mut deflated = Vec::with_capacity(block.len() / 4 + 64);
    loop {
        let rest = &block[compress.total_in() as usize..];
        let status = compress.compress_vec(rest, &mut deflated, flush)?;
        // A flush is complete when it leaves room.
        let is_complete = match flush {
            FlushCompress::Finish => status == Status::StreamEnd,
            _ => deflated.len() < deflated.capacity(),
        };
        if is_complete {
            return Ok(deflated);
        }
        deflated.reserve(deflated.capacity());
    }
}

/// Writes to `out` deflated.
pub(crate) struct Deflate<'w, W> {
    workers: &'w Workers,
    out: W,
    block: Vec<u8>,
    in_flight: VecDeque<Receiver<io::Result<Vec<u8>>>>,
    /// Three times as fast as that of `rawzip`.
    crc: Hasher,
    bytes: u64,
}

impl<'w, W: Write> Deflate<'w, W> {
    pub(super) fn new(workers: &'w Workers, out: W) -> Self {
        Self {
            workers,
            out,
            block: Vec::new(),
            in_flight: VecDeque::new(),
            crc: Hasher::new(),
            bytes: 0,
        }
    }

    /// Ends the stream and describes what was written.
    pub(super) fn finish(mut self) -> io::Result<(W, DataDescriptorOutput)> {
        self.send(FlushCompress::Finish)?;
        while !self.in_flight.is_empty() {
            self.receive()?;
        }
        let content = DataDescriptorOutput::new(self.crc.finalize(), self.bytes);
        Ok((self.out, content))
    }

    fn send(&mut self, flush: FlushCompress) -> io::Result<()> {
        while self.in_flight.len() >= self.workers.max_in_flight {
            self.receive()?;
        }
        let (done, deflated) = mpsc::channel();
        let block = std::mem::take(&mut self.block);
        let job = Job { block, flush, done };
        let sent = self.workers.jobs.send(job);
        sent.map_err(|_| io::Error::other("the compression threads have stopped"))?;
        self.in_flight.push_back(deflated);
        Ok(())
    }

    /// Writes the oldest block in flight.
    fn receive(&mut self) -> io::Result<()> {
        let Some(deflated) = self.in_flight.pop_front() else {
            return Ok(());
        };
        let deflated = deflated.recv().map_err(io::Error::other)??;
        self.out.write_all(&deflated)
    }
}

impl<W: Write> Write for Deflate<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.is_empty() {
            self.block.reserve_exact(BLOCK_BYTES);
        }
        let taken = &bytes[..bytes.len().min(BLOCK_BYTES - self.block.len())];
        self.block.extend_from_slice(taken);
        self.crc.update(taken);
        self.bytes += taken.len() as u64;
        if self.block.len() == BLOCK_BYTES {
            self.send(FlushCompress::Sync)?;
        }
        Ok(taken.len())
    }

    /// Does nothing: a block is sent when it is full.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io::Read;

    use flate2::read::DeflateDecoder;

    use super::*;

    fn round_trip(bytes: &[u8]) -> Vec<u8> {
        let (deflated, content) = Workers::run(|workers| {
            let mut stream = Deflate::new(workers, Vec::new());
            stream.write_all(bytes).unwrap();
            stream.finish().unwrap()
        });
        let mut inflated = Vec::new();
        let mut decoder = DeflateDecoder::new(&deflated[..]);
        decoder.read_to_end(&mut inflated).unwrap();
        assert_eq!(inflated, bytes);
        assert_eq!(decoder.total_in(), deflated.len() as u64);
        assert_eq!(content.uncompressed_size(), bytes.len() as u64);
        assert_eq!(content.crc(), crc32fast::hash(bytes));
        deflated
    }

    /// Text that can be compressed, and noise that cannot.
    fn mixed(len: usize) -> Vec<u8> {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            (random >> 56) as u8
        };
        (0..len)
            .map(|at| match at / 100_000 % 2 {
                0 => next(),
                _ => b"some text "[at % 10],
            })
            .collect()
    }

    #[test]
    fn blocks_are_one_stream() {
        for len in [
            0,
            1,
            BLOCK_BYTES - 1,
            BLOCK_BYTES,
            BLOCK_BYTES + 1,
            20 * BLOCK_BYTES + 7,
        ] {
            round_trip(&mixed(len));
        }
    }

    #[test]
    fn the_same_bytes_give_the_same_stream() {
        let bytes = mixed(10 * BLOCK_BYTES);
        assert_eq!(round_trip(&bytes), round_trip(&bytes));
    }

    #[test]
    fn an_error_ends_the_stream() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let error = Workers::run(|workers| {
            let mut stream = Deflate::new(workers, Full);
            io::copy(&mut io::repeat(b'x'), &mut stream).unwrap_err()
        });
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    }
}
