//! The files of `perf record --threads`: one per recording thread, with records only.
//!
//! A file is in order of time if its thread recorded one CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use super::error::Corruption;
use super::record_stream::RecordStream;
use crate::trace::Nanos;

/// Merge of the per-thread files by time.
pub(super) struct ThreadFiles<R> {
    /// Files, each with its next record.
    files: Vec<(RecordStream<R>, Vec<u8>)>,
    /// Times of the next records and indices of their files. For equal times, the first file wins.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Indices of the files whose next record was not read yet.
    unread: Vec<usize>,
}

impl<R: Read> ThreadFiles<R> {
    pub(super) fn new(streams: impl IntoIterator<Item = RecordStream<R>>) -> Self {
        let files: Vec<_> = streams
            .into_iter()
            .map(|stream| (stream, Vec::new()))
            .collect();
        Self {
            unread: (0..files.len()).collect(),
            next: BinaryHeap::new(),
            files,
        }
    }

    /// Returns the number of skipped bytes of AUX data.
    pub(super) fn aux_bytes(&self) -> u64 {
        self.files.iter().map(|(stream, _)| stream.aux_bytes).sum()
    }

    /// Reads the oldest of the next records into `record`. Returns `false` at the end.
    ///
    /// `time` returns the time of a record. A corrupt file ends at its first corrupt record;
    /// `on_corruption` gets the number of valid bytes and the cause.
    pub(super) fn next(
        &mut self,
        record: &mut Vec<u8>,
        time: impl Fn(&[u8]) -> Nanos,
        mut on_corruption: impl FnMut(u64, Corruption),
    ) -> bool {
        for at in self.unread.drain(..) {
            let (stream, head) = &mut self.files[at];
            match stream.next(head) {
                Ok(true) => self.next.push(Reverse((time(head), at))),
                Ok(false) => {}
                Err(corruption) => on_corruption(stream.position, corruption),
            }
        }
        let Some(Reverse((_, at))) = self.next.pop() else {
            return false;
        };
        std::mem::swap(&mut self.files[at].1, record);
        self.unread.push(at);
        true
    }
}
