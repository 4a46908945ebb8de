//! The files of `perf record --threads`, one for each thread that has recorded, which hold records and nothing else. Each is in
//! order of time where its thread had one CPU.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io::Read;

use super::error::Corruption;
use super::record_stream::RecordStream;
use crate::trace::Nanos;

/// Files with the record of each that comes next.
pub(super) struct ThreadFiles<R> {
    files: Vec<(RecordStream<R>, Vec<u8>)>,
    /// Which of them goes on when; of the same time the first one.
    next: BinaryHeap<Reverse<(Nanos, usize)>>,
    /// Those whose next record was not read yet.
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

    /// Bytes of hardware traces that were passed over.
    pub(super) fn aux_bytes(&self) -> u64 {
        self.files.iter().map(|(stream, _)| stream.aux_bytes).sum()
    }

    /// Puts the oldest of the next records into `record`; `false` at the end. `time` tells that of a record. A file that is
    /// damaged is told to `damaged`, with the bytes of it that are whole, and ends there.
    pub(super) fn next(
        &mut self,
        record: &mut Vec<u8>,
        time: impl Fn(&[u8]) -> Nanos,
        mut damaged: impl FnMut(u64, Corruption),
    ) -> bool {
        for at in self.unread.drain(..) {
            let (stream, head) = &mut self.files[at];
            match stream.next(head) {
                Ok(true) => self.next.push(Reverse((time(head), at))),
                Ok(false) => {}
                Err(damage) => damaged(stream.position, damage),
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
