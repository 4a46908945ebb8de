//! Merges the rings of all CPUs by time.
//!
//! ```text
//! t ->        10   20   30   40
//! cpu0 ring:  a    .    c    | e
//! cpu1 ring:  .    b    .    | d
//!                            ^ horizon
//! ```
//! A round takes everything before the horizon, a time so far back that no CPU can still be writing an older
//! record: a, b, c come out in order; d and e wait in their rings.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::layout::Layout;
use crate::ids::Nanos;

/// A queue of records in their own order: a ring, or recorded bytes.
pub trait RecordSource {
    /// The oldest record, whole. It stays until [`RecordSource::advance`].
    fn peek(&mut self) -> Option<&[u8]>;
    /// Drops the record `peek` gave.
    fn advance(&mut self);
}

/// The state of a merge that goes on from round to round.
#[derive(Debug, Default)]
pub struct Merge {
    heads: BinaryHeap<Reverse<(Nanos, usize)>>,
    newest: Nanos,
    late: u64,
}

impl Merge {
    /// Hands all records older than `horizon` to `each`, oldest first.
    pub fn round<S: RecordSource>(
        &mut self,
        sources: &mut [S],
        layout: &Layout,
        flush_limit: Nanos,
        mut each: impl FnMut(Nanos, &[u8]),
    ) {
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
            self.late += u64::from(time < self.newest);
            self.newest = self.newest.max(time);
            let source = &mut sources[index];
            if let Some(record) = source.peek() {
                each(time, record);
                source.advance();
            }
            match head_time(source, layout) {
                Some(time) => head.0.0 = time,
                None => {
                    std::collections::binary_heap::PeekMut::pop(head);
                }
            }
        }
    }

    /// Records that came out after a newer one, because they reached their ring later than the horizon allows.
    #[must_use]
    pub fn late(&self) -> u64 {
        self.late
    }
}

/// A record too short to hold a time sorts first; the parser then refuses and counts it.
fn head_time(source: &mut impl RecordSource, layout: &Layout) -> Option<Nanos> {
    source
        .peek()
        .map(|record| layout.time_of(record).unwrap_or_default())
}
