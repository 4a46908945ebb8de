//! Merges the ring buffers of all CPUs by time.
//!
//! ```text
//! t ->        10   20   30   40
//! cpu0 ring:  a    .    c    | e
//! cpu1 ring:  .    b    .    | d
//!                            ^ flush limit
//! ```
//! A round flushes all records before the flush limit. The limit is so far back that no CPU can
//! still be writing an older record. In the figure a, b and c come out in order; d and e wait in
//! their ring buffers.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::ControlFlow;

use super::layout::Layout;
use crate::ids::Nanos;

/// A queue of records in the order in which they were written: a ring buffer, or recorded bytes.
pub trait RecordSource {
    /// Returns the oldest whole record. It stays until [`RecordSource::advance`].
    fn peek(&mut self) -> Option<&[u8]>;
    /// Removes the record that `peek` returned.
    fn advance(&mut self);
}

/// State of a merge across rounds.
#[derive(Debug, Default)]
pub struct Merge {
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
    newest: Nanos,
    late: u64,
}

impl Merge {
    /// Passes all records older than `flush_limit` to `each`, oldest first.
    ///
    /// If `each` returns [`ControlFlow::Break`], the record stays the oldest one. Returns the time
    /// before which no record is left.
    pub fn round<S: RecordSource>(
        &mut self,
        sources: &mut [S],
        layout: &Layout,
        flush_limit: Nanos,
        mut each: impl FnMut(Nanos, &[u8]) -> ControlFlow<()>,
    ) -> Nanos {
        self.heads.clear();
        for (index, source) in sources.iter_mut().enumerate() {
            if let Some(time) = head_time(source, layout) {
                self.heads.push(Reverse((time, index)));
            }
        }
        while let Some(mut head) = self.heads.peek_mut() {
            let Reverse((time, index)) = *head;
            if time >= flush_limit {
                break;
            }
            let source = &mut sources[index];
            if let Some(record) = source.peek() {
                if each(time, record).is_break() {
                    return time;
                }
                source.advance();
            }
            self.late += u64::from(time < self.newest);
            self.newest = self.newest.max(time);
            match head_time(source, layout) {
                Some(time) => head.0.0 = time,
                None => {
                    std::collections::binary_heap::PeekMut::pop(head);
                }
            }
        }
        flush_limit
    }

    /// Number of records that were flushed after a newer one.
    ///
    /// They reached their ring buffer after the flush limit had passed them.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

/// Returns the time of the next record.
///
/// A record too short for a time sorts first. The parser then rejects and counts it.
fn head_time(source: &mut impl RecordSource, layout: &Layout) -> Option<Nanos> {
    source
        .peek()
        .map(|record| layout.time_of(record).unwrap_or_default())
}
